//! Model calls. All go through [`Model`]: [`openai`] speaks the OpenAI-compatible protocol, [`offline`] is the
//! deterministic rule model; [`registry`] finds what an agent [`names`], a `chain` of several where it names several, as far as
//! its budget lasts (`budgeted`); [`circuit`] stops asking one that is dead, [`metered`] counts. `answer` reads structures, `thoughts` takes out how a model came to its answer,
//! `control_tokens` are broken up in what users and tools say, [`message`] is what prompts are made of, [`delta`] carries the pieces of an answer, [`paced`] to readers.
//! Retries are those of [`base::http_client`].

pub(crate) mod answer;
pub mod budgeted;
mod chain;
pub mod circuit;
pub mod delta;
pub mod message;
mod metered;
pub mod offline;
pub mod openai;
pub mod paced;
pub mod recorded;
pub mod registry;
pub(crate) mod thoughts;

pub use delta::DeltaSink;
pub use message::{PromptMessage, PromptRole, ToolCall, ToolSpec};
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
use types::step::Tokens;

/// The structure that an answer must have (CONTRACT.md, "Model calls").
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseSchema {
    /// Such as `decision`.
    pub name: Cow<'static, str>,
    /// False where the schema holds free-form objects.
    pub strict: bool,
    /// JSON Schema; most are the same for every call.
    pub schema: Arc<Value>,
}

/// A question to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The prompt.
    pub messages: Arc<Vec<PromptMessage>>,
    /// The structure wanted; `None` for plain text.
    pub schema: Option<ResponseSchema>,
    /// What it may call.
    pub tools: Arc<Vec<ToolSpec>>,
    /// Sent on as `Idempotency-Key`.
    pub idempotency_key: String,
    /// What the prompt was made of, for the offline model, which reads no prompts.
    pub facts: Facts,
}

impl ModelRequest {
    /// A question for plain text, without tools.
    pub fn new(messages: impl Into<Arc<Vec<PromptMessage>>>) -> Self {
        Self {
            messages: messages.into(),
            schema: None,
            tools: Arc::default(),
            idempotency_key: String::new(),
            facts: Facts::default(),
        }
    }

    /// The same for an answer of this structure.
    pub fn with_schema(self, schema: ResponseSchema) -> Self {
        Self { schema: Some(schema), ..self }
    }

    /// The same with tools that the model may call.
    pub fn with_tools(self, tools: impl Into<Arc<Vec<ToolSpec>>>) -> Self {
        Self { tools: tools.into(), ..self }
    }

    /// The same with what the prompt was made of.
    pub fn with_facts(self, facts: Facts) -> Self {
        Self { facts, ..self }
    }

    /// The same under this key.
    pub fn with_key(self, idempotency_key: impl Into<String>) -> Self {
        Self { idempotency_key: idempotency_key.into(), ..self }
    }
}

/// A SKILL's, TOOL's or tool's target, and its result `{ok,…}`.
pub type ActionAnswer = (String, Value);

/// What a prompt was made of.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The agent that asks; its `rules` are the offline model's.
    pub agent: Option<Arc<AgentConfig>>,
    /// The user's message, or the stage's input.
    pub message: String,
    /// What the turn's last SKILL or TOOL, or a task agent's last tool, answered.
    pub last_action: Option<Arc<ActionAnswer>>,
    /// True for phase 1, whose answer holds a plan beside the decision.
    pub plan: bool,
    /// Where a reply is to be written from knowledge: what it is written from.
    pub grounds: Option<Arc<Grounds>>,
}

/// What a reply is written from.
#[derive(Clone, Debug, Default)]
pub struct Grounds {
    /// The reply that was decided on without knowledge.
    pub decided: String,
    /// What the agent's knowledge says, the best first.
    pub hits: Vec<Hit>,
}

/// A model's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// The text; may be empty beside `tool_calls`.
    pub content: String,
    /// What it wants called; none unless tools were offered.
    pub tool_calls: Vec<ToolCall>,
    /// The model's own fields of an answer that calls tools. The next request sends them back with the results.
    pub extra: Map<String, Value>,
    /// The model that answered, as it names itself.
    pub model: String,
    /// Its name in the settings; [`Models`] says it.
    pub name: Option<String>,
    /// The task agent whose day the tokens count against.
    pub charged: Option<String>,
    /// What it used; zero when it does not say.
    pub tokens: Tokens,
    /// Attempts that it took.
    pub attempts: u32,
}

impl ModelReply {
    /// A text, at the first attempt, of which no tokens are known.
    pub fn text(content: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            tool_calls: Vec::new(),
            extra: Map::new(),
            model: model.into(),
            name: None,
            charged: None,
            tokens: Tokens::default(),
            attempts: 1,
        }
    }
}

/// Why a model did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    /// After all retries.
    #[error("model `{model}` is unavailable after {attempts} attempts: {problem}")]
    Unavailable {
        /// Its name in the settings.
        model: String,
        /// How often it was asked.
        attempts: u32,
        /// The last failure.
        problem: String,
    },
    /// It refused the question; repeating it is of no use.
    #[error("model `{model}` refused the request: {problem}")]
    Refused {
        /// Its name in the settings.
        model: String,
        /// What it said.
        problem: String,
    },
    /// The settings have no such model.
    #[error("there is no model `{0}`; add [models.{0}] to the settings, or use `offline`")]
    Unknown(String),
    /// None of several answered; each says why.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    All(Vec<ModelError>),
    /// Nobody was asked: there are no tokens left for it.
    #[error("the {limit} budget of agent `{agent}` is spent: {used} of {most} tokens")]
    Spent {
        /// Which budget.
        limit: Limit,
        /// Whose.
        agent: String,
        /// What has been used of it.
        used: u64,
        /// How much it is.
        most: u64,
    },
}

impl ModelError {
    /// Of several models, none of which answered.
    pub fn of_all(mut failures: Vec<Self>) -> Self {
        match failures.len() {
            1 => failures.remove(0),
            _ => Self::All(failures),
        }
    }

    /// How often a model was asked.
    pub fn attempts(&self) -> u32 {
        match self {
            Self::Unavailable { attempts, .. } => *attempts,
            Self::Refused { .. } => 1,
            Self::Unknown(_) | Self::Spent { .. } => 0,
            Self::All(failures) => failures.iter().map(Self::attempts).sum(),
        }
    }
}

/// A language model, or what stands for one.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Asks once, with retries inside.
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError>;

    /// Asks once, with retries inside, and hands on the text in pieces as it comes. Together they are the answer's text, in
    /// which secrets are masked as in the answer. A retry after the first piece begins anew ([`DeltaSink::restart`]).
    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let reply = self.complete(request).await?;
        deltas.whole(&reply.content);
        Ok(reply)
    }
}
