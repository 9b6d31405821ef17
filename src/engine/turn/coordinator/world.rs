//! What a coordinator's decisions are judged by: its agent file.

use decisions::hosts::HostPattern;
use decisions::kind::DecisionType;
use decisions::node_type::NodeType;
use decisions::policy::{Narrowing, Policy};
use decisions::world::{Snapshot, SubagentFacts};
use definitions::workflow::condition::Condition;
use std::collections::BTreeSet;
use types::agent::AgentConfig;
use types::agent::coordinator::{CoordinatorConfig, SubagentConfig};

/// The types of decisions that a turn carries out.
pub(super) const AVAILABLE: [DecisionType; 4] =
    [DecisionType::RequestClarification, DecisionType::SpawnSubagent, DecisionType::Respond, DecisionType::Continue];

/// The errors of a decision that is valid, but that no turn carries out.
pub(super) fn unavailable(kind: DecisionType) -> Vec<String> {
    if AVAILABLE.contains(&kind) {
        return Vec::new();
    }
    let known = AVAILABLE.map(|kind| format!("`{kind}`")).join(", ");
    vec![format!("`decision_type` is `{kind}`, which conversations do not carry out yet; give one of {known}")]
}

/// The world of an agent's decisions.
pub(super) fn snapshot(agent: &AgentConfig) -> Snapshot {
    let check = |condition: &str| Condition::parse(condition).map(drop).map_err(|error| error.to_string());
    let narrowing = agent.coordinator.as_ref().map(narrowing).unwrap_or_default();
    let mut world = Snapshot::new(Policy::default().narrowed(narrowing, &[]), check);
    let subagents = agent.subagents.iter().map(|subagent| (subagent.kind.clone(), facts(subagent)));
    world.subagents = subagents.collect();
    world
}

fn facts(subagent: &SubagentConfig) -> SubagentFacts {
    SubagentFacts { input: subagent.input.clone(), timeout: Some(subagent.timeout().as_secs_f64()) }
}

/// The limits in the agent file. The file is checked, so every name in it is legal.
fn narrowing(config: &CoordinatorConfig) -> Narrowing {
    let set = |names: &Option<Vec<String>>| names.as_ref().map(|names| names.iter().cloned().collect::<BTreeSet<_>>());
    let hosts = |hosts: &[String]| hosts.iter().filter_map(|host| HostPattern::parse(host).ok()).collect::<Vec<_>>();
    let kind = |name: &String| NodeType::ALL.into_iter().find(|kind| kind.as_str() == name);
    Narrowing {
        node_types: config.node_types.as_ref().map(|names| names.iter().filter_map(kind).collect()),
        allowed_hosts: config.allowed_hosts.as_deref().map(hosts),
        connectors: set(&config.connectors),
        workflows: set(&config.workflows),
        secrets: config.secrets.iter().map(|secret| (secret.name.clone(), hosts(&secret.hosts))).collect(),
    }
}
