//! Why a job becomes a dead letter.

use serde::{Deserialize, Serialize};

/// Why a job became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The job cannot be decoded, or has an illegal id.
    Invalid,
    /// The store has no agent with the job's `agent_id`.
    UnknownAgent,
    /// Every one of the `worker.max_attempts` attempts failed.
    Attempts,
    /// The journal of the turn does not match the code that repeats it.
    Replay,
}

impl Cause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Invalid, Self::UnknownAgent, Self::Attempts, Self::Replay];

    /// The last token of the dead letter's subject.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::UnknownAgent => "unknown_agent",
            Self::Attempts => "attempts",
            Self::Replay => "replay",
        }
    }

    /// Parses the last token of a dead letter's subject.
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == token)
    }
}
