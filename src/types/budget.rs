//! Token budgets of an agent file, and the limits in force.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an agent may use, in tokens of prompts and answers. What it does not say is the settings'; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Budget {
    /// In one turn; the setting budget.turn unless given.
    #[serde(default)]
    pub turn: Option<u64>,
    /// In one conversation, until it is closed; the setting budget.session unless given.
    #[serde(default)]
    pub session: Option<u64>,
    /// On one day (UTC), over all sessions; the setting budget.day unless given.
    #[serde(default)]
    pub day: Option<u64>,
}

/// The limits in force; what is not there is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Of one turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// Of one conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Of one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<u64>,
}

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Of one turn.
    Turn,
    /// Of one conversation.
    Session,
    /// Of one day.
    Day,
}

impl Limit {
    /// Every one, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Turn, Self::Session, Self::Day];

    /// The lower-case name used on every wire.
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
