//! One revision of the graph that runs, as all of its nodes see it.

use super::failure::NodeFailure;
use crate::workflow::orchestration::stage_context::StageContext;
use base::config::SecretError;
use decisions::hosts;
use decisions::policy::Policy;
use definitions::agent::AgentRecord;
use definitions::workflow::graph::{GraphDefinition, GraphNode};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use types::allowed_secrets::SecretRefusal;

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

    /// True if the name stands for a secret in this node, also if its host may not receive the secret: then the request
    /// fails. A graph without a coordinator has all secrets of the operator; others have the secrets of the agent file.
    pub(super) fn is_secret(&self, here: &StageContext, node: &GraphNode, name: &str) -> bool {
        let url = node.spec.config.get("url").and_then(Value::as_str).unwrap_or_default();
        let (Ok(host), http) = (hosts::host(url), &here.services().http) else { return false };
        let is_foreign = |error| matches!(error, SecretError::Refused(SecretRefusal::ForeignHost { .. }));
        let is_known = || http.secret(name, &host).map_or_else(is_foreign, |_| true);
        self.policy.is_none_or(|policy| policy.secrets.contains_key(name)) && is_known()
    }

    /// The value of a secret that a request to `host` may carry. Both the agent file and the settings have to allow it.
    pub(super) fn secret(&self, here: &StageContext, name: &str, host: &str) -> Result<String, NodeFailure> {
        let scope = self.policy.and_then(|policy| policy.secrets.get(name));
        if let Some(refusal) = scope.and_then(|scope| scope.refusal(host)) {
            let problem = format!("the secret `${{{name}}}` may not be sent to `{host}`: {refusal}; call another host");
            return Err(NodeFailure::permanent("REFUSED", problem));
        }
        let value = here.services().http.secret(name, host);
        value.map_err(|refusal| NodeFailure::permanent("REFUSED", refusal.to_string()))
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
