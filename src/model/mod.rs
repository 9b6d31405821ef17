//! Model calls. All go through [`Model`]: [`openai`] speaks the OpenAI-compatible protocol, [`offline`] is the
//! deterministic rule model; [`registry`] finds the one that an agent names, [`circuit`] stops asking one that is dead,
//! [`metered`] counts.
//! Retries are those of [`crate::http_client`].

pub mod circuit;
mod metered;
pub mod offline;
pub mod openai;
pub mod recorded;
pub mod registry;

pub use registry::Models;

use crate::agent::AgentConfig;
use crate::journal::Tokens;
use crate::knowledge::Hit;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;
use thiserror::Error;

/// Who speaks in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptRole {
    /// The engine.
    System,
    /// The user, or the input of a stage.
    User,
    /// The model.
    Assistant,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    /// Who speaks.
    pub role: PromptRole,
    /// The words.
    pub content: String,
}

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
    /// Sent on as `Idempotency-Key`.
    pub idempotency_key: String,
    /// What the prompt was made of, for the offline model, which reads no prompts.
    pub facts: Facts,
}

/// What a prompt was made of.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The agent that asks; its `rules` are the offline model's.
    pub agent: Option<Arc<AgentConfig>>,
    /// The user's message, or the stage's input.
    pub message: String,
    /// The turn's last SKILL or TOOL: its target and its result `{ok,…}`.
    pub last_action: Option<(String, Value)>,
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
    /// The text.
    pub content: String,
    /// The model that answered, as it names itself.
    pub model: String,
    /// What it used; zero when it does not say.
    pub tokens: Tokens,
    /// Attempts that it took.
    pub attempts: u32,
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
}

/// A language model, or what stands for one.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Asks once, with retries inside.
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError>;
}
