//! The policy: the limits of the operator and of the agent file. The settings begin it, and an agent file narrows it.

use crate::node_type::NodeType;
use std::collections::{BTreeMap, BTreeSet};
use types::allowed_secrets::{AllowedSecrets, SecretHosts};
use types::host_pattern::HostPattern;

/// The limits on decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The types of nodes. START and END are always allowed.
    pub node_types: BTreeSet<NodeType>,
    /// Each list allows hosts, and a host has to be in all lists. Without lists every host is allowed.
    pub allowed_hosts: Vec<Vec<HostPattern>>,
    /// The registered connectors; `None` if they are unknown.
    pub registered_connectors: Option<BTreeSet<String>>,
    /// The connectors that the agent may use; `None` for all.
    pub connectors: Option<BTreeSet<String>>,
    /// The registered workflows that the agent may run; `None` for all.
    pub workflows: Option<BTreeSet<String>>,
    /// The secrets of HTTP nodes, each with the hosts that may receive it.
    pub secrets: BTreeMap<String, SecretScope>,
    /// The known models; `None` if they are unknown.
    pub models: Option<BTreeSet<String>>,
    /// The most tokens of an answer to an LLM node.
    pub max_llm_tokens: Option<u64>,
    /// The most HTTP nodes of a plan, and the most HTTP calls of a run.
    pub max_http_calls: Option<u64>,
    /// The most HTTP calls in a minute. It limits runs; the validator has no clock.
    pub http_per_minute: Option<u64>,
}

/// The hosts that may receive a secret. The agent file and the settings both have to allow a host.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretScope {
    /// The hosts of the agent file.
    pub of_agent: Vec<HostPattern>,
    /// The hosts of the setting `secrets.allow`.
    pub of_settings: SecretHosts,
}

impl SecretScope {
    /// Why `host` may not receive the secret; `None` if it may.
    pub fn refusal(&self, host: &str) -> Option<String> {
        let of_agent = SecretHosts::Only(self.of_agent.clone());
        if !of_agent.covers(host) {
            return Some(format!("it is only for {of_agent}"));
        }
        let is_foreign = !self.of_settings.covers(host);
        is_foreign.then(|| format!("the setting `secrets.allow` binds it to {}", self.of_settings))
    }
}

impl Default for Policy {
    /// Allows everything except secrets.
    fn default() -> Self {
        Self {
            node_types: NodeType::ALL.into(),
            allowed_hosts: Vec::new(),
            registered_connectors: None,
            connectors: None,
            workflows: None,
            secrets: BTreeMap::new(),
            models: None,
            max_llm_tokens: None,
            max_http_calls: None,
            http_per_minute: None,
        }
    }
}

/// The limits in an agent file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Narrowing {
    /// The types of nodes; `None` for all.
    pub node_types: Option<BTreeSet<NodeType>>,
    /// The hosts; `None` for all.
    pub allowed_hosts: Option<Vec<HostPattern>>,
    /// The connectors; `None` for all.
    pub connectors: Option<BTreeSet<String>>,
    /// The registered workflows; `None` for all.
    pub workflows: Option<BTreeSet<String>>,
    /// The secrets with their hosts.
    pub secrets: BTreeMap<String, Vec<HostPattern>>,
}

impl Policy {
    /// Leaves the node types of the setting `decisions.restrict_node_types`.
    pub fn restricted(mut self) -> Self {
        self.node_types.retain(|kind| NodeType::RESTRICTED.contains(kind));
        self
    }

    /// The policy of one agent. It never allows more than `self`, except secrets. A secret has to be in the agent file and
    /// in `allowed`, which is the setting.
    pub fn narrowed(mut self, by: Narrowing, allowed: &AllowedSecrets) -> Self {
        if let Some(kinds) = by.node_types {
            self.node_types.retain(|kind| kinds.contains(kind));
        }
        self.allowed_hosts.extend(by.allowed_hosts);
        self.connectors = narrower(self.connectors, by.connectors);
        self.workflows = narrower(self.workflows, by.workflows);
        let secrets = by.secrets.into_iter().filter_map(|(name, of_agent)| {
            let of_settings = allowed.hosts(&name)?.clone();
            Some((name, SecretScope { of_agent, of_settings }))
        });
        self.secrets.extend(secrets);
        self
    }

    /// True if nodes may have this type.
    pub fn allows_type(&self, kind: NodeType) -> bool {
        kind.is_structural() || self.node_types.contains(&kind)
    }

    /// True if HTTP nodes may call this host.
    pub fn allows_host(&self, host: &str) -> bool {
        self.allowed_hosts.iter().all(|list| list.iter().any(|pattern| pattern.covers(host)))
    }

    /// True if HTTP nodes may send this secret to this host.
    pub fn allows_secret(&self, name: &str, host: &str) -> bool {
        self.secrets.get(name).is_some_and(|scope| scope.refusal(host).is_none())
    }
}

fn narrower(one: Option<BTreeSet<String>>, other: Option<BTreeSet<String>>) -> Option<BTreeSet<String>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.intersection(&other).cloned().collect()),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<HostPattern> {
        names.iter().map(|name| HostPattern::parse(name).unwrap()).collect()
    }

    #[test]
    fn an_agent_narrows_and_never_widens() {
        let operator = Policy { allowed_hosts: vec![hosts(&["*.example.com"])], ..Policy::default() }.restricted();
        let agent = Narrowing {
            node_types: Some([NodeType::Http, NodeType::Loop].into()),
            allowed_hosts: Some(hosts(&["a.example.com", "evil.com"])),
            connectors: Some(["sales".to_owned()].into()),
            secrets: [("A".to_owned(), hosts(&["a.example.com", "c.com"])), ("B".to_owned(), hosts(&["b.com"]))].into(),
            ..Narrowing::default()
        };
        let (allowed, _) = AllowedSecrets::read(&["A@a.example.com,b.com".to_owned()], false);
        let policy = operator.narrowed(agent, &allowed);
        assert!(policy.allows_type(NodeType::Http) && policy.allows_type(NodeType::End));
        assert!(!policy.allows_type(NodeType::Loop) && !policy.allows_type(NodeType::Llm));
        assert!(policy.allows_host("a.example.com"));
        assert!(!policy.allows_host("b.example.com") && !policy.allows_host("evil.com"));
        assert!(policy.allows_secret("A", "a.example.com") && !policy.allows_secret("A", "b.com"));
        assert!(!policy.allows_secret("B", "b.com") && !policy.allows_secret("A", "c.com"));
        assert!(policy.secrets["A"].refusal("c.com").unwrap().contains("`secrets.allow` binds it to `a.example.com`"));
        let other = Narrowing { connectors: Some(["other".to_owned()].into()), ..Narrowing::default() };
        let again = policy.narrowed(other, &AllowedSecrets::default());
        assert_eq!(again.connectors, Some(BTreeSet::new()));
    }
}
