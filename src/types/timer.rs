//! Follow-up timers as data.

use crate::action::Action;
use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// The most timers that an agent may have: a session carries all of them.
pub const MAX_TIMERS: usize = 16;
/// The most bytes of one timer as JSON.
pub const MAX_TIMER_BYTES: usize = 8 * 1024;

/// A pending follow-up of a session, as stored (CONTRACT.md, `sessions.timers`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Timer {
    /// Unique within the session.
    pub timer_id: String,
    /// The name in the agent file.
    pub name: String,
    /// When it fires, by the store's clock.
    pub due_at: Timestamp,
    /// The session's `timer_generation` when it was armed.
    pub generation: u64,
    /// Executed when it fires.
    #[serde(default)]
    pub action: Option<Action>,
    /// Sent when it fires.
    #[serde(default)]
    pub message: Option<String>,
    /// The trace of the turn that armed it, where turns are traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// A timer to be armed by a commit: its due time is the store's time of the commit plus `delay`.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTimer {
    /// Unique within the session.
    pub timer_id: String,
    /// The name in the agent file.
    pub name: String,
    /// From the commit.
    pub delay: Duration,
    /// Executed when it fires.
    pub action: Option<Action>,
    /// Sent when it fires.
    pub message: Option<String>,
    /// The trace of the turn that arms it, where turns are traced.
    pub traceparent: Option<String>,
}

impl NewTimer {
    /// The timer as stored by a commit at `now`.
    pub fn arm(self, now: Timestamp, generation: u64) -> Timer {
        Timer {
            timer_id: self.timer_id,
            name: self.name,
            due_at: now.plus(self.delay),
            generation,
            action: self.action,
            message: self.message,
            traceparent: self.traceparent,
        }
    }
}

/// The id under which the `index`-th timer that `turn_id` arms is known: the same however often the turn is repeated.
pub fn timer_id(session_id: &str, turn_id: &str, index: usize) -> String {
    let digest = md5::compute(format!("{session_id}/{turn_id}/{index}"));
    format!("t{digest:x}")
}
