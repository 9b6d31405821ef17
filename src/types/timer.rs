//! Follow-up timers, as stored in the session document.

use crate::action::Action;
use crate::timestamp::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The largest number of timers of an agent. A session document holds all of them.
pub const MAX_TIMERS: usize = 16;
/// The largest size of one timer, in bytes of JSON.
pub const MAX_TIMER_BYTES: usize = 8 * 1024;

/// A pending follow-up timer of a session, as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timer {
    /// The timer's id, unique within the session.
    pub timer_id: String,
    /// The timer's name in the agent file.
    pub name: String,
    /// When the timer fires, by the store's clock.
    pub due_at: Timestamp,
    /// The session's `timer_generation` when the timer was armed. The timer counts only in this generation.
    pub generation: u64,
    /// The action to execute when the timer fires.
    #[serde(default)]
    pub action: Option<Action>,
    /// The text to send when the timer fires.
    #[serde(default)]
    pub message: Option<String>,
    /// Trace context of the turn that armed the timer, if turns are traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// A timer that a commit arms. It falls due `delay` after the commit, by the store's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTimer {
    /// The timer's id, unique within the session.
    pub timer_id: String,
    /// The timer's name in the agent file.
    pub name: String,
    /// Time from the commit to the timer's firing.
    pub delay: Duration,
    /// The action to execute when the timer fires.
    pub action: Option<Action>,
    /// The text to send when the timer fires.
    pub message: Option<String>,
    /// Trace context of the turn that arms the timer, if turns are traced.
    pub traceparent: Option<String>,
}

impl NewTimer {
    /// The timer as a commit at `now` stores it.
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

/// The id of the `index`-th timer that the turn arms. It is the same however often the turn is repeated.
pub fn timer_id(session_id: &str, turn_id: &str, index: usize) -> String {
    let digest = md5::compute(format!("{session_id}/{turn_id}/{index}"));
    format!("t{digest:x}")
}
