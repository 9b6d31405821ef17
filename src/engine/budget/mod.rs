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
