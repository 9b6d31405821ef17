//! Reads messages as jobs and finds their agent or workflow. A job that cannot run becomes a dead letter.

use super::WorkerState;
use super::stop::Stop;
use crate::authoring::AGENT_ID;
use crate::execution::stored;
use crate::run;
use base::metrics::metrics;
use definitions::agent::AgentRecord;
use serde_json::json;
use std::sync::{Arc, LazyLock};
use storage::queue::{DeadLetter, Message, QueueError};
use storage::store::records::Pin;
use storage::store::{self, StoreError};
use tracing::level_filters::LevelFilter;
use tracing::{debug, warn};
use types::cause::Cause;
use types::excerpt;
use types::job::{Job, JobBody, JobError};
use types::run::{RunRecord, RunStatus};
use types::run_outcome::RunFailure;
use types::session::{Kind, Session};
use types::timestamp::Timestamp;

/// Maximum length of a dead letter's reason, in bytes. It may quote the message, and NATS headers hold 64 KiB at most.
const MAX_REASON: usize = 1024;

/// A job that can never run, with the fields of its dead letter.
#[derive(Debug)]
pub(super) struct RejectedJob {
    pub(super) cause: Cause,
    pub(super) reason: String,
    pub(super) job_id: Option<String>,
    pub(super) attempts: u32,
}

impl RejectedJob {
    fn new(cause: Cause, reason: impl Into<String>, job: Option<&Job>) -> Self {
        Self { cause, reason: reason.into(), job_id: job.map(|job| job.job_id.clone()), attempts: 1 }
    }
}

/// Why a job has no turn.
pub(super) enum IntakeError {
    /// The job can never run.
    Rejected(RejectedJob),
    /// Queue or store have failed.
    Stop(Stop),
}

impl From<RejectedJob> for IntakeError {
    fn from(rejected: RejectedJob) -> Self {
        Self::Rejected(rejected)
    }
}

impl<E: Into<Stop>> From<E> for IntakeError {
    fn from(error: E) -> Self {
        Self::Stop(error.into())
    }
}

/// Reads a message as a job. Logs its unknown fields at DEBUG. A job of a newer version is for other workers.
pub(super) fn decode(message: &Message) -> Result<Job, IntakeError> {
    let job = message.job().map_err(|error| match error {
        JobError::Newer(_) => IntakeError::Stop(Stop::Newer(error.into())),
        error => IntakeError::Rejected(RejectedJob {
            cause: Cause::Invalid,
            reason: error.to_string(),
            job_id: Some(message.job_id()),
            attempts: 1,
        }),
    })?;
    // Guarded because it parses the payload a second time.
    if LevelFilter::current() >= LevelFilter::DEBUG {
        for field in job.unknown_fields(&message.payload) {
            let (field, session_id) = (excerpt::cut(&field, 100), &job.session_id);
            debug!(%field, session_id, job_id = job.job_id, "an unknown field of a job is ignored");
        }
    }
    Ok(job)
}

/// Whether a job belongs to a run, by its own type or by its lane.
pub(super) fn is_of_run(job: &Job, session: &Session) -> bool {
    session.kind == Kind::Run || matches!(job.body, JobBody::Run { .. } | JobBody::Answer { .. })
}

/// Refuses a job that the lane of a run cannot process, and a run in the lane of a conversation.
pub(super) fn check_job_of_run(job: &Job, session: &Session) -> Result<(), RejectedJob> {
    let id = &session.session_id;
    let reason = match (&job.body, session.kind) {
        (JobBody::Run { .. } | JobBody::Control(_) | JobBody::Timer { .. } | JobBody::Answer { .. }, Kind::Run) => {
            return Ok(());
        }
        (_, Kind::Run) => format!(
            "`{id}` is a run of a workflow and accepts only runs, answers and control commands; use another session_id"
        ),
        (JobBody::Answer { .. }, _) => format!("`{id}` is a conversation, whose questions a user's message answers"),
        _ => format!("`{id}` is a conversation, so a run cannot use this id; use another run_id"),
    };
    Err(RejectedJob::new(Cause::Invalid, reason, Some(job)))
}

/// Finds the workflow of a run. Refuses the run if the workflow is unknown, and marks its pending record as failed. A
/// run that repeats another run takes the definition from there and needs no workflow.
pub(super) async fn workflow_of(shared: &WorkerState, job: &Job) -> Result<Pin, IntakeError> {
    let JobBody::Run { workflow_id, from_run, .. } = &job.body else {
        return Err(RejectedJob::new(Cause::Invalid, "the job is not a run", Some(job)).into());
    };
    let (known, why) = match crate::execution::stored::runs(shared.store().as_ref(), workflow_id).await {
        Ok(known) => (known, None),
        // A retry would not make it readable.
        Err(error @ StoreError::Damaged { .. }) => {
            (None, Some(format!("{error}; put the workflow again, then replay this dead letter")))
        }
        Err(error) => return Err(error.into()),
    };
    if known.is_some() || from_run.is_some() {
        let hash = known.unwrap_or_default();
        return Ok(Pin { agent_id: workflow_id.clone(), hash, announce: false });
    }
    let missing = || {
        format!(
            "there is no workflow `{workflow_id}`; put its file into workflows_dir or register it, then replay this \
             dead letter"
        )
    };
    let reason = why.unwrap_or_else(missing);
    if let Some(record) = shared.store().run(&job.session_id).await?.filter(|run| run.status == RunStatus::Pending) {
        let error = Some(RunFailure { path: String::new(), cause: reason.clone(), attempts: 1 });
        let failed = RunRecord { status: RunStatus::Failed, error, ended_at: Some(shared.clock().now()), ..record };
        shared.store().update_run(failed, 0).await?;
    }
    Err(RejectedJob::new(Cause::Invalid, reason, Some(job)).into())
}

/// Finds the agent version for a job: the current version for a user message that names none, and for other jobs the
/// version with which the session last ran, if it is still stored.
pub(super) async fn agent_of(
    shared: &WorkerState,
    job: &Job,
    session: Option<&Session>,
) -> Result<Arc<AgentRecord>, IntakeError> {
    let named = job.user_message().and_then(|message| message.agent_id.as_deref());
    let known = session.map(|session| session.agent_id.as_str()).filter(|agent_id| !agent_id.is_empty());
    let Some(agent_id) = named.or(known) else {
        if let Some(nobody) = nobody(job, session) {
            return Ok(nobody);
        }
        let reason = "the session is new and the job has no agent_id";
        return Err(RejectedJob::new(Cause::Invalid, reason, Some(job)).into());
    };
    if let Some(hash) = named_version(job) {
        return version_of(shared, job, agent_id, hash).await;
    }
    if job.user_message().is_none()
        && let Some(hash) = session.map(|session| session.workflow_state.hash.as_str()).filter(|hash| !hash.is_empty())
        && let Some(version) = skip_unreadable(shared.store().agent_version(agent_id, hash).await)?
    {
        return Ok(version);
    }
    let current = match shared.store().agent(agent_id).await {
        Err(error @ StoreError::Damaged { .. }) => {
            let reason =
                format!("{error}; apply its file again with `turnwheel agents apply`, then replay this dead letter");
            return Err(RejectedJob::new(Cause::UnknownAgent, reason, Some(job)).into());
        }
        current => current?,
    };
    let reason = match current {
        None => format!("agent `{agent_id}` is not known; apply its file with `turnwheel agents apply`"),
        Some(agent) if agent.config.is_task_agent() => {
            format!("agent `{agent_id}` is a task agent, which takes no chat sessions")
        }
        Some(agent) => return Ok(agent),
    };
    Err(RejectedJob::new(Cause::UnknownAgent, reason, Some(job)).into())
}

/// The version of its agent that a user's message names.
fn named_version(job: &Job) -> Option<&str> {
    job.user_message()?.agent_version.as_deref().filter(|hash| !hash.is_empty())
}

/// Finds the version that a message names, which may be a draft.
async fn version_of(
    shared: &WorkerState,
    job: &Job,
    agent_id: &str,
    hash: &str,
) -> Result<Arc<AgentRecord>, IntakeError> {
    let reason = match skip_unreadable(shared.store().agent_version(agent_id, hash).await)? {
        None => format!(
            "agent `{agent_id}` has no version `{hash}`; `turnwheel agents versions {agent_id}` lists those that are \
             stored"
        ),
        Some(agent) if agent.config.is_task_agent() => {
            format!("version `{hash}` of `{agent_id}` is a task agent, which takes no chat sessions")
        }
        Some(agent) => return Ok(agent),
    };
    Err(RejectedJob::new(Cause::UnknownAgent, reason, Some(job)).into())
}

/// The agent of an authoring dialogue: the version with the hash `pinned`, else the applied one, else the built-in one.
/// Refuses a message for another agent.
pub(super) async fn authoring_agent(
    shared: &WorkerState,
    job: &Job,
    pinned: Option<&str>,
) -> Result<Arc<AgentRecord>, IntakeError> {
    if let Some(named) = job.user_message().and_then(|message| message.agent_id.as_deref())
        && named != AGENT_ID
    {
        return Err(names_another_agent(job, named).into());
    }
    if let Some(hash) = named_version(job) {
        return version_of(shared, job, AGENT_ID, hash).await;
    }
    if let Some(hash) = pinned.filter(|hash| !hash.is_empty())
        && let Some(version) = skip_unreadable(shared.store().agent_version(AGENT_ID, hash).await)?
    {
        return Ok(version);
    }
    let reason = match stored::agent(shared.store().as_ref(), AGENT_ID).await {
        Ok(Some(agent)) => return Ok(agent),
        Ok(None) => format!("agent `{AGENT_ID}` is not known; apply its file with `turnwheel agents apply`"),
        Err(error @ StoreError::Damaged { .. }) => {
            format!("{error}; apply its file again with `turnwheel agents apply`, then replay this dead letter")
        }
        Err(error) => return Err(error.into()),
    };
    Err(RejectedJob::new(Cause::UnknownAgent, reason, Some(job)).into())
}

/// Returns the refusal of a message that names another agent than that of its authoring dialogue.
pub(super) fn names_another_agent(job: &Job, named: &str) -> RejectedJob {
    let reason = format!(
        "`{}` is an authoring dialogue, which only the agent `{AGENT_ID}` holds, but the message names `{named}`; leave out \
         agent_id, or post the message to /api/v1/chat/stream",
        job.session_id
    );
    RejectedJob::new(Cause::Invalid, reason, Some(job))
}

/// The empty agent for a session that only runs have used so far, so that it has no agent. The session's first user
/// message names one.
fn nobody(job: &Job, session: Option<&Session>) -> Option<Arc<AgentRecord>> {
    static NOBODY: LazyLock<Option<Arc<AgentRecord>>> =
        LazyLock::new(|| AgentRecord::from_document(json!({ "id": "" }), Timestamp::from_millis(0)).ok().map(Arc::new));
    let has_none = run::is_result_job(job) || (session.is_some() && job.user_message().is_none());
    if has_none { NOBODY.clone() } else { None }
}

/// Treats a version that this program cannot read as missing, since a retry would not make it readable.
pub(super) fn skip_unreadable<T>(found: store::Result<Option<T>>) -> store::Result<Option<T>> {
    match found {
        Err(error @ StoreError::Damaged { .. }) => {
            warn!("ignoring a stored version that cannot be read: {error}");
            Ok(None)
        }
        found => found,
    }
}

/// Stores a message as a dead letter. Durable on return; a repeated call stores it once.
pub(super) async fn dead_letter(
    shared: &WorkerState,
    message: &Message,
    rejected: RejectedJob,
) -> Result<(), QueueError> {
    let RejectedJob { cause, reason, job_id, attempts } = rejected;
    let reason = excerpt::cut(&reason, MAX_REASON).into_owned();
    warn!(
        session_id = message.session_id,
        seq = message.seq,
        job_id,
        cause = cause.as_str(),
        "job moved to the dead letters: {reason}"
    );
    let letter = DeadLetter {
        cause,
        reason,
        subject: format!("{}.jobs.{}", shared.namespace, message.session_id),
        attempts,
        job_id,
        msg_id: letter_id(message, cause),
        payload: message.payload.clone(),
        cut_from: None,
    };
    shared.queue().publish_dead_letter(letter).await?;
    metrics().dead_letter(cause);
    Ok(())
}

/// The id by which the queue recognises a repeated dead letter. It includes the message's time, because a stream that
/// lost its last messages assigns their sequences again.
fn letter_id(message: &Message, cause: Cause) -> String {
    format!("{}@{}/{}", message.default_id, message.at.as_millis(), cause.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_that_the_stream_gives_again_is_another_dead_letter() {
        let message = |at| Message {
            session_id: "s".into(),
            seq: 5,
            stream: Timestamp::from_millis(0),
            payload: Default::default(),
            msg_id: None,
            default_id: "0-5".into(),
            at: Timestamp::from_millis(at),
            trace: None,
        };
        let id = |at| letter_id(&message(at), Cause::Invalid);
        assert_eq!(id(1_000), id(1_000), "a repeat is the same dead letter");
        assert_ne!(id(1_000), id(2_000));
        assert_ne!(id(1_000), letter_id(&message(1_000), Cause::Attempts));
    }
}
