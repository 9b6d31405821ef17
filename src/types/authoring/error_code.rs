//! The errors of a turn of a dialogue.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The `error_code` of an ERROR event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The message has no text.
    EmptyMessage,
    /// The message has more than 65,536 bytes.
    MessageTooLarge,
    /// The dialogue has reached `max_turns`.
    MaxTurns,
    /// A stage took longer than `timeout_seconds`.
    Timeout,
    /// The model cannot be reached.
    ModelUnavailable,
    /// The model's answer cannot be used, after two corrections.
    InvalidAnswer,
    /// The agent's token budget is spent.
    TokenBudget,
    /// The workflow or agent to edit or copy does not exist.
    UnknownWorkflow,
    /// The session does not exist.
    UnknownSession,
    /// Another program has changed the state.
    StateConflict,
    /// The result could not be published.
    PublishRefused,
    /// The remote authoring agent cannot be reached.
    AgentUnavailable,
    /// The store cannot be reached.
    StoreUnavailable,
    /// No worker has taken the message.
    Unavailable,
    /// The turn was cancelled.
    Cancelled,
    /// The program failed.
    Internal,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 16] = [
        Self::EmptyMessage,
        Self::MessageTooLarge,
        Self::MaxTurns,
        Self::Timeout,
        Self::ModelUnavailable,
        Self::InvalidAnswer,
        Self::TokenBudget,
        Self::UnknownWorkflow,
        Self::UnknownSession,
        Self::StateConflict,
        Self::PublishRefused,
        Self::AgentUnavailable,
        Self::StoreUnavailable,
        Self::Unavailable,
        Self::Cancelled,
        Self::Internal,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EmptyMessage => "empty_message",
            Self::MessageTooLarge => "message_too_large",
            Self::MaxTurns => "max_turns",
            Self::Timeout => "timeout",
            Self::ModelUnavailable => "model_unavailable",
            Self::InvalidAnswer => "invalid_answer",
            Self::TokenBudget => "token_budget",
            Self::UnknownWorkflow => "unknown_workflow",
            Self::UnknownSession => "unknown_session",
            Self::StateConflict => "state_conflict",
            Self::PublishRefused => "publish_refused",
            Self::AgentUnavailable => "agent_unavailable",
            Self::StoreUnavailable => "store_unavailable",
            Self::Unavailable => "unavailable",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }

    /// The code with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == name)
    }

    /// True for the errors that put the dialogue into the stage `error`. After all other errors the stage stays
    /// unchanged.
    pub const fn changes_stage(self) -> bool {
        matches!(self, Self::ModelUnavailable | Self::InvalidAnswer | Self::TokenBudget | Self::Internal)
    }

    /// True if the same dialogue can continue.
    pub const fn is_recoverable(self) -> bool {
        !matches!(self, Self::MaxTurns | Self::UnknownSession | Self::Internal)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_one_name() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
