//! Reads that lag as far as the traits' contracts let them.
//!
//! - `next_in_lane` may miss recent messages, but never a message that the caller knows to be in the lane (`at_least`).
//! - `session` may show an older state, as right after an election.
//! - `due_timers` and `abandoned_lanes` may show the state of a sweep ago.
//!
//! Steps, agents, plans and all answers of writes are never behind: turns are built on them.

use std::collections::HashMap;
use std::sync::Mutex;
use storage::queue::Message;
use storage::store::records::{AbandonedLane, DueTimer};
use types::session::Session;

/// How often a process looks for a message before it sees it without having been told of it.
const LOOKS: usize = 2;

/// What one process was shown.
#[derive(Default)]
pub struct Lag {
    looks: Mutex<HashMap<(String, u64), usize>>,
    sessions: Mutex<HashMap<String, Option<Session>>>,
    due: Mutex<Vec<DueTimer>>,
    abandoned: Mutex<Vec<AbandonedLane>>,
}

impl Lag {
    /// A message that the caller cannot know of is not there at first.
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

    /// The session as it was at the look before, if that was another state.
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
