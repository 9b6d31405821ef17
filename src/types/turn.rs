//! One handled job as it is stored.

use crate::job::Job;
use crate::session::Status;
use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Which message a turn on record was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct TurnMark {
    /// When the stream took it, where the record says so.
    #[serde(default)]
    pub queued_at: Option<Timestamp>,
    /// When the turn was begun.
    pub started_at: Timestamp,
}

impl TurnMark {
    /// How far the clocks of stream and workers may differ.
    const SKEW: Duration = Duration::from_secs(60);

    /// True when the turn is that of the message that the stream took then.
    pub fn is_of(&self, at: Timestamp) -> bool {
        match self.queued_at {
            Some(queued_at) => queued_at == at,
            // It was written by an earlier version: no turn begins before its message is there.
            None => self.started_at.plus(Self::SKEW) >= at,
        }
    }
}

impl From<&TurnRecord> for TurnMark {
    fn from(turn: &TurnRecord) -> Self {
        Self { queued_at: turn.queued_at, started_at: turn.started_at }
    }
}

/// How a turn ended (CONTRACT.md, `turns.outcome`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// With a reply.
    Answered,
    /// Without one.
    Silent,
    /// By a flow.
    Flow,
    /// In human hands.
    Transferred,
    /// Cancelled.
    Cancelled,
    /// There was nothing to do.
    Noop,
}

impl Outcome {
    /// Every one, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::Answered, Self::Silent, Self::Flow, Self::Transferred, Self::Cancelled, Self::Noop];

    /// The lower-case name used on every wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Silent => "silent",
            Self::Flow => "flow",
            Self::Transferred => "transferred",
            Self::Cancelled => "cancelled",
            Self::Noop => "noop",
        }
    }
}

/// A status and when it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusAt {
    /// The status.
    pub status: Status,
    /// When.
    pub at: Timestamp,
}

/// One handled job (CONTRACT.md, `turns`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TurnRecord {
    /// The session.
    pub session_id: String,
    /// The id of its (first) job; followed by `@` and when the stream took it, if an earlier turn has that id.
    pub turn_id: String,
    /// The job.
    pub job: Job,
    /// Every status that it went through.
    pub statuses: Vec<StatusAt>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often it was begun.
    pub attempts: u32,
    /// When the stream took the job; not known of turns of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// When it was begun (last).
    pub started_at: Timestamp,
    /// When it was committed.
    pub committed_at: Timestamp,
    /// The configuration that it ran with.
    #[serde(default)]
    pub hash: String,
    /// The targets of the actions that it executed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// Tokens that its models used.
    #[serde(default)]
    pub tokens: u64,
}

/// What a turn has used of an agent's day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayUse {
    /// The agent.
    pub agent_id: String,
    /// The calendar day (UTC), such as `2026-01-02`.
    pub day: String,
    /// Tokens of prompts and answers.
    pub tokens: u64,
}
