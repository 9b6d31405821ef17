//! A run in a lane of its own as a part of its session's conversation: its query and its output enter the session's history.
//!
//! Only the holder of the session's lane may write the history. So a run that has its output publishes a `resume` job onto
//! that lane, `resume-<run_id>`, and the job's turn adds both entries: in the order of the lane, durably, and once, since the
//! job's id is the same however often the run is repeated. A run that begins before that turn reads the missing entries from
//! the runs' records.

use crate::execution::{Services, TurnError};
use crate::journal::Guard;
use serde_json::{Map, json};
use storage::queue::{Publish, QueueError};
use storage::store::{Store, StoreError};
use tracing::warn;
use types::job::{Job, JobBody};
use types::run::{RunQuery, RunRecord, RunStatus};
use types::session::{Entry, Role, Session, history};

/// How many of a session's runs may have ended without being in its history yet.
const RECENT: usize = 20;

/// The id of the job that tells a session of its run.
fn job_id(run_id: &str) -> String {
    format!("resume-{run_id}")
}

/// True for the job that tells a session of a run: the one job but a user's message that a session may begin with.
pub(crate) fn is_notice(job: &Job) -> bool {
    matches!(&job.body, JobBody::Resume { run_id, .. } if job.job_id == job_id(run_id))
}

/// Publishes the job that tells the session of a run with its output. Durable on return. The run's steps are durable by then, so a
/// repeat of the run comes to the same output.
pub(super) async fn tell(services: &Services, guard: &Guard, run: &RunRecord, output: &str) -> Result<(), TurnError> {
    let Some(session_id) = run.origin_session.clone().filter(|session_id| *session_id != run.run_id) else {
        return Ok(());
    };
    if !guard.holds().await? {
        return Err(TurnError::Lost);
    }
    let most = most_text(services.queue.max_payload());
    let outcome = json!({
        "status": RunStatus::Completed.as_str(),
        "workflow_id": run.workflow_id,
        "query": history::cut(&run.query, most),
        "output": history::cut(output, most),
        "channel": run.channel,
        "user_id": run.user_id,
    });
    let body = JobBody::Resume { run_id: run.run_id.clone(), outcome };
    let job = Job { session_id: session_id.clone(), job_id: job_id(&run.run_id), body };
    let msg_id = Some(format!("{session_id}:{}", job.job_id));
    let publish = Publish { session_id: session_id.clone(), msg_id, payload: job.encode() };
    match services.queue.publish(publish).await {
        Ok(_) => Ok(()),
        // The run ends once the session's worker has made room in its lane.
        Err(problem @ QueueError::Full(_)) => {
            Err(TurnError::NoRoom(format!("the run cannot enter the history of session `{session_id}`: {problem}")))
        }
        // The run has its output all the same; the next run of the session still finds it by its record.
        Err(problem @ (QueueError::TooLarge { .. } | QueueError::Refused(_))) => {
            warn!(run_id = run.run_id, "the run does not enter the history of its session: {problem}");
            Ok(())
        }
        Err(problem @ QueueError::Unavailable(_)) => Err(problem.into()),
    }
}

/// The most bytes of each text of a job that has to fit into `max_payload`. In JSON a byte may take six.
fn most_text(max_payload: usize) -> usize {
    history::MAX_TEXT.min(max_payload / 16)
}

/// A session's conversation, with the queries and outputs of completed runs that its history does not have yet.
pub(super) async fn history(store: &dyn Store, session_id: &str) -> Result<Vec<Entry>, StoreError> {
    let origin_session = Some(session_id.to_owned());
    let query = RunQuery { origin_session, status: Some(RunStatus::Completed), by_end: true, ..RunQuery::default() };
    let (session, runs) =
        futures::try_join!(store.session(session_id), store.runs(RunQuery { limit: RECENT, ..query }))?;
    let mut entries = session.as_ref().map(|session| session.history.to_vec()).unwrap_or_default();
    let missing = runs.iter().rev().filter(|run| !is_told(run, session.as_ref()));
    let told: Vec<Entry> = missing.flat_map(of_run).collect();
    entries.extend(told);
    Ok(entries)
}

/// True when the history has the run, or has had it: entries older than its oldest one have left it.
fn is_told(run: &RunRecord, session: Option<&Session>) -> bool {
    let Some(session) = session else { return run.lane != run.run_id };
    let oldest = session.history.first().map(|entry| entry.at);
    let has_left = run.ended_at.zip(oldest).is_some_and(|(ended, oldest)| ended < oldest && session.history.len() > 1);
    run.lane != run.run_id || session.has_handled(&job_id(&run.run_id)) || has_left
}

fn of_run(run: &RunRecord) -> [Entry; 2] {
    let at = run.ended_at.unwrap_or(run.created_at);
    let entry = |role, text: &str| Entry {
        role,
        text: history::cut(text, history::MAX_TEXT).into_owned(),
        at,
        turn_id: job_id(&run.run_id),
        kind: None,
        metadata: Map::new(),
    };
    [entry(Role::User, &run.query), entry(Role::Assistant, run.output.as_deref().unwrap_or_default())]
}
