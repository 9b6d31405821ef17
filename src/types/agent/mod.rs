//! The structure of an agent file. docs/agents.md describes it for authors.

pub mod coordinator;
pub mod schema;

use crate::action::{ActionKind, SYSTEM_OPERATIONS};
use crate::budget::Budget;
use crate::duration::{Lenient, lenient};
use crate::ids::Id;
use crate::model_names::ModelNames;
use crate::timer::MAX_TIMERS;
use coordinator::{CoordinatorConfig, Mode, SubagentConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A conversational agent's configuration. `turnwheel agents schema` prints these comments and the `schemars`
/// attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AgentConfig {
    /// Id of the agent. Messages name it as `agent_id`.
    #[schemars(with = "Id")]
    pub id: String,
    /// Display name of the agent.
    #[serde(default)]
    pub name: String,
    /// Tone of voice, in your own words.
    #[serde(default)]
    #[schemars(extend("examples" = ["calm, friendly"]))]
    pub tone: String,
    /// The model: a `[models.<name>]` of the settings, or `offline` for the rules of this file. In a list, the next
    /// model is called if the one before fails.
    #[serde(default)]
    pub model: ModelNames,
    /// Text that greets every new session.
    #[serde(default)]
    pub greeting: Option<String>,
    /// The procedure that the agent follows, in your own words; empty in a task agent.
    #[serde(default)]
    pub sop: String,
    /// Makes this a task agent, which serves workflows and takes no chat sessions.
    #[serde(default)]
    #[schemars(extend("pattern" = "\\S"))]
    pub system_prompt: Option<String>,
    /// Rules of style, limits and data handling.
    #[serde(default)]
    pub constraints: String,
    /// Intents of users (action_books), and the API or function that serves each.
    #[serde(default)]
    pub skills: Vec<Skill>,
    /// APIs, built-in functions and Rust functions that the agent may call directly.
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// Ids of the flows that the agent may route to.
    #[serde(default)]
    #[schemars(with = "Vec<Id>", extend("examples" = [["parallel_analysis"]]))]
    pub flows: Vec<String>,
    /// How long a flow waits for the user's answer before it is dropped; 24 h unless given. It must be shorter than the
    /// setting retention.turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "24h"))]
    pub flow_timeout: Option<Lenient>,
    /// The user leaves a waiting flow by sending one of these words as the whole message. Case, spaces and punctuation
    /// are ignored.
    #[serde(default = "default_cancel_words")]
    #[schemars(with = "Vec<schema::Word>")]
    pub cancel_words: Vec<String>,
    /// Follow-ups after silence of the user. Without any, the model takes them from `sop`.
    #[serde(default)]
    #[schemars(length(max = MAX_TIMERS))]
    pub timers: Vec<TimerConfig>,
    /// What happens when a human has to take over.
    #[serde(default)]
    pub handoff: HandoffConfig,
    /// How to handle messages that arrive while a turn runs: one turn each, or one turn for all.
    #[serde(default)]
    pub double_text: DoubleText,
    /// Whether to greet a session again after this file has changed.
    #[serde(default = "default_true")]
    pub regreet_on_change: bool,
    /// The most decisions that a turn may take before it is cancelled.
    #[serde(default = "default_max_iterations")]
    #[schemars(range(min = 1, max = 100))]
    pub max_iterations: u32,
    /// Text files from which the agent answers.
    #[serde(default)]
    pub knowledge: Option<KnowledgeConfig>,
    /// Token limits for prompts and answers; 0 is no limit.
    #[serde(default)]
    pub budget: Budget,
    /// The kind of decisions that the model makes: actions, or validated decisions.
    #[serde(default)]
    pub mode: Mode,
    /// Limits on the decisions of a coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<CoordinatorConfig>,
    /// The sub-agents of a coordinator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<SubagentConfig>,
    /// Rules of the offline model. The first rule whose conditions all hold decides.
    #[serde(default)]
    #[schemars(with = "Vec<schema::Rule>")]
    pub rules: Vec<Value>,
}

/// An intent and the API or Rust function that serves it. A Rust function is registered under the skill's id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Skill {
    /// Id of the skill: the target of a SKILL action. No tool may have the same id.
    #[schemars(with = "Id")]
    pub id: String,
    /// What it does. The model reads this.
    #[serde(default)]
    pub description: String,
    /// When it applies. The model reads this.
    #[serde(default)]
    pub condition: String,
    /// JSON Schema of the parameters.
    #[serde(default = "empty_object")]
    #[schemars(with = "schema::Params")]
    pub params: Value,
    /// The HTTP call to make.
    #[serde(default)]
    pub http: Option<HttpCall>,
}

/// A tool: an API, a built-in function, or a Rust function that is registered under the tool's id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, extend("not" = json!({
    "required": ["http", "builtin"], "properties": { "http": { "type": "object" }, "builtin": { "type": "string" } }
})))]
pub struct Tool {
    /// Id of the tool: the target of a TOOL action. No skill may have the same id.
    #[schemars(with = "Id")]
    pub id: String,
    /// What it does. The model reads this.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the parameters.
    #[serde(default = "empty_object")]
    #[schemars(with = "schema::Params")]
    pub params: Value,
    /// The HTTP call to make.
    #[serde(default)]
    pub http: Option<HttpCall>,
    /// Name of a built-in function, such as `now`.
    #[serde(default)]
    #[schemars(with = "Option<schema::Builtin>")]
    pub builtin: Option<String>,
}

/// The placeholders for facts of the session, which no param can shadow.
pub const SESSION_PLACEHOLDERS: [&str; 3] = ["session.id", "session.user_id", "session.channel"];

/// An HTTP call. `{name}` stands for a parameter, `{session.id}`, `{session.user_id}` and `{session.channel}` for the
/// session, `${NAME}` for an environment variable that the setting secrets.allow lists with the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HttpCall {
    /// The HTTP method.
    #[serde(default = "default_method")]
    #[schemars(with = "schema::Method")]
    pub method: String,
    /// The URL. Its path and query may contain parameters, its host may not.
    #[schemars(extend("examples" = ["https://api.example.com/orders/{order_id}"]))]
    pub url: String,
    /// Query parameters. A list repeats the name; a parameter without a value is omitted.
    #[serde(default)]
    pub query: BTreeMap<String, Value>,
    /// HTTP headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The JSON body. Without one, POST, PUT and PATCH send all parameters.
    #[serde(default)]
    pub body: Option<Value>,
    /// Timeout of one attempt; 10 s unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "10s"))]
    pub timeout: Option<Lenient>,
    /// Retries after the first attempt, on connection errors, timeouts, 429 and 5xx; 2 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = 2))]
    pub retries: Option<u32>,
}

/// A follow-up timer, defined in the agent file or found in its `sop` by the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, extend("anyOf" = json!([
    { "required": ["message"], "properties": { "message": { "type": "string", "pattern": "\\S" } } },
    { "required": ["action"], "properties": { "action": { "type": "object" } } },
])))]
pub struct TimerConfig {
    /// Name of the timer.
    #[serde(default)]
    pub name: String,
    /// Delay after the end of the turn that arms the timer.
    #[serde(with = "lenient")]
    #[schemars(with = "schema::Duration")]
    pub delay: Duration,
    /// Text to send when the timer fires.
    #[serde(default)]
    pub message: Option<String>,
    /// Action to execute when the timer fires. The model then decides how to continue.
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
    /// Call to the service desk's endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCall>,
    /// When a held session returns to the agent without a release; 24 h unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "24h"))]
    pub timeout: Option<Lenient>,
    /// When a person who has the conversation and does not reply to the user loses the claim; 10 min unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Duration>", extend("default" = "10m"))]
    pub claim_timeout: Option<Lenient>,
}

impl HandoffConfig {
    /// The configured mode, or its default: `hold` with an endpoint, `notify` without one.
    pub fn mode(&self) -> HandoffMode {
        self.mode.unwrap_or(if self.http.is_some() { HandoffMode::Hold } else { HandoffMode::Notify })
    }

    /// How long a handoff lasts without a release.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(Duration::from_secs(24 * 3600), |timeout| timeout.0)
    }

    /// How long a claim lasts while a user's message waits.
    pub fn claim_timeout(&self) -> Duration {
        self.claim_timeout.map_or(Duration::from_secs(600), |timeout| timeout.0)
    }
}

/// How a session continues after a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HandoffMode {
    /// Stays `transferred` until an operator releases it or the timeout passes.
    Hold,
    /// Becomes `ready` immediately.
    Notify,
}

/// How to handle messages that arrive while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DoubleText {
    /// Each message gets a turn of its own.
    #[default]
    Queue,
    /// All waiting messages share one turn.
    Merge,
}

/// Text files from which an agent answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KnowledgeConfig {
    /// Paths or patterns of Markdown and text files, relative to this file.
    #[serde(default)]
    #[schemars(with = "Vec<schema::Text>", extend("examples" = [["kb/*.md"]]))]
    pub files: Vec<String>,
}

impl AgentConfig {
    /// True for a task agent, which serves workflows and takes no chat sessions.
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

    /// How long a flow waits for the user's answer before it is dropped.
    pub fn flow_timeout(&self) -> Duration {
        self.flow_timeout.map_or(Duration::from_secs(24 * 3600), |timeout| timeout.0)
    }

    /// True if the whole message is one of the words that leave a waiting flow.
    pub fn is_cancel_word(&self, text: &str) -> bool {
        let text = normalized(text);
        !text.is_empty() && self.cancel_words.iter().any(|word| normalized(word) == text)
    }

    /// The configuration in the form of a plan, unchanged.
    pub fn as_plan(&self) -> Value {
        json!({
            "name": self.name, "tone": self.tone, "greeting": self.greeting, "sop": self.sop,
            "timers": self.timers, "constraints": self.constraints,
        })
    }
}

/// The letters and digits of a text in lower case. Two texts with the same result count as the same words.
pub fn normalized(text: &str) -> String {
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
