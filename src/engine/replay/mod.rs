//! Replays of recorded turns against a draft: what the draft would have decided, with the recorded results of all calls.
//! Only actions are compared strictly, because a model rarely says the same words twice.
//!
//! [`recorded`] reads turns from their records, [`report`] compares them and has the report. The replay itself needs an
//! engine in memory, so it is a part of [`Rehearse`](crate::rehearsal::Rehearse).

pub mod recorded;
pub mod report;

pub use recorded::{RecordedTurn, last_turns};
pub use report::{Divergence, Followed, Replayed, ReplayedTurn, TurnEnd};
