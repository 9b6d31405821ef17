//! The agent file's structure (CONTRACT.md, "Agent file").

use crate::config::duration::{Lenient, lenient};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// A conversational agent's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// Key of the agent.
    pub id: String,
    /// The name it goes by.
    #[serde(default)]
    pub name: String,
    /// Its tone.
    #[serde(default)]
    pub tone: String,
    /// A `[models.<name>]` of the settings, or `offline`.
    #[serde(default = "default_model")]
    pub model: String,
    /// Said once to every session.
    #[serde(default)]
    pub greeting: Option<String>,
    /// The procedure that it follows; empty in a task agent.
    #[serde(default)]
    pub sop: String,
    /// Present in a task agent, which serves workflows and takes no chat sessions.
    #[serde(default)]
    pub system_prompt: Option<String>,
    /// Rules of style, limits and data handling.
    #[serde(default)]
    pub constraints: String,
    /// Intents and the APIs that serve them (action_books).
    #[serde(default)]
    pub skills: Vec<Skill>,
    /// Tools called directly.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// FLOW targets that it may route to.
    #[serde(default)]
    pub flows: Vec<String>,
    /// Follow-ups; when empty, those that phase 1 extracts.
    #[serde(default)]
    pub timers: Vec<TimerConfig>,
    /// What happens on handoff.
    #[serde(default)]
    pub handoff: HandoffConfig,
    /// What happens to messages that arrive while a turn runs.
    #[serde(default)]
    pub double_text: DoubleText,
    /// Whether a changed configuration greets again (OP-E8).
    #[serde(default = "default_true")]
    pub regreet_on_change: bool,
    /// Decisions a turn may take (OP-E14).
    #[serde(default = "default_max_iterations")]
    pub max_iterations: u32,
    /// Files to answer from.
    #[serde(default)]
    pub knowledge: Option<KnowledgeConfig>,
    /// Rules of the offline model.
    #[serde(default)]
    pub rules: Vec<Value>,
}

/// One intent and the API that serves it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skill {
    /// The SKILL target.
    pub id: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// When it applies.
    #[serde(default)]
    pub condition: String,
    /// JSON Schema of its parameters.
    #[serde(default = "empty_object")]
    pub params: Value,
    /// The call.
    #[serde(default)]
    pub http: Option<HttpCall>,
}

/// A tool: an API, a builtin or a function registered in Rust under its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// The TOOL target.
    pub id: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its parameters.
    #[serde(default = "empty_object")]
    pub params: Value,
    /// The call.
    #[serde(default)]
    pub http: Option<HttpCall>,
    /// A function of the engine, such as `now`.
    #[serde(default)]
    pub builtin: Option<String>,
}

/// A templated HTTP call. `{name}` is filled from the params, `${NAME}` from the allowed secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpCall {
    /// The method; GET unless given.
    #[serde(default = "default_method")]
    pub method: String,
    /// The address.
    pub url: String,
    /// Query parameters.
    #[serde(default)]
    pub query: BTreeMap<String, Value>,
    /// Headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The JSON body; for methods with a body and none given, all params.
    #[serde(default)]
    pub body: Option<Value>,
    /// Limit of one attempt; 10 s unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Lenient>,
    /// Repeats after the first attempt; 2 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

/// A follow-up as the file (or phase 1) defines it (E-32).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerConfig {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// From the commit of the turn that arms it.
    #[serde(with = "lenient")]
    pub delay: Duration,
    /// Sent when it fires.
    #[serde(default)]
    pub message: Option<String>,
    /// Executed when it fires.
    #[serde(default)]
    pub action: Option<crate::action::Action>,
}

/// What a handoff does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandoffConfig {
    /// `hold` or `notify`; `hold` by default when `http` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<HandoffMode>,
    /// The service desk's endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCall>,
    /// When a held session comes back by itself; 24 h unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Lenient>,
}

impl HandoffConfig {
    /// The mode in force (OP-E11).
    pub fn mode(&self) -> HandoffMode {
        self.mode.unwrap_or(if self.http.is_some() { HandoffMode::Hold } else { HandoffMode::Notify })
    }

    /// When a held session comes back by itself.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(Duration::from_secs(24 * 3600), |timeout| timeout.0)
    }
}

/// See [`HandoffConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandoffMode {
    /// Stay `transferred` until released or timed out.
    Hold,
    /// `ready` at once.
    Notify,
}

/// What happens to messages that arrive while a turn runs (OP-X2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DoubleText {
    /// Each becomes a turn of its own.
    #[default]
    Queue,
    /// All of them become one turn.
    Merge,
}

/// Files that an agent may answer from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeConfig {
    /// Paths or globs, relative to the agent file.
    #[serde(default)]
    pub files: Vec<String>,
}

impl AgentConfig {
    /// True for an agent that serves workflows and takes no chat sessions.
    pub fn is_task_agent(&self) -> bool {
        self.system_prompt.is_some()
    }
}

fn default_model() -> String {
    "default".into()
}
fn default_true() -> bool {
    true
}
fn default_max_iterations() -> u32 {
    10
}
fn default_method() -> String {
    "GET".into()
}
fn empty_object() -> Value {
    Value::Object(Map::new())
}
