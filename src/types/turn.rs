//! Turns, as stored.

use crate::job::Job;
use crate::outcome::Outcome;
use crate::session::Status;
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The part of a [`TurnRecord`] that identifies the message which the turn handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct TurnMark {
    /// When the stream stored the message. Records of earlier versions lack it.
    #[serde(default)]
    pub queued_at: Option<Timestamp>,
    /// When the turn started.
    pub started_at: Timestamp,
}

impl TurnMark {
    /// The largest difference to expect between the clocks of the queue and of the workers.
    const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

    /// True if the turn handled the message that the stream stored at this time.
    pub fn is_of(&self, at: Timestamp) -> bool {
        match self.queued_at {
            Some(queued_at) => queued_at == at,
            // The record of an earlier version: a turn cannot start before its message is stored.
            None => self.started_at.plus(Self::MAX_CLOCK_SKEW) >= at,
        }
    }
}

impl From<&TurnRecord> for TurnMark {
    fn from(turn: &TurnRecord) -> Self {
        Self { queued_at: turn.queued_at, started_at: turn.started_at }
    }
}

/// A status, and when it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusAt {
    /// The status that began.
    pub status: Status,
    /// When it began.
    pub at: Timestamp,
}

/// One handled job, as stored in `turns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnRecord {
    /// The session that the turn belongs to.
    pub session_id: String,
    /// The id of the turn's first job. If an earlier turn has this id: followed by `@` and when the stream stored the
    /// job.
    pub turn_id: String,
    /// The job that the turn handled; of merged messages the first.
    pub job: Job,
    /// Every status that the turn went through, in order.
    pub statuses: Vec<StatusAt>,
    /// How the turn ended.
    pub outcome: Outcome,
    /// Why the turn was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often the turn was started.
    pub attempts: u32,
    /// When the stream stored the job. Turns of earlier versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// When the first attempt started.
    pub started_at: Timestamp,
    /// When the turn was committed.
    pub committed_at: Timestamp,
    /// Hash of the agent configuration that the turn ran with.
    #[serde(default)]
    pub hash: String,
    /// Targets of the actions that the turn executed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// Tokens of prompts and answers that the turn used.
    #[serde(default)]
    pub tokens: u64,
}

/// Tokens that a turn adds to an agent's usage of one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayUse {
    /// The agent.
    pub agent_id: String,
    /// The calendar day in UTC, such as `2026-01-02`.
    pub day: String,
    /// Tokens of prompts and answers.
    pub tokens: u64,
}
