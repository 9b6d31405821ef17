//! Steps: the records of a turn's journal.

use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Tokens that a model call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the answer.
    pub completion: u64,
}

/// One recorded step, as stored in `steps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRecord {
    /// Path of the step within its turn, such as `0/decide`.
    pub key: String,
    /// The kind of step: `begin`, `plan`, `model`, `action`, `reply`, `flow`, …
    pub kind: String,
    /// The called model or the action's target.
    #[serde(default)]
    pub target: String,
    /// md5 of the canonical JSON of the step's input.
    pub input_hash: String,
    /// The recorded output. A replay returns it.
    pub output: Value,
    /// False if the output is a failure.
    pub ok: bool,
    /// Duration of the operation in milliseconds.
    pub ms: u64,
    /// The model that answered, for a model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tokens that the model call used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenUsage>,
    /// How many attempts the operation took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The task agent whose daily budget the tokens count against, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<String>,
    /// When the step was recorded, by the worker's clock.
    pub at: Timestamp,
    /// The compressed prompt of a model call, if prompts are kept. Only on the way into the store: a step that is read
    /// lacks it.
    #[serde(skip)]
    pub prompt: Option<Arc<[u8]>>,
}
