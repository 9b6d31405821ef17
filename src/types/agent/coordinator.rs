//! The fields of an agent file for coordinator agents, which decide about workflows and sub-agents.

use super::schema;
use crate::duration::Lenient;
use crate::ids::Id;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The kind of decisions that the model of a chat agent makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Actions: skills, tools, flows and system operations.
    #[default]
    Actions,
    /// Validated decisions: replies, questions, plans, nodes and sub-agents.
    Coordinator,
}

/// Limits on the decisions of a coordinator. They narrow the settings `decisions.*`, and never widen them. An omitted
/// list narrows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CoordinatorConfig {
    /// The types of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = [["LLM", "HTTP"]]))]
    pub node_types: Option<Vec<String>>,
    /// The hosts that HTTP nodes may call; `*.example.com` covers the subdomains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = [["api.example.com"]]))]
    pub allowed_hosts: Option<Vec<String>>,
    /// The connectors that DATABASE nodes may use; `[]` allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connectors: Option<Vec<String>>,
    /// Registered workflows that it may run besides its session's own plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Id>>")]
    pub workflows: Option<Vec<String>>,
    /// Secrets for HTTP nodes, each with the hosts to which it may be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<BoundSecret>,
}

/// A secret, and the hosts to which it may be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BoundSecret {
    /// Name of the environment variable, which the setting secrets.allow lists with these hosts.
    pub name: String,
    /// The hosts, without ports; `*.example.com` covers the subdomains.
    pub hosts: Vec<String>,
}

/// A type of sub-agent, which serves a coordinator with tasks of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SubagentConfig {
    /// The name by which a decision names it.
    #[serde(rename = "type")]
    #[schemars(with = "Id")]
    pub kind: String,
    /// Id of the task agent, workflow or function that does the work.
    #[schemars(with = "Id")]
    pub runnable: String,
    /// Its purpose. The model reads this.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the task.
    #[serde(default = "super::empty_object")]
    #[schemars(with = "schema::Params")]
    pub input: Value,
    /// The longest time for a task; 60 s unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "60s"))]
    pub timeout: Option<Lenient>,
}

impl SubagentConfig {
    /// The longest time for a task.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(Duration::from_secs(60), |timeout| timeout.0)
    }
}
