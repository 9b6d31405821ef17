//! What comes of a run.

use serde::{Deserialize, Serialize};
use std::fmt;
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

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.cause)?;
        if self.attempts > 1 { write!(f, " (after {} attempts)", self.attempts) } else { Ok(()) }
    }
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
