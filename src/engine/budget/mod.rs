//! Limits on the tokens of a turn, a session, and a day of an agent.
//!
//! The agent file has a [`Budget`](types::budget::Budget); together with the settings' defaults it gives the
//! [`Limits`](types::budget::Limits). Each turn and run has a [`TokenMeter`]. Models that are taken through it
//! ([`Models::limited_by`](crate::model::Models::limited_by)) check it before each call. The usage of a turn is the sum
//! over its recorded steps, so a repeated step counts once. The session document has the total of the session, and
//! [`Budgets`] the usage of the day. A [`DayMeter`] counts calls that belong to no turn of their agent.

mod daily_usage;
mod day_meter;
mod token_meter;

pub use daily_usage::Budgets;
pub use day_meter::DayMeter;
pub use token_meter::TokenMeter;
