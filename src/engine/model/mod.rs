//! Model calls. The engine talks to every language model through the trait [`Model`].
//!
//! - [`message`] has the parts of a prompt. `control_tokens` neutralises control tokens in texts of users and tools.
//! - [`registry`] finds the model of an agent by name. The model is wrapped in layers: `budgeted` checks the token
//!   budgets, `chain` falls back to the agent's next model, `metered` counts calls, [`circuit`] is the circuit breaker.
//! - [`openai`] is the client for OpenAI-compatible servers. [`offline`] is the deterministic rule model. Retries are
//!   those of [`base::http_client`].
//! - [`delta`] carries the pieces of a streamed answer, and [`paced`] limits their rate for readers.
//! - `thoughts` removes the thoughts of a reasoning model from its answer, and `answer` reads an answer as JSON.
//! - [`recorded`] makes a model call a step of the journal. [`kept_prompt`] is its prompt, if prompts are kept.

pub(crate) mod answer;
pub(crate) mod budgeted;
mod chain;
pub mod circuit;
pub mod delta;
pub mod dialogue;
pub mod kept_prompt;
pub mod message;
mod metered;
pub mod offline;
pub mod openai;
pub mod paced;
pub mod recorded;
pub mod registry;
pub(crate) mod thoughts;

pub use delta::DeltaSink;
use dialogue::Dialogue;
pub use message::{ModelToolCall, PromptMessage, PromptRole, ToolSpec};
pub use registry::Models;

use crate::knowledge::Hit;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use thiserror::Error;
use types::agent::AgentConfig;
use types::budget::Limit;
use types::step::TokenUsage;

/// The JSON structure that an answer must have.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseSchema {
    /// Name of the schema, for example `decision`.
    pub name: Cow<'static, str>,
    /// Whether the server should enforce the schema strictly. False if the schema has free-form objects.
    pub strict: bool,
    /// JSON Schema. Shared, because most schemas are the same for every call.
    pub schema: Arc<Value>,
}

/// A request to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The prompt.
    pub messages: Arc<Vec<PromptMessage>>,
    /// The structure of the answer; `None` for plain text.
    pub schema: Option<ResponseSchema>,
    /// The tools that the model may call.
    pub tools: Arc<Vec<ToolSpec>>,
    /// Sent as the header `Idempotency-Key`.
    pub idempotency_key: String,
    /// The data behind the prompt, for the offline model, which does not read prompts.
    pub facts: Facts,
    /// Overrides of the model's settings.
    pub sampling: Sampling,
}

/// Settings of one request, instead of those of its model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// The most tokens of the answer.
    pub max_tokens: Option<u64>,
}

impl ModelRequest {
    /// A request for plain text, without tools.
    pub fn new(messages: impl Into<Arc<Vec<PromptMessage>>>) -> Self {
        Self {
            messages: messages.into(),
            schema: None,
            tools: Arc::default(),
            idempotency_key: String::new(),
            facts: Facts::default(),
            sampling: Sampling::default(),
        }
    }

    /// The same request for an answer with this structure.
    pub fn with_schema(self, schema: ResponseSchema) -> Self {
        Self { schema: Some(schema), ..self }
    }

    /// The same request with tools that the model may call.
    pub fn with_tools(self, tools: impl Into<Arc<Vec<ToolSpec>>>) -> Self {
        Self { tools: tools.into(), ..self }
    }

    /// The same request with the data behind the prompt.
    pub fn with_facts(self, facts: Facts) -> Self {
        Self { facts, ..self }
    }

    /// The same request with other settings than those of its model.
    pub fn with_sampling(self, sampling: Sampling) -> Self {
        Self { sampling, ..self }
    }

    /// The same request with this idempotency key.
    pub fn with_key(self, idempotency_key: impl Into<String>) -> Self {
        Self { idempotency_key: idempotency_key.into(), ..self }
    }
}

/// Target and result of a SKILL or TOOL action, or of a task agent's tool. The result has the form `{ok, …}`.
pub(crate) type ActionAnswer = (String, Value);

/// The data behind a prompt, which the offline model reads instead of the prompt.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The agent that makes the request; its `rules` are those of the offline model.
    pub agent: Option<Arc<AgentConfig>>,
    /// The user's message, or the input of the stage.
    pub message: String,
    /// Target and result of the turn's last SKILL or TOOL action, or of the task agent's last tool.
    pub last_action: Option<Arc<ActionAnswer>>,
    /// True in phase 1, in which the answer holds a plan next to the decision.
    pub plan: bool,
    /// The passages and the draft for a reply that is written from knowledge.
    pub grounds: Option<Arc<Grounds>>,
    /// The authoring dialogue in which the answer is a step, if the session is one.
    pub authoring: Option<Arc<Dialogue>>,
}

/// The basis of a reply that is written from knowledge.
#[derive(Clone, Debug, Default)]
pub struct Grounds {
    /// The reply that was decided without knowledge.
    pub decided: String,
    /// The passages that were found, best first.
    pub hits: Vec<Hit>,
}

/// The answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// The text. May be empty if there are `tool_calls`.
    pub content: String,
    /// The tool calls that the model asks for. Empty if the request offered no tools.
    pub tool_calls: Vec<ModelToolCall>,
    /// Server-specific fields of an answer with tool calls. The next request sends them back with the results.
    pub extra: Map<String, Value>,
    /// The model that answered, as the server names it.
    pub model: String,
    /// Name of the model in the settings, filled in by [`Models`].
    pub name: Option<String>,
    /// Id of the task agent whose daily budget the tokens count against.
    pub charged: Option<String>,
    /// Tokens used; zero if the server does not report them.
    pub tokens: TokenUsage,
    /// Number of attempts, retries included.
    pub attempts: u32,
}

impl ModelReply {
    /// An answer with this text, made in one attempt, with no token count.
    pub fn text(content: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            tool_calls: Vec::new(),
            extra: Map::new(),
            model: model.into(),
            name: None,
            charged: None,
            tokens: TokenUsage::default(),
            attempts: 1,
        }
    }
}

/// The reason for which a model call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    /// The model failed in all attempts, or its circuit is open (then `attempts` is 0).
    #[error("model `{model}` is unavailable after {attempts} attempts: {problem}")]
    Unavailable {
        /// Name of the model in the settings.
        model: String,
        /// Number of attempts.
        attempts: u32,
        /// The last failure.
        problem: String,
    },
    /// The server refused the request. A retry would not help.
    #[error("model `{model}` refused the request: {problem}")]
    Refused {
        /// Name of the model in the settings.
        model: String,
        /// The message of the server.
        problem: String,
    },
    /// The settings have no model of this name.
    #[error("there is no model `{0}`; add [models.{0}] to the settings, or use `offline`")]
    Unknown(String),
    /// All models of an agent failed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    All(Vec<ModelError>),
    /// No call was made, because a token budget is spent.
    #[error("the {limit} budget of agent `{agent}` is spent: {used} of {most} tokens")]
    Spent {
        /// The budget that is spent.
        limit: Limit,
        /// Id of the agent whose budget it is.
        agent: String,
        /// Tokens used of it.
        used: u64,
        /// Size of the budget in tokens.
        most: u64,
    },
    /// The model did not answer within the time that its caller has for it.
    #[error("no answer within {seconds} s")]
    Late {
        /// The time of the caller.
        seconds: u32,
    },
}

impl ModelError {
    /// Combines the failures of several models. A single failure stays as it is.
    pub(crate) fn combine(mut failures: Vec<Self>) -> Self {
        match failures.len() {
            1 => failures.remove(0),
            _ => Self::All(failures),
        }
    }

    /// Total number of attempts.
    pub fn attempts(&self) -> u32 {
        match self {
            Self::Unavailable { attempts, .. } => *attempts,
            Self::Refused { .. } | Self::Late { .. } => 1,
            Self::Unknown(_) | Self::Spent { .. } => 0,
            Self::All(failures) => failures.iter().map(Self::attempts).sum(),
        }
    }
}

/// A language model, or a substitute for one.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Makes one call, including its retries, and returns the complete answer.
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError>;

    /// Makes one call, including its retries, and sends the text to `deltas` in pieces as they arrive. The pieces
    /// together are the text of the answer, with secrets masked as in the answer. If a retry follows after the first
    /// piece, the stream starts again ([`DeltaSink::restart`]).
    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let reply = self.complete(request).await?;
        deltas.whole(&reply.content);
        Ok(reply)
    }
}
