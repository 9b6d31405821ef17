//! The agent file's structure (CONTRACT.md, "Agent file").

pub mod schema;

use crate::action::{ActionKind, SYSTEM_OPERATIONS};
use crate::budget::Budget;
use crate::duration::{Lenient, lenient};
use crate::model_names::ModelNames;
use crate::timer::MAX_TIMERS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A conversational agent's configuration. Its comments are what `turnwheel agents schema` prints, and so are the `schemars`
/// attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AgentConfig {
    /// Key of the agent: what messages name as `agent_id`.
    #[schemars(with = "schema::Id")]
    pub id: String,
    /// The name it goes by.
    #[serde(default)]
    pub name: String,
    /// Its tone.
    #[serde(default)]
    #[schemars(extend("examples" = ["calm, friendly"]))]
    pub tone: String,
    /// A `[models.<name>]` of the settings, or `offline`, the rules of this file; of several the next is asked where the one
    /// before does not answer.
    #[serde(default)]
    pub model: ModelNames,
    /// Said once to every session.
    #[serde(default)]
    pub greeting: Option<String>,
    /// The procedure that it follows, in your own words; empty in a task agent.
    #[serde(default)]
    pub sop: String,
    /// Makes it a task agent, which serves workflows and takes no chat sessions.
    #[serde(default)]
    #[schemars(extend("pattern" = "\\S"))]
    pub system_prompt: Option<String>,
    /// Rules of style, limits and data handling.
    #[serde(default)]
    pub constraints: String,
    /// Intents (action_books), and the API or function that serves each.
    #[serde(default)]
    pub skills: Vec<Skill>,
    /// What it may call directly: APIs, builtins, functions registered in Rust.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// Flows that it may route to.
    #[serde(default)]
    #[schemars(with = "Vec<schema::Id>", extend("examples" = [["parallel_analysis"]]))]
    pub flows: Vec<String>,
    /// How long a flow waits for the user's answer before it is forgotten; 24 h unless given, and at most nearly as long as
    /// the setting retention.turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "24h"))]
    pub flow_timeout: Option<Lenient>,
    /// With one of these words as a whole message the user leaves a flow that waits. Case, spaces and punctuation do not count.
    #[serde(default = "default_cancel_words")]
    #[schemars(with = "Vec<schema::Word>")]
    pub cancel_words: Vec<String>,
    /// Follow-ups after silence. Without any, those that the model finds in `sop`.
    #[serde(default)]
    #[schemars(length(max = MAX_TIMERS))]
    pub timers: Vec<TimerConfig>,
    /// What happens when a human has to take over.
    #[serde(default)]
    pub handoff: HandoffConfig,
    /// What becomes of messages that arrive while a turn runs: a turn each, or one turn for all.
    #[serde(default)]
    pub double_text: DoubleText,
    /// Whether a session that has been greeted is greeted again when this file has changed.
    #[serde(default = "default_true")]
    pub regreet_on_change: bool,
    /// Decisions that a turn may take before it is cancelled.
    #[serde(default = "default_max_iterations")]
    #[schemars(range(min = 1, max = 100))]
    pub max_iterations: u32,
    /// Files to answer from.
    #[serde(default)]
    pub knowledge: Option<KnowledgeConfig>,
    /// The most tokens that it may use, of prompts and answers; 0 is no limit.
    #[serde(default)]
    pub budget: Budget,
    /// What the offline model goes by: the first rule whose conditions all hold.
    #[serde(default)]
    #[schemars(with = "Vec<schema::Rule>")]
    pub rules: Vec<Value>,
}

/// One intent and what serves it: an API, or a function registered in Rust under its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Skill {
    /// The SKILL target; no tool may have the same.
    #[schemars(with = "schema::Id")]
    pub id: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// When it applies, for the model.
    #[serde(default)]
    pub condition: String,
    /// JSON Schema of its parameters.
    #[serde(default = "empty_object")]
    #[schemars(with = "schema::Params")]
    pub params: Value,
    /// The call.
    #[serde(default)]
    pub http: Option<HttpCall>,
}

/// A tool: an API, a builtin or a function registered in Rust under its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, extend("not" = json!({
    "required": ["http", "builtin"], "properties": { "http": { "type": "object" }, "builtin": { "type": "string" } }
})))]
pub struct Tool {
    /// The TOOL target; no skill may have the same.
    #[schemars(with = "schema::Id")]
    pub id: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its parameters.
    #[serde(default = "empty_object")]
    #[schemars(with = "schema::Params")]
    pub params: Value,
    /// The call.
    #[serde(default)]
    pub http: Option<HttpCall>,
    /// A function of the engine, such as `now`.
    #[serde(default)]
    #[schemars(with = "Option<schema::Builtin>")]
    pub builtin: Option<String>,
}

/// A call. `{name}` is filled from the parameters, `${NAME}` from an environment variable that the setting secrets.allow
/// lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HttpCall {
    /// The method.
    #[serde(default = "default_method")]
    #[schemars(with = "schema::Method")]
    pub method: String,
    /// The address; parameters may stand in its path and query, never in its host.
    #[schemars(extend("examples" = ["https://api.example.com/orders/{order_id}"]))]
    pub url: String,
    /// Query parameters. A list repeats the name; one without a value is left out.
    #[serde(default)]
    pub query: BTreeMap<String, Value>,
    /// Headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The JSON body. Without one, POST, PUT and PATCH send all parameters.
    #[serde(default)]
    pub body: Option<Value>,
    /// Limit of one attempt; 10 s unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "10s"))]
    pub timeout: Option<Lenient>,
    /// Repeats after the first attempt, on connection faults, timeouts, 429 and 5xx; 2 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = 2))]
    pub retries: Option<u32>,
}

/// A follow-up, defined by the file, or by the model that reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, extend("anyOf" = json!([
    { "required": ["message"], "properties": { "message": { "type": "string", "pattern": "\\S" } } },
    { "required": ["action"], "properties": { "action": { "type": "object" } } },
])))]
pub struct TimerConfig {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// From the end of the turn that arms it.
    #[serde(with = "lenient")]
    #[schemars(with = "schema::Duration")]
    pub delay: Duration,
    /// Sent when it fires.
    #[serde(default)]
    pub message: Option<String>,
    /// Executed when it fires; then the model decides how to go on.
    #[serde(default)]
    pub action: Option<crate::action::Action>,
}

/// What happens when a human has to take over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HandoffConfig {
    /// `hold`, the default with `http`, or `notify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<HandoffMode>,
    /// The service desk's endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCall>,
    /// When a held session comes back by itself; 24 h unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "24h"))]
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

/// What becomes of a session that a human has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HandoffMode {
    /// Stay `transferred` until released or timed out.
    Hold,
    /// `ready` at once.
    Notify,
}

/// What becomes of messages that arrive while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DoubleText {
    /// Each becomes a turn of its own.
    #[default]
    Queue,
    /// All of them become one turn.
    Merge,
}

/// Files that an agent may answer from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KnowledgeConfig {
    /// Paths or patterns of Markdown and text files, relative to this file.
    #[serde(default)]
    #[schemars(with = "Vec<schema::Text>", extend("examples" = [["kb/*.md"]]))]
    pub files: Vec<String>,
}

impl AgentConfig {
    /// True for an agent that serves workflows and takes no chat sessions.
    pub fn is_task_agent(&self) -> bool {
        self.system_prompt.is_some()
    }

    /// The targets that an action of this kind may name.
    pub fn targets(&self, kind: ActionKind) -> Vec<&str> {
        match kind {
            ActionKind::Skill => self.skills.iter().map(|skill| skill.id.as_str()).collect(),
            ActionKind::Tool => self.tools.iter().map(|tool| tool.id.as_str()).collect(),
            ActionKind::Flow => self.flows.iter().map(String::as_str).collect(),
            ActionKind::System => SYSTEM_OPERATIONS.to_vec(),
        }
    }

    /// How long a flow waits for the user's answer.
    pub fn flow_timeout(&self) -> Duration {
        self.flow_timeout.map_or(Duration::from_secs(24 * 3600), |timeout| timeout.0)
    }

    /// True for a message that says no more than that the user wants to leave a flow.
    pub fn is_cancel_word(&self, text: &str) -> bool {
        let text = bare(text);
        !text.is_empty() && self.cancel_words.iter().any(|word| bare(word) == text)
    }

    /// The configuration, taken over as it is, in the form of phase 1's plan.
    pub fn as_plan(&self) -> Value {
        json!({
            "name": self.name, "tone": self.tone, "greeting": self.greeting, "sop": self.sop,
            "timers": self.timers, "constraints": self.constraints,
        })
    }
}

/// The letters and digits of a text, in lower case: what counts where two are to be the same words.
pub fn bare(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn default_cancel_words() -> Vec<String> {
    ["取消", "退出", "cancel", "quit", "exit"].map(str::to_owned).to_vec()
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
