//! The world of a coordinator's decisions: the limits of the settings and of the agent file, and its sub-agents. The
//! caller adds the workflows.

use crate::workflow::condition::Condition;
use crate::workflow::definition::WorkflowRecord;
use base::config::Settings;
use decisions::node_type::NodeType;
use decisions::policy::{Narrowing, Policy};
use decisions::world::{Snapshot, SubagentFacts, WorkflowFacts, WorkflowStatus};
use types::agent::AgentConfig;
use types::agent::coordinator::{CoordinatorConfig, SubagentConfig};
use types::allowed_secrets::AllowedSecrets;
use types::host_pattern::HostPattern;

/// The limits of the settings on decisions.
#[derive(Clone, Debug)]
pub struct DecisionLimits {
    policy: Policy,
    /// The setting `secrets.allow`.
    secrets: AllowedSecrets,
}

impl DecisionLimits {
    /// The limits of the settings. `models` are the known models besides `default` and `offline`.
    pub fn new(settings: &Settings, models: &[String]) -> Self {
        Self { policy: policy(settings, models), secrets: settings.secrets.allowed() }
    }

    /// The world of an agent's decisions, without workflows. Without an agent only the settings limit decisions.
    pub fn world(&self, agent: Option<&AgentConfig>) -> Snapshot {
        let policy = self.policy.clone();
        let policy = match agent.and_then(|agent| agent.coordinator.as_ref()) {
            Some(coordinator) => policy.narrowed(narrowing(coordinator), &self.secrets),
            None => policy,
        };
        let mut world = Snapshot::new(policy, check_condition);
        let subagents = agent.into_iter().flat_map(|agent| &agent.subagents);
        world.subagents = subagents.map(|subagent| (subagent.kind.clone(), facts(subagent))).collect();
        world
    }
}

/// The facts about a stored workflow. A plan has its own nodes, edges and settings, another workflow its whole file.
pub fn workflow_facts(record: &WorkflowRecord, status: WorkflowStatus) -> WorkflowFacts {
    let document = || record.document.as_object().cloned().unwrap_or_default();
    WorkflowFacts {
        workflow_id: record.id().to_owned(),
        status,
        is_owned: record.owner_session.is_some(),
        definition: record.graph().map_or_else(document, |graph| graph.plan.clone()),
    }
}

/// Checks a condition in the grammar of workflow files.
fn check_condition(text: &str) -> Result<(), String> {
    Condition::parse(text).map(drop).map_err(|error| error.to_string())
}

/// The policy of the settings.
fn policy(settings: &Settings, models: &[String]) -> Policy {
    let limits = &settings.decisions;
    let limit = |most: u64| Some(most).filter(|most| *most > 0);
    let models = models.iter().map(String::as_str).chain(["default", "offline"]);
    let policy = Policy {
        allowed_hosts: if limits.allowed_hosts.is_empty() { Vec::new() } else { vec![hosts(&limits.allowed_hosts)] },
        registered_connectors: Some(settings.connectors.keys().cloned().collect()),
        models: Some(models.map(str::to_owned).collect()),
        max_llm_tokens: limit(limits.max_llm_tokens),
        max_http_calls: limit(limits.max_http_calls),
        http_per_minute: limit(limits.http_per_minute),
        ..Policy::default()
    };
    if limits.restrict_node_types { policy.restricted() } else { policy }
}

/// The limits of an agent file. The file was checked, so every name in it is legal.
fn narrowing(config: &CoordinatorConfig) -> Narrowing {
    let set = |names: &Option<Vec<String>>| names.as_ref().map(|names| names.iter().cloned().collect());
    let kinds = |names: &Vec<String>| names.iter().filter_map(|name| NodeType::parse(name)).collect();
    Narrowing {
        node_types: config.node_types.as_ref().map(kinds),
        allowed_hosts: config.allowed_hosts.as_deref().map(hosts),
        connectors: set(&config.connectors),
        workflows: set(&config.workflows),
        secrets: config.secrets.iter().map(|secret| (secret.name.clone(), hosts(&secret.hosts))).collect(),
    }
}

/// Patterns of hosts. Loading the settings or the file has refused illegal ones.
fn hosts(names: &[String]) -> Vec<HostPattern> {
    names.iter().filter_map(|host| HostPattern::parse(host).ok()).collect()
}

fn facts(subagent: &SubagentConfig) -> SubagentFacts {
    SubagentFacts { input: subagent.input.clone(), timeout: Some(subagent.timeout().as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use decisions::world::World;
    use serde_json::json;

    #[test]
    fn settings_and_agent_files_limit_together() {
        let mut settings = Settings::default();
        settings.decisions.allowed_hosts = vec!["*.example.com".into()];
        settings.decisions.max_llm_tokens = 100;
        settings.decisions.restrict_node_types = true;
        settings.secrets.allow = vec!["KEY@*.example.com".into()];
        let agent = json!({"id": "a", "sop": "x", "mode": "coordinator", "coordinator": {
            "node_types": ["HTTP", "LOOP"], "allowed_hosts": ["a.example.com", "b.com"],
            "secrets": [{"name": "KEY", "hosts": ["a.example.com", "b.com"]}, {"name": "OTHER", "hosts": ["a.example.com"]}]},
            "subagents": [{"type": "r", "runnable": "x", "timeout": "2m"}]});
        let agent: AgentConfig = serde_json::from_value(agent).unwrap();
        let world = DecisionLimits::new(&settings, &["fast".into()]).world(Some(&agent));
        let policy = world.policy();
        assert_eq!(policy.node_types, [NodeType::Http].into());
        assert!(
            policy.allows_host("a.example.com") && !policy.allows_host("b.com") && !policy.allows_host("c.example.com")
        );
        assert!(policy.allows_secret("KEY", "a.example.com") && !policy.allows_secret("KEY", "b.com"));
        assert!(!policy.allows_secret("OTHER", "a.example.com"));
        assert_eq!((policy.max_llm_tokens, policy.max_http_calls), (Some(100), None));
        assert_eq!(world.subagent("r").unwrap().timeout, Some(120.0));
        assert!(policy.models.as_ref().is_some_and(|models| models.contains("fast") && models.contains("default")));
        assert!(world.check_condition("{r0} > 5").is_ok() && world.check_condition("{r0} >= 5").is_err());
    }
}
