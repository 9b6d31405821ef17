//! Why a job becomes a dead letter.

use serde::{Deserialize, Serialize};

/// Why a job is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It cannot be decoded, or has bad ids.
    Invalid,
    /// Nobody knows its agent.
    UnknownAgent,
    /// It was tried too often.
    Attempts,
    /// Its journal does not match the code that repeats it.
    Replay,
}

impl Cause {
    /// Every one, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Invalid, Self::UnknownAgent, Self::Attempts, Self::Replay];

    /// The last token of the subject.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::UnknownAgent => "unknown_agent",
            Self::Attempts => "attempts",
            Self::Replay => "replay",
        }
    }

    /// The cause that a token names.
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == token)
    }
}
