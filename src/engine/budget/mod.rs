//! Limits on the tokens of a turn, a session, and a day of an agent.
//!
//! The agent file has a [`Budget`](types::budget::Budget); together with the settings' defaults it gives the
//! [`Limits`](types::budget::Limits). Each turn and run has a [`Purse`]. Models that are taken through it
//! ([`Models::within`](crate::model::Models::within)) check it before each call. The usage of a turn is the sum over
//! its recorded steps, so a repeated step counts once. The session document has the total of the session, and
//! [`Budgets`] the usage of the day.

mod days;
mod purse;

pub use days::Budgets;
pub use purse::Purse;
