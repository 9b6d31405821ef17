//! Timelines of stored runs: replays a run's steps over the definitions with which it started.

use super::{StartRecord, step_reuse};
use crate::action::http::{HttpCaller, SecretFill};
use crate::action::tool::Tools;
use crate::execution::stored::StoredDefinitions;
use crate::journal::Journal;
use crate::model::Models;
use crate::prompt::Prompts;
use crate::workflow::Flows;
use crate::workflow::orchestration::graph::progress::{self, GraphProgress};
use crate::workflow::orchestration::resolved::{ResolveError, ResolvedDefinitions};
use crate::workflow::orchestration::timeline::{StageStatus, timeline};
use crate::workflow::orchestration::{RunServices, TimelineEntry};
use base::config::Settings;
use definitions::coordinator::DecisionLimits;
use definitions::workflow::definition::{Shape, Workflow};
use sandbox::Sandbox;
use std::sync::{Arc, LazyLock};
use storage::store::{Result, Store, StoreError};
use tracing::debug;
use types::run::{NodeState, NodeStatus, RunRecord};
use types::run_outcome::RunFailure;

/// Never sends a request, since only recorded steps are replayed. Shared, because a client is slow to build.
static HTTP: LazyLock<Option<HttpCaller>> = LazyLock::new(|| HttpCaller::new(SecretFill::none(), &[]).ok());

static PROMPTS: LazyLock<Arc<Prompts>> = LazyLock::new(|| Prompts::new(None).into());
static DECISIONS: LazyLock<Arc<DecisionLimits>> =
    LazyLock::new(|| DecisionLimits::new(&Settings::default(), &[]).into());

/// A run as its recorded steps show it.
#[derive(Default)]
pub struct Replayed {
    /// The stages that the run has started, in order.
    pub timeline: Vec<TimelineEntry>,
    /// For a graph: its nodes.
    pub graph: Option<Vec<NodeState>>,
    /// For a graph: the number of its last replan.
    pub revision: Option<u32>,
    /// The workflow as it started, or a graph after its last replan.
    pub workflow: Option<Arc<Workflow>>,
}

/// Replays a run. Empty if the run has not started, or if its steps or definitions no longer exist. `flows` are the flows
/// registered in Rust.
pub async fn load(store: &Arc<dyn Store>, flows: &Flows, run: &RunRecord) -> Result<Replayed> {
    if run.turn_id.is_empty() {
        return Ok(Replayed::default());
    }
    let steps = step_reuse::steps_of_run(store.steps(&run.lane, &run.turn_id).await?, &run.prefix);
    let (Some(start_record), Some(http)) = (StartRecord::from_steps(&steps, ""), HTTP.clone()) else {
        return Ok(Replayed::default());
    };
    let definitions = StoredDefinitions::new(Arc::clone(store));
    let resolved = match ResolvedDefinitions::load(&definitions, flows, &start_record.manifest).await {
        Ok(resolved) => resolved,
        Err(ResolveError::Unavailable(problem)) => return Err(StoreError::Unavailable(problem)),
        Err(error @ (ResolveError::Unfit(_) | ResolveError::Unknown(_) | ResolveError::Newer(_))) => {
            debug!(run_id = run.run_id, "no timeline, definitions not found: {error}");
            return Ok(Replayed::default());
        }
    };
    let root = Arc::clone(&resolved.root().workflow);
    // Nothing runs in a replay, and nothing is asked.
    let (sandbox, prompts, decisions) = (Arc::new(Sandbox::off()), Arc::clone(&PROMPTS), Arc::clone(&DECISIONS));
    let (models, tools, connectors) = (Models::offline(), Tools::default(), Arc::default());
    let services = RunServices { models, http, tools, sandbox, prompts, decisions, connectors };
    let journal = Journal::read_only(Arc::clone(store), &run.lane, &run.turn_id, steps);
    let params = run.params.clone().unwrap_or_default();
    let replayed = timeline(resolved, journal, services, start_record.input, start_record.request, params).await;
    let (mut timeline, progress) = replayed;
    let RunRecord { graph, revision, .. } = progress.in_record(run.clone());
    let mut graph = graph;
    if let Some(failure) = &run.error {
        timeline.iter_mut().for_each(|entry| note(entry, failure));
        graph.iter_mut().flatten().for_each(|node| note_node(node, failure));
    }
    Ok(Replayed { timeline, graph, revision, workflow: Some(revised(root, &progress)) })
}

/// The workflow with the graph after the last replan.
fn revised(root: Arc<Workflow>, progress: &GraphProgress) -> Arc<Workflow> {
    let (Shape::Graph(graph), Some(revised)) = (&root.shape, progress.revised()) else { return root };
    match graph.revised(revised.plan) {
        Ok(graph) => Arc::new(Workflow { shape: Shape::Graph(graph.into()), ..root.as_ref().clone() }),
        Err(_) => root,
    }
}

/// Marks the failed node.
fn note_node(node: &mut NodeState, failure: &RunFailure) {
    let at_node = failure.path.strip_prefix(&node.node_id);
    let at_node = at_node.is_some_and(|within| within.is_empty() || within.starts_with(['/', '[']));
    if node.status == NodeStatus::Running && at_node {
        (node.status, node.attempts) = (NodeStatus::Failed, failure.attempts);
        node.error_code = progress::error_code(&failure.cause);
    }
}

/// Marks the failed stage and the stages around it. A failure is not always a recorded step, so it comes from the
/// run's record.
fn note(entry: &mut TimelineEntry, failure: &RunFailure) {
    let Some(within) = failure.path.strip_prefix(&entry.path) else { return };
    if entry.status == StageStatus::Running && (within.is_empty() || within.starts_with(['/', '['])) {
        entry.status = StageStatus::Failed;
        entry.error = Some(failure.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_stage_that_failed_and_those_around_it_have_failed() {
        let failure = RunFailure { path: "outer[2]/all/verify".into(), cause: "no answer".into(), attempts: 1 };
        let noted = |path: &str, status: &str| {
            let mut entry: TimelineEntry = serde_json::from_value(json!({
                "path": path, "runnable": "r", "attempt": 1, "depth": 0, "status": status, "input": "", "output": null,
                "error": null, "started_at": null, "ended_at": null, "ms": null, "model": null,
                "tokens": {"prompt": 0, "completion": 0}, "model_calls": 0,
            }))
            .unwrap();
            note(&mut entry, &failure);
            entry.status
        };
        for around in ["outer", "outer[2]/all", "outer[2]/all/verify"] {
            assert_eq!(noted(around, "running"), StageStatus::Failed, "{around}");
        }
        for other in ["out", "outer[2]/all/verify2", "outer[2]/all/plan", "outer[1]/all"] {
            assert_eq!(noted(other, "running"), StageStatus::Running, "{other}");
        }
        assert_eq!(noted("outer[2]/all/verify", "completed"), StageStatus::Completed);
    }
}
