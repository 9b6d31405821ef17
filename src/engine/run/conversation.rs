//! The result of a run in its own lane becomes part of its session's conversation.
//!
//! Only the lease holder of the session's lane may write the history. So a completed run publishes a `resume` job
//! with the id `resume-<run_id>` on that lane, and the job's turn adds the query and the output as two entries. They
//! are added in lane order and only once, because the job's id is the same in every attempt of the run. A run that
//! starts before that turn takes the missing entries from the records of the session's runs.
//!
//! A run that a coordinator agent has started publishes a job with the same id, whatever its end, if the session is to
//! have a notice. Its entries are not added.

use crate::execution::{Services, TurnError};
use crate::journal::Guard;
use base::error::SharedError;
use serde_json::{Value, json};
use storage::queue::{Publish, QueueError};
use storage::store::{Store, StoreError};
use tracing::warn;
use types::excerpt;
use types::job::{Job, JobBody};
use types::run::{RunQuery, RunRecord, RunStatus};
use types::session::{Entry, Role, Session, history};

/// Number of recent runs of a session that are checked for missing entries.
const MAX_RECENT_RUNS: usize = 20;

/// Id of the job that adds a run to its session's history.
fn job_id(run_id: &str) -> String {
    format!("resume-{run_id}")
}

/// True for the job that adds a run to its session's history. Besides a user's message, only this job may start a new
/// session.
pub(crate) fn is_result_job(job: &Job) -> bool {
    matches!(&job.body, JobBody::Resume { run_id, .. } if job.job_id == job_id(run_id))
}

/// Publishes the job that adds the run to its session's history. Durable on return. The run's steps must be durable,
/// so that a repeat of the run has the same output. Does nothing if the run has no session.
pub(super) async fn publish_result(
    services: &Services,
    guard: &Guard,
    run: &RunRecord,
    output: &str,
) -> Result<(), TurnError> {
    let most = max_text(services.queue.max_payload());
    let outcome = json!({
        "status": RunStatus::Completed.as_str(),
        "workflow_id": run.workflow_id,
        "query": excerpt::cut(&run.query, most),
        "output": excerpt::cut(output, most),
        "channel": run.channel,
        "user_id": run.user_id,
    });
    publish(services, guard, run, outcome).await
}

/// Publishes the job that gives its session a notice of the run's end. Durable on return. The end must be durable. `name`
/// is that of the workflow.
pub(super) async fn publish_notice(
    services: &Services,
    guard: &Guard,
    run: &RunRecord,
    name: &str,
) -> Result<(), TurnError> {
    let most = max_text(services.queue.max_payload());
    let outcome = json!({
        "status": run.status.as_str(),
        "workflow_id": run.workflow_id,
        "name": excerpt::cut(name, most),
        "output": run.output.as_deref().map(|output| excerpt::cut(output, most)),
        "error": run.error.as_ref().map(|failure| excerpt::cut(&failure.to_string(), most).into_owned()),
    });
    publish(services, guard, run, outcome).await
}

/// Publishes the job with the outcome of a run on its session's lane. Its id is the same in every attempt of the run.
/// Does nothing if the run has no session.
async fn publish(services: &Services, guard: &Guard, run: &RunRecord, outcome: Value) -> Result<(), TurnError> {
    let Some(session_id) = run.origin_session.clone().filter(|session_id| *session_id != run.run_id) else {
        return Ok(());
    };
    if !guard.holds().await? {
        return Err(TurnError::Lost);
    }
    let body = JobBody::Resume { run_id: run.run_id.clone(), outcome };
    let job = Job { session_id: session_id.clone(), job_id: job_id(&run.run_id), body };
    let msg_id = Some(format!("{session_id}:{}", job.job_id));
    let publish = Publish { session_id: session_id.clone(), msg_id, payload: job.encode() };
    match services.queue.publish(publish).await {
        Ok(_) => Ok(()),
        // The run is repeated until the session's lane has room.
        Err(problem @ QueueError::Full(_)) => {
            let text = format!("result of run `{}` not sent to session `{session_id}`: {problem}", run.run_id);
            Err(TurnError::NoRoom(SharedError::explained(text, problem)))
        }
        // The run still completes. The next run of the session finds the result in the run's record.
        Err(problem @ (QueueError::TooLarge { .. } | QueueError::Refused(_))) => {
            warn!(run_id = run.run_id, "run result not sent to its session: {problem}");
            Ok(())
        }
        Err(problem @ QueueError::Unavailable(_)) => Err(problem.into()),
    }
}

/// Limit in bytes on each text of a job that has to fit into `max_payload`. One byte takes up to six bytes in JSON.
fn max_text(max_payload: usize) -> usize {
    history::MAX_TEXT.min(max_payload / 16)
}

/// Returns a session's history, followed by the queries and outputs of completed runs that are not in it yet.
pub(super) async fn history(store: &dyn Store, session_id: &str) -> Result<Vec<Entry>, StoreError> {
    let origin_session = Some(session_id.to_owned());
    let query = RunQuery { origin_session, status: Some(RunStatus::Completed), by_end: true, ..RunQuery::default() };
    let (session, runs) =
        futures::try_join!(store.session(session_id), store.runs(RunQuery { limit: MAX_RECENT_RUNS, ..query }))?;
    let mut entries = session.as_ref().map(|session| session.history.to_vec()).unwrap_or_default();
    let missing = runs.iter().rev().filter(|run| run.notify.is_none() && !has_entries(run, session.as_ref()));
    let added: Vec<Entry> = missing.flat_map(entries_of_run).collect();
    entries.extend(added);
    Ok(entries)
}

/// True if the history has the run's entries, or had them: the history drops its oldest entries.
fn has_entries(run: &RunRecord, session: Option<&Session>) -> bool {
    let Some(session) = session else { return run.lane != run.run_id };
    let oldest = session.history.first().map(|entry| entry.at);
    let has_left = run.ended_at.zip(oldest).is_some_and(|(ended, oldest)| ended < oldest && session.history.len() > 1);
    run.lane != run.run_id || session.has_handled(&job_id(&run.run_id)) || has_left
}

fn entries_of_run(run: &RunRecord) -> [Entry; 2] {
    let at = run.ended_at.unwrap_or(run.created_at);
    let entry = |role, text: &str| Entry {
        role,
        text: excerpt::cut(text, history::MAX_TEXT).into_owned(),
        at,
        turn_id: job_id(&run.run_id),
        kind: None,
        metadata: Default::default(),
    };
    [entry(Role::User, &run.query), entry(Role::Assistant, run.output.as_deref().unwrap_or_default())]
}
