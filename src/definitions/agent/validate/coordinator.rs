//! Checks the fields of coordinators: what their decisions may use, and their sub-agents.

use super::{AgentChecker, call, question, quoted};
use decisions::node_type::NodeType;
use std::collections::BTreeSet;
use types::agent::coordinator::{CoordinatorConfig, Mode};
use types::host_pattern::HostPattern;

/// The types of nodes that a decision can name.
const NODE_TYPES: [NodeType; 8] = [
    NodeType::Llm,
    NodeType::Http,
    NodeType::Python,
    NodeType::Database,
    NodeType::Condition,
    NodeType::Loop,
    NodeType::Start,
    NodeType::End,
];

/// The problem of a name that is no connector, and its remedy.
pub(crate) fn unknown_connector(name: &str, known: &[String]) -> (String, String) {
    let question = question(name, known.iter().map(String::as_str));
    let hint = format!("{question} Add [connectors.{name}] to the settings, or name another");
    (format!("there is no connector `{name}`"), hint.trim_start().to_owned())
}

impl AgentChecker<'_> {
    pub(super) fn coordinator(&mut self) {
        let config = self.config;
        if config.mode != Mode::Coordinator {
            let given = [("coordinator", config.coordinator.is_some()), ("subagents", !config.subagents.is_empty())];
            for (field, _) in given.into_iter().filter(|(_, given)| *given) {
                self.report.warn(field, "has no effect", "add `mode: coordinator`, or remove it");
            }
        }
        if let Some(coordinator) = &config.coordinator {
            self.uses(coordinator);
        }
        self.subagents();
    }

    fn uses(&mut self, coordinator: &CoordinatorConfig) {
        for (at, name) in coordinator.node_types.iter().flatten().enumerate() {
            let known = NODE_TYPES.map(NodeType::as_str);
            if !known.contains(&name.as_str()) {
                let problem = format!("there is no node type `{name}`; known are {}", quoted(known.iter().copied()));
                let hint = question(name, known.iter().copied());
                self.report.error(format!("coordinator.node_types[{at}]"), problem, hint);
            }
        }
        for (at, host) in coordinator.allowed_hosts.iter().flatten().enumerate() {
            self.host(&format!("coordinator.allowed_hosts[{at}]"), host);
        }
        for (at, name) in coordinator.connectors.iter().flatten().enumerate() {
            if let Some(known) = self.context.connectors.filter(|known| !known.contains(name)) {
                let (problem, hint) = unknown_connector(name, known);
                self.report.warn(format!("coordinator.connectors[{at}]"), problem, hint);
            }
        }
        for (at, id) in coordinator.workflows.iter().flatten().enumerate() {
            self.id(&format!("coordinator.workflows[{at}]"), id);
        }
        for (at, secret) in coordinator.secrets.iter().enumerate() {
            let path = format!("coordinator.secrets[{at}]");
            let is_listed = self.secret(&secret.name, None).is_ok();
            if !is_listed {
                let problem = format!("`{}` is not in the setting secrets.allow", secret.name);
                self.report.warn(format!("{path}.name"), problem, "add it there, else the secret stays empty");
            }
            if secret.hosts.is_empty() {
                self.report.error(format!("{path}.hosts"), "is empty", "name the hosts that may receive the secret");
            }
            for (at, host) in secret.hosts.iter().enumerate() {
                let path = format!("{path}.hosts[{at}]");
                self.host(&path, host);
                // A subdomain stands for all subdomains of a pattern.
                if let Err(refusal) = self.secret(&secret.name, Some(&host.replacen('*', "any", 1)))
                    && is_listed
                {
                    self.report.warn(path, refusal.problem(), "add the host there, else the secret is not sent to it");
                }
            }
        }
    }

    fn host(&mut self, path: &str, host: &str) {
        if let Err(remedy) = HostPattern::parse(host) {
            self.report.error(path, format!("`{host}` is no host"), remedy);
        }
    }

    fn subagents(&mut self) {
        let mut seen = BTreeSet::new();
        for (at, subagent) in self.config.subagents.iter().enumerate() {
            let path = format!("subagents[{at}]");
            self.id(&format!("{path}.type"), &subagent.kind);
            if !seen.insert(&subagent.kind) {
                let problem = format!("`{}` is the type of another sub-agent", subagent.kind);
                self.report.error(format!("{path}.type"), problem, "give it another");
            }
            self.id(&format!("{path}.runnable"), &subagent.runnable);
            call::params(self, &format!("{path}.input"), &subagent.input);
            if subagent.timeout().is_zero() {
                let hint = "write the longest time for a task, such as `60s`";
                self.report.error(format!("{path}.timeout"), "is zero", hint);
            }
        }
    }
}
