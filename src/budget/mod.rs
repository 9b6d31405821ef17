//! How many tokens a turn, a session and an agent's day may use.
//!
//! [`Budget`] is what an agent file says, [`Limits`] what holds with the settings' defaults. A [`Purse`] goes with each turn and
//! run: models that are taken through it ([`Models::within`](crate::model::Models::within)) ask it before each question, whoever
//! asks. What a turn has used are the tokens of its recorded steps, so that a repeated one counts once; the session's total is
//! in its document, and [`Budgets`] knows what a day has used.

mod days;
mod purse;

pub use days::Budgets;
pub use purse::Purse;

use crate::config;
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

impl Budget {
    /// What holds where the settings have these defaults.
    pub fn limits(self, defaults: &config::Budget) -> Limits {
        let of = |own: Option<u64>, default: u64| Some(own.unwrap_or(default)).filter(|most| *most > 0);
        Limits {
            turn: of(self.turn, defaults.turn),
            session: of(self.session, defaults.session),
            day: of(self.day, defaults.day),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_before_the_settings_and_nought_is_no_limit() {
        let defaults = config::Budget { turn: 100, session: 0, day: 900 };
        let limits = |turn, session, day| Budget { turn, session, day }.limits(&defaults);
        assert_eq!(limits(None, None, None), Limits { turn: Some(100), session: None, day: Some(900) });
        assert_eq!(limits(Some(500), Some(7), Some(0)), Limits { turn: Some(500), session: Some(7), day: None });
    }
}
