//! From a message to a job that can be run, or to the dead letters.

use super::Shared;
use crate::agent::AgentRecord;
use crate::metrics::metrics;
use crate::queue::{Cause, DeadLetter, Job, JobBody, Message, QueueError};
use crate::session::Session;
use crate::store::StoreError;
use std::sync::Arc;
use tracing::warn;

/// A job that cannot be run, now or ever.
#[derive(Debug)]
pub(super) struct Unfit {
    pub(super) cause: Cause,
    pub(super) reason: String,
    pub(super) job_id: Option<String>,
    pub(super) attempts: u32,
}

impl Unfit {
    fn new(cause: Cause, reason: impl Into<String>, job: Option<&Job>) -> Self {
        Self { cause, reason: reason.into(), job_id: job.map(|job| job.job_id.clone()), attempts: 1 }
    }
}

/// Reads a message as a job.
pub(super) fn decode(message: &Message) -> Result<Job, Unfit> {
    let job = Job::decode(message).map_err(|error| Unfit::new(Cause::Invalid, error.to_string(), None))?;
    if let JobBody::Run { workflow_id, .. } = &job.body {
        let reason = format!("there is no workflow `{workflow_id}`");
        return Err(Unfit::new(Cause::Invalid, reason, Some(&job)));
    }
    Ok(job)
}

/// The agent that is to handle a job, as applied last. A timer runs under the configuration that its session last ran
/// with, as long as that is stored.
pub(super) async fn agent_of(
    shared: &Shared,
    job: &Job,
    session: Option<&Session>,
) -> Result<Result<Arc<AgentRecord>, Unfit>, StoreError> {
    let named = job.user_message().and_then(|message| message.agent_id.as_deref());
    let known = session.map(|session| session.agent_id.as_str()).filter(|agent_id| !agent_id.is_empty());
    let Some(agent_id) = named.or(known) else {
        let reason = "the session is new and the job names no agent_id";
        return Ok(Err(Unfit::new(Cause::Invalid, reason, Some(job))));
    };
    if job.user_message().is_none()
        && let Some(hash) = session.map(|session| session.workflow_state.hash.as_str()).filter(|hash| !hash.is_empty())
        && let Some(version) = shared.store().agent_version(agent_id, hash).await?
    {
        return Ok(Ok(version));
    }
    Ok(match shared.store().agent(agent_id).await? {
        None => {
            let reason = format!("agent `{agent_id}` is not known; apply its file with `turnwheel agents apply`");
            Err(Unfit::new(Cause::UnknownAgent, reason, Some(job)))
        }
        Some(agent) if agent.config.is_task_agent() => {
            let reason = format!("agent `{agent_id}` is a task agent, which takes no chat sessions");
            Err(Unfit::new(Cause::UnknownAgent, reason, Some(job)))
        }
        Some(agent) => Ok(agent),
    })
}

/// Puts a message to the dead letters, once.
pub(super) async fn bury(shared: &Shared, message: &Message, unfit: Unfit) -> Result<(), QueueError> {
    let Unfit { cause, reason, job_id, attempts } = unfit;
    warn!(
        session_id = message.session_id,
        seq = message.seq,
        job_id,
        cause = cause.as_str(),
        "to the dead letters: {reason}"
    );
    let letter = DeadLetter {
        cause,
        reason,
        subject: format!("{}.jobs.{}", shared.namespace, message.session_id),
        attempts,
        job_id,
        msg_id: format!("{}/{}", message.default_id, cause.as_str()),
        payload: message.payload.clone(),
    };
    shared.queue().dead(letter).await?;
    metrics().dead_letter(cause);
    Ok(())
}
