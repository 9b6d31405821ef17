//! Sessions as this process knows them: those whose lanes it holds, as they were granted, and those that are left, as it
//! has left or read them. One is of use only while its epoch is still the stored one's, which whoever uses it has checked:
//! what is known wrong matches nothing.

use crate::clock::Timestamp;
use crate::session::Session;
use crate::store::{Change, Commit, lane};
use moka::sync::Cache;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most bytes of all sessions known.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// How long a session is known that nobody uses.
const IDLE: Duration = Duration::from_secs(600);

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    sessions: Cache<String, Arc<Slot>>,
}

/// The place of one session. What is in it changes with every turn, the place seldom: its bytes are those of what was put
/// into it first.
#[derive(Debug)]
struct Slot {
    bytes: usize,
    session: Mutex<Option<Session>>,
}

impl Slot {
    fn take_if(&self, wanted: impl FnOnce(&Session) -> bool) -> Option<Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take().filter(wanted)
    }
}

impl Known {
    pub(crate) fn new() -> Self {
        let weigh = |_: &String, slot: &Arc<Slot>| u32::try_from(slot.bytes).unwrap_or(u32::MAX);
        Self { sessions: Cache::builder().max_capacity(MAX_BYTES).weigher(weigh).time_to_idle(IDLE).build() }
    }

    /// Takes out a session whose lane was left; it stays unknown until it is put back.
    pub(crate) fn take_left(&self, session_id: &str) -> Option<Session> {
        self.sessions.get(session_id)?.take_if(|session| session.lease.is_none())
    }

    /// Takes out a session as it was granted under `epoch`.
    pub(crate) fn take_granted(&self, session_id: &str, epoch: u64) -> Option<Session> {
        self.sessions.get(session_id)?.take_if(|session| session.epoch == epoch && session.lease.is_some())
    }

    /// When a session was created that is known as it was granted under `epoch`.
    pub(crate) fn created_at(&self, session_id: &str, epoch: u64) -> Option<Timestamp> {
        let slot = self.sessions.get(session_id)?;
        let known = slot.session.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|session| session.epoch == epoch && session.lease.is_some()).map(|known| known.created_at)
    }

    /// Remembers a session that was read, unless something is known of it: whoever left it, it may be taken from there.
    pub(crate) fn offer(&self, session: &Session) {
        let left = session.lease.is_none() && session.turn.is_none();
        let known = |slot: Arc<Slot>| slot.session.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if left && !self.sessions.get(&session.session_id).is_some_and(known) {
            self.put(session.clone());
        }
    }

    pub(crate) fn put(&self, session: Session) {
        let bytes = bytes(&session);
        match self.sessions.get(&session.session_id) {
            Some(slot) if bytes <= slot.bytes => {
                *slot.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
            }
            _ => {
                let (session_id, session) = (session.session_id.clone(), Mutex::new(Some(session)));
                // With room to grow: not every turn is to be a new place.
                self.sessions.insert(session_id, Arc::new(Slot { bytes: bytes + bytes / 2, session }));
            }
        }
    }
}

fn bytes(session: &Session) -> usize {
    let history: usize = session.history.iter().map(|entry| 256 + entry.text.len() + 64 * entry.metadata.len()).sum();
    let jobs: usize = session.recent_jobs.iter().map(|job| 24 + job.len()).sum();
    let outbox: usize = session.outbox.iter().map(|event| 256 + event.payload.len()).sum();
    1_024 + history + jobs + outbox + 64 * session.profile.len()
}

/// What a session is after a commit that released its lane.
pub(crate) fn left(mut session: Session, commit: &Commit, change: &Change, now: Timestamp) -> Session {
    lane::apply(&mut session, change, now);
    let history = Arc::make_mut(&mut session.history);
    history.extend(change.history.iter().cloned());
    history.drain(..change.history_drop.min(history.len()));
    session.pending_seq = session.pending_seq.min(commit.last_seq);
    lane::finish(&mut session, commit.last_seq, commit.lease, now);
    session
}
