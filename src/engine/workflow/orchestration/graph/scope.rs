//! One revision of the graph that runs, as all of its nodes see it.

use crate::workflow::orchestration::stage_context::StageContext;
use definitions::agent::AgentRecord;
use definitions::workflow::graph::{GraphDefinition, GraphNode};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use types::agent::coordinator::CoordinatorConfig;
use types::host_pattern::HostPattern;
use url::Url;

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
}

impl GraphRun<'_> {
    /// The agent that the graph names as its coordinator.
    pub(super) fn coordinator(&self, here: &StageContext) -> Option<Arc<AgentRecord>> {
        here.run().resolved.agent(self.graph.coordinator.as_deref()?).cloned()
    }

    /// True if the name stands for a secret that the node may send. The nodes of a graph without a coordinator are the
    /// operator's own, and may use what the operator allows. A coordinator may change nodes, so its graph has the secrets of
    /// the agent file only, each for its hosts.
    pub(super) fn is_secret(&self, here: &StageContext, node: &GraphNode, name: &str) -> bool {
        let allowed = match &self.graph.coordinator {
            None => true,
            Some(_) => self.coordinator(here).is_some_and(|agent| {
                let url = node.spec.config.get("url").and_then(Value::as_str).unwrap_or_default();
                agent.config.coordinator.as_ref().is_some_and(|limits| covers(limits, name, url))
            }),
        };
        allowed && here.services().http.secret(name).is_ok()
    }
}

/// True if the agent file gives the secret to the host of the URL.
fn covers(limits: &CoordinatorConfig, name: &str, url: &str) -> bool {
    let secret = limits.secrets.iter().find(|secret| secret.name == name);
    let host = Url::parse(url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
    secret.zip(host).is_some_and(|(secret, host)| {
        secret.hosts.iter().filter_map(|pattern| HostPattern::parse(pattern).ok()).any(|pattern| pattern.covers(&host))
    })
}

/// Counts the recoveries of a run. Those that are recorded count, and those that have begun.
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
