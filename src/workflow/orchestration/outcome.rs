//! What comes of a run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a run has no output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunFailure {
    /// Where, such as `outer_loop[2]/parallel/verify`; empty for the run itself.
    pub path: String,
    /// What went wrong.
    pub cause: String,
    /// How often the stage was tried.
    pub attempts: u32,
}

/// What a run has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunUsage {
    /// Stages begun.
    pub stages: u64,
    /// Model calls.
    pub model_calls: u64,
    /// Tokens, of prompts and answers.
    pub tokens: u64,
}
