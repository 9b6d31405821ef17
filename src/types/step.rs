//! What the journal keeps of a step.

use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Tokens that a model call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// Of the prompt.
    pub prompt: u64,
    /// Of the answer.
    pub completion: u64,
}

/// One recorded step (CONTRACT.md, `steps`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepRecord {
    /// Path of the step within its turn, such as `0/decide`.
    pub key: String,
    /// `begin`, `plan`, `model`, `action`, `reply`, `flow`, …
    pub kind: String,
    /// What it called: a model's name, an action's target.
    #[serde(default)]
    pub target: String,
    /// md5 of the canonical JSON of the input.
    pub input_hash: String,
    /// The result.
    pub output: Value,
    /// False when the result is a failure.
    pub ok: bool,
    /// How long the operation took, in milliseconds.
    pub ms: u64,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Attempts that the operation took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The task agent whose day the tokens count against, where that has a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<String>,
    /// When it was recorded, by the worker's clock.
    pub at: Timestamp,
}
