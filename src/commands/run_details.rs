//! Reading runs of workflows.

use crate::error::{CommandError, ErrorKind};
use definitions::workflow::flowchart;
use engine::run::timeline::{self, Replayed};
use engine::workflow::Flows;
use engine::workflow::open_question::{OpenQuestion, open_questions};
use engine::workflow::orchestration::TimelineEntry;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storage::store::Store;
use types::ids;
use types::run::{NodeState, RunRecord, RunStatus};
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
    /// The open questions of a run in a lane of its own, in the order in which they were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<OpenQuestion>,
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
    let Replayed { timeline, graph, revision, .. } = timeline::load(store, flows, &run).await?;
    let questions = questions_of(store.as_ref(), &run).await?;
    let run = with_graph(run, graph, revision);
    Ok(RunDetails { run, questions, timeline })
}

/// The questions of a run that wait for an answer, in the order in which they were asked.
pub async fn questions_of(store: &dyn Store, run: &RunRecord) -> Result<Vec<OpenQuestion>, CommandError> {
    let asks = run.lane == run.run_id && matches!(run.status, RunStatus::Running | RunStatus::Waiting);
    if !asks {
        return Ok(Vec::new());
    }
    Ok(open_questions(&store.steps(&run.lane, &run.turn_id).await?))
}

/// The record with the nodes of a graph. The record has them from the end of a turn; in between, and for a run that was
/// ended without a replay of its journal, the recorded steps show them.
fn with_graph(run: RunRecord, graph: Option<Vec<NodeState>>, revision: Option<u32>) -> RunRecord {
    let keeps = run.graph.is_some() && matches!(run.status, RunStatus::Completed | RunStatus::Failed);
    match graph {
        Some(graph) if !keeps => RunRecord { graph: Some(graph), revision, ..run },
        _ => run,
    }
}

/// A Mermaid flowchart of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunDiagram {
    /// The flowchart of the workflow with which the run started, or of a graph after its last replan. The nodes of a graph
    /// have the classes `pending`, `running`, `completed`, `failed` and `skipped`.
    pub mermaid: String,
}

/// Draws the flowchart of a run. Fails with `no_steps` if its steps or definitions are no longer stored.
pub async fn diagram(store: &Arc<dyn Store>, flows: &Flows, run_id: &str) -> Result<RunDiagram, CommandError> {
    let run = load(store.as_ref(), run_id).await?;
    let Replayed { graph, revision, workflow, .. } = timeline::load(store, flows, &run).await?;
    let Some(workflow) = workflow else {
        let message = format!("the steps of run `{run_id}` have expired, or are not recorded yet");
        let hint = "`turnwheel workflows show --mermaid` draws a workflow without a run";
        return Err(CommandError::new(ErrorKind::Conflict, "no_steps", message, hint));
    };
    let run = with_graph(run, graph, revision);
    Ok(RunDiagram { mermaid: flowchart::mermaid_of_run(&workflow, &run.graph.unwrap_or_default()) })
}
