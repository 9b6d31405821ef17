//! Stale reads, as far as the contracts of the traits permit them.
//!
//! - `next_in_lane` may miss recent messages, but never a message that the caller knows to be in the lane (`at_least`).
//! - `session` may return an older state, as after an election.
//! - `due_timers` and `abandoned_lanes` may return the state of the previous sweep.
//!
//! Steps, agents, plans and the results of writes are never stale, because turns depend on them.

use std::collections::HashMap;
use std::sync::Mutex;
use storage::queue::Message;
use storage::store::records::{AbandonedLane, DueTimer};
use types::session::Session;

/// Number of reads that miss a message of which the process was not notified.
const LOOKS: usize = 2;

/// State that one process has read.
#[derive(Default)]
pub struct Lag {
    looks: Mutex<HashMap<(String, u64), usize>>,
    sessions: Mutex<HashMap<String, Option<Session>>>,
    due: Mutex<Vec<DueTimer>>,
    abandoned: Mutex<Vec<AbandonedLane>>,
}

impl Lag {
    /// Hides a message at first, unless the caller knows of it.
    pub fn next(&self, at_least: u64, message: Option<Message>) -> Option<Message> {
        let message = message?;
        if message.seq <= at_least {
            return Some(message);
        }
        let mut looks = self.looks.lock().unwrap();
        let looks = looks.entry((message.session_id.clone(), message.seq)).or_default();
        *looks += 1;
        (*looks > LOOKS).then_some(message)
    }

    /// Returns the state of the previous read, if it differs.
    pub fn session(&self, session_id: &str, session: Option<Session>) -> Option<Session> {
        let known = self.sessions.lock().unwrap().insert(session_id.to_owned(), session.clone());
        known.unwrap_or(session)
    }

    pub fn due(&self, timers: Vec<DueTimer>) -> Vec<DueTimer> {
        std::mem::replace(&mut *self.due.lock().unwrap(), timers)
    }

    pub fn abandoned(&self, lanes: Vec<AbandonedLane>) -> Vec<AbandonedLane> {
        std::mem::replace(&mut *self.abandoned.lock().unwrap(), lanes)
    }
}
