//! Runs of workflows, to be read.

use super::runs::{NewRun, StartedRun};
use crate::error::CommandError;
use engine::run::timeline;
use engine::workflow::Flows;
use engine::workflow::orchestration::TimelineEntry;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;
use types::ids;
use types::run::{RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::timestamp::Timestamp;

/// What a listing shows of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunSummary {
    /// Key of the run.
    pub run_id: String,
    /// The workflow.
    pub workflow_id: String,
    /// How far it has come.
    pub status: RunStatus,
    /// What it was asked.
    pub query: String,
    /// The session that asked for it, if one did.
    pub origin_session: Option<String>,
    /// Why it has no output.
    pub error: Option<RunFailure>,
    /// What it has used.
    pub usage: RunUsage,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was begun.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl From<RunRecord> for RunSummary {
    fn from(run: RunRecord) -> Self {
        Self {
            run_id: run.run_id,
            workflow_id: run.workflow_id,
            status: run.status,
            query: run.query,
            origin_session: run.origin_session,
            error: run.error,
            usage: run.usage,
            created_at: run.created_at,
            started_at: run.started_at,
            ended_at: run.ended_at,
        }
    }
}

/// A run, and what happened in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunDetails {
    /// The run.
    #[serde(flatten)]
    pub run: RunRecord,
    /// Its parts as far as they have come, in the order of the workflow.
    pub timeline: Vec<TimelineEntry>,
}

/// One run; 404 when there is none.
pub async fn load(store: &dyn Store, run_id: &str) -> Result<RunRecord, CommandError> {
    ids::check("run_id", run_id)?;
    store.run(run_id).await?.ok_or_else(|| CommandError::unknown_run(run_id))
}

/// Starts a new run that repeats `run_id` from a stage on.
pub async fn again(
    queue: &dyn Queue,
    store: &dyn Store,
    run_id: &str,
    from_stage: String,
) -> Result<StartedRun, CommandError> {
    let (from_run, from_stage) = (Some(run_id.to_owned()), Some(from_stage));
    super::runs::start_run(queue, store, NewRun { from_run, from_stage, ..NewRun::default() }).await
}

/// A run, and what happened in it so far.
pub async fn details(store: &Arc<dyn Store>, flows: &Flows, run_id: &str) -> Result<RunDetails, CommandError> {
    let run = load(store.as_ref(), run_id).await?;
    let timeline = timeline::of(store, flows, &run).await?;
    Ok(RunDetails { run, timeline })
}
