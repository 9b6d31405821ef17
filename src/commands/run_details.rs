//! Reading runs of workflows.

use crate::error::CommandError;
use engine::run::timeline;
use engine::workflow::Flows;
use engine::workflow::orchestration::TimelineEntry;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storage::store::Store;
use types::ids;
use types::run::{RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::timestamp::Timestamp;

/// A run in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunSummary {
    /// The id of the run.
    pub run_id: String,
    /// The id of the workflow.
    pub workflow_id: String,
    /// The status of the run.
    pub status: RunStatus,
    /// The query that the run was started with.
    pub query: String,
    /// The chat session that the run belongs to; null for none.
    pub origin_session: Option<String>,
    /// Why the run failed or was cancelled.
    pub error: Option<RunFailure>,
    /// The stages, model calls and tokens that the run has used.
    pub usage: RunUsage,
    /// When the run was requested.
    pub created_at: Timestamp,
    /// When a worker started the run.
    pub started_at: Option<Timestamp>,
    /// When the run ended.
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

/// A run with its timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunDetails {
    /// The record of the run.
    #[serde(flatten)]
    pub run: RunRecord,
    /// The stages that the run has reached, in the order of the workflow.
    pub timeline: Vec<TimelineEntry>,
}

/// Returns the record of a run. Fails with `unknown_run` when it does not exist.
pub async fn load(store: &dyn Store, run_id: &str) -> Result<RunRecord, CommandError> {
    ids::check("run_id", run_id)?;
    store.run(run_id).await?.ok_or_else(|| CommandError::unknown_run(run_id))
}

/// Returns a run with its timeline so far.
pub async fn details(store: &Arc<dyn Store>, flows: &Flows, run_id: &str) -> Result<RunDetails, CommandError> {
    let run = load(store.as_ref(), run_id).await?;
    let timeline = timeline::load(store, flows, &run).await?;
    Ok(RunDetails { run, timeline })
}
