//! The states of the nodes of a run whose outermost workflow is a graph, for the run's record.

use super::revised::RevisedGraph;
use crate::journal::Journal;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::graph::task::WAIT_UNTIL_KEY;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::node_type::NodeType;
use definitions::workflow::graph::{GraphLevel, GraphNode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use types::run::{NodeState, NodeStatus, RunRecord};
use types::timestamp::Timestamp;

/// The states of a run's nodes. Empty if the outermost workflow is no graph.
#[derive(Default)]
pub(crate) struct GraphProgress {
    nodes: Mutex<Option<Vec<NodeState>>>,
    revised: Mutex<Option<RevisedGraph>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GraphProgress {
    /// Begins with the nodes of the graph, or of its next revision. Nodes of the revision before keep their states.
    pub(super) fn begin(&self, level: &GraphLevel) {
        let mut nodes = lock(&self.nodes);
        let known = nodes.take().unwrap_or_default();
        let state = |node: &GraphNode| {
            let kept = known.iter().find(|state| state.node_id == node.id()).cloned();
            let kept = kept.filter(|state| state.kind == node.kind().as_str());
            kept.unwrap_or_else(|| NodeState::pending(node.id(), node.kind().as_str()))
        };
        *nodes = Some(level.nodes.iter().map(state).collect());
    }

    fn set(&self, node_id: &str, change: impl FnOnce(&mut NodeState)) {
        if let Some(state) = lock(&self.nodes).iter_mut().flatten().find(|state| state.node_id == node_id) {
            change(state);
        }
    }

    pub(super) fn started(&self, node_id: &str) {
        self.set(node_id, |state| state.status = NodeStatus::Running);
    }

    pub(super) fn skipped(&self, node_id: &str) {
        self.set(node_id, |state| state.status = NodeStatus::Skipped);
    }

    /// Notes the end of a node at `context`, which has had `attempts`. `error_code` is that of a node that a recovery has
    /// skipped.
    pub(super) fn completed(&self, context: &StageContext, node: &GraphNode, attempts: u32, error_code: Option<&str>) {
        let status = if error_code.is_some() { NodeStatus::Skipped } else { NodeStatus::Completed };
        let (ms, error_code) = (time_of(context, node, attempts), error_code.map(str::to_owned));
        self.set(node.id(), |state| {
            *state = NodeState { status, attempts, ms, error_code, ..state.clone() };
        });
    }

    /// Notes that a node has failed for good, or needs a replan.
    pub(super) fn failed(&self, context: &StageContext, node: &GraphNode, attempts: u32, error_code: Option<String>) {
        let ms = time_of(context, node, attempts);
        self.set(node.id(), |state| {
            *state = NodeState { status: NodeStatus::Failed, attempts, ms, error_code, ..state.clone() };
        });
    }

    /// Notes a failure that has ended the run.
    pub(super) fn ended_run(&self, context: &StageContext, node: &GraphNode, failure: &Failure) {
        if let Failure::Failed { failure, .. } = failure {
            self.failed(context, node, failure.attempts, error_code(&failure.cause));
        }
    }

    pub(in crate::workflow::orchestration) fn revise(&self, revised: RevisedGraph) {
        *lock(&self.revised) = Some(revised);
    }

    /// The graph after its last replan.
    pub(crate) fn revised(&self) -> Option<RevisedGraph> {
        lock(&self.revised).clone()
    }

    /// The states of the nodes.
    pub(crate) fn nodes(&self) -> Option<Vec<NodeState>> {
        lock(&self.nodes).clone()
    }

    /// The record of the run with the states of its nodes.
    pub(crate) fn in_record(&self, record: RunRecord) -> RunRecord {
        match lock(&self.nodes).clone() {
            None => record,
            Some(graph) => {
                let revision = Some(lock(&self.revised).as_ref().map_or(0, |revised| revised.number));
                RunRecord { graph: Some(graph), revision, ..record }
            }
        }
    }
}

/// The code at the beginning of a failure's cause.
pub(crate) fn error_code(cause: &str) -> Option<String> {
    let (code, _) = cause.split_once(": ")?;
    let is_code = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!code.is_empty() && code.chars().all(is_code)).then(|| code.to_owned())
}

/// The time from the node's first step to its last one, in milliseconds, with the time of a WAIT.
fn time_of(context: &StageContext, node: &GraphNode, attempts: u32) -> Option<u64> {
    let journals: Vec<Journal> = (1..=attempts).map(|attempt| context.attempt(attempt).journal()).collect();
    let times: Vec<_> = journals.iter().filter_map(Journal::recorded_times).collect();
    let waited = journals.iter().filter(|_| node.kind() == NodeType::Wait).filter_map(until);
    let from = times.iter().map(|(from, _)| *from).min()?;
    let to = times.iter().map(|(_, to)| *to).chain(waited).max()?;
    u64::try_from(from.until(to).as_millis()).ok()
}

/// The recorded end of a WAIT.
fn until(journal: &Journal) -> Option<Timestamp> {
    serde_json::from_value(journal.record_of(WAIT_UNTIL_KEY)?.output.clone()).ok()
}
