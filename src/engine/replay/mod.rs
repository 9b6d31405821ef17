//! Replays of recorded turns against a draft: finds out which actions the draft decides on, with the recorded results
//! of all calls. Only actions are compared strictly, because a model rarely writes the same words twice.
//!
//! [`recorded`] reads turns from their records, [`report`] compares them and contains the report. The replay itself
//! needs an engine in memory. The layer that can build one implements it: [`Replay`].

pub mod recorded;
pub mod report;

pub use recorded::{RecordedTurn, last_turns};
pub use report::{Divergence, Followed, Replayed, ReplayedTurn, TurnEnd};

use async_trait::async_trait;
use definitions::agent::AgentRecord;
use definitions::knowledge::files::NamedText;
use std::time::Duration;

/// The report of a replay that could not begin, or did not end.
pub fn all_failed(turns: &[RecordedTurn], reason: &str) -> Replayed {
    let failed = |turn: &RecordedTurn| ReplayedTurn {
        session_id: turn.session_id.clone(),
        turn_id: turn.turn_id.clone(),
        said: turn.message.text.clone(),
        end: TurnEnd::Failed { reason: reason.to_owned() },
    };
    Replayed::new(turns.iter().map(failed).collect())
}

/// Replays recorded turns. Nothing but models is called.
#[async_trait]
pub trait Replay: Send + Sync {
    /// Replays turns against the draft of an agent, which answers from these texts, within `limit`. A turn that is not
    /// completed in this time has failed.
    async fn replay(
        &self,
        agent: &AgentRecord,
        texts: &[NamedText],
        turns: &[RecordedTurn],
        limit: Duration,
    ) -> Replayed;
}
