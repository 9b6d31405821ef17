//! Token budgets: the fields of an agent file, and the limits in force.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most tokens of prompts and answers that an agent may use; 0 is no limit. An absent field takes the value of the
/// settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Budget {
    /// Limit for one turn; the setting budget.turn unless given.
    #[serde(default)]
    pub turn: Option<u64>,
    /// Limit for one conversation, until it is closed; the setting budget.session unless given.
    #[serde(default)]
    pub session: Option<u64>,
    /// Limit for one day (UTC), over all sessions; the setting budget.day unless given.
    #[serde(default)]
    pub day: Option<u64>,
}

/// The limits in force, in tokens of prompts and answers. An absent field is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Limit for one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// Limit for one conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Limit for one day (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<u64>,
}

/// The scope of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// One turn.
    Turn,
    /// One conversation.
    Session,
    /// One day (UTC).
    Day,
}

impl Limit {
    /// All scopes, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Turn, Self::Session, Self::Day];

    /// The lower-case name in JSON and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Session => "session",
            Self::Day => "day",
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
