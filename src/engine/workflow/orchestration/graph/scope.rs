//! One revision of the graph that runs, as all of its nodes see it.

use crate::workflow::orchestration::stage_context::StageContext;
use decisions::hosts;
use decisions::policy::Policy;
use definitions::agent::AgentRecord;
use definitions::workflow::graph::{GraphDefinition, GraphNode};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The recoveries of a run.
pub(super) const MAX_RECOVERIES: usize = 10;

/// A revision of the graph that runs.
pub(super) struct GraphRun<'g> {
    /// Id of the workflow.
    pub(super) workflow_id: &'g str,
    pub(super) graph: &'g GraphDefinition,
    /// How many nodes of a level run concurrently.
    pub(super) most: usize,
    /// The place of the graph.
    pub(super) home: &'g StageContext,
    /// The number of the replan that made this revision; 0 for the graph with which the run started.
    pub(super) revision: u32,
    /// The recoveries of all revisions.
    pub(super) recoveries: &'g RecoveryCount,
    /// The limits of the settings and of the agent file, for a graph with a coordinator, which may change its nodes. The
    /// nodes of other graphs are the operator's own.
    pub(super) policy: Option<&'g Policy>,
}

impl GraphRun<'_> {
    /// The agent that the graph names as its coordinator.
    pub(super) fn coordinator(&self, here: &StageContext) -> Option<Arc<AgentRecord>> {
        here.run().resolved.agent(self.graph.coordinator.as_deref()?).cloned()
    }

    /// The limits of a graph with a coordinator.
    pub(super) fn policy(context: &StageContext, graph: &GraphDefinition) -> Option<Policy> {
        let coordinator = context.run().resolved.agent(graph.coordinator.as_deref()?);
        // Without its agent the graph has the limits of the settings, and no secret.
        Some(context.services().decisions.world(coordinator.map(|agent| agent.config.as_ref())).policy)
    }

    /// True if the name stands for a secret that the node may send. The nodes of a graph without a coordinator may send all
    /// secrets that the operator allows; those of others the secrets of the agent file, each to its hosts.
    pub(super) fn is_secret(&self, here: &StageContext, node: &GraphNode, name: &str) -> bool {
        let is_allowed = self.policy.is_none_or(|policy| {
            let url = node.spec.config.get("url").and_then(Value::as_str).unwrap_or_default();
            hosts::host(url).is_ok_and(|host| policy.allows_secret(name, &host))
        });
        is_allowed && here.services().http.secret(name).is_ok()
    }
}

/// Counts the recoveries of a run: the recorded ones and those in flight.
#[derive(Default)]
pub(super) struct RecoveryCount(Mutex<BTreeSet<String>>);

impl RecoveryCount {
    /// Begins the recovery whose verdict has this key in the journal of `home`. Returns false if the run has had all
    /// its recoveries before. A recovery that is recorded begins again in every repeat of the run.
    pub(super) fn begin(&self, home: &StageContext, key: &str) -> bool {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        begun.extend(home.journal().recorded_keys().into_iter().filter(|key| is_verdict(key)));
        begun.contains(key) || begun.len() < MAX_RECOVERIES && begun.insert(key.to_owned())
    }
}

/// True for the key of the step that holds the verdict of a recovery.
fn is_verdict(key: &str) -> bool {
    let parent = key.strip_suffix("/judge").and_then(|key| key.rsplit('/').next());
    parent.is_some_and(|parent| parent.starts_with("recover["))
}
