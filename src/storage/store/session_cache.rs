//! Cache of the session documents that this process saw last.
//!
//! It holds two kinds of sessions: those whose lanes this process holds, as they were granted, and those without a
//! lease holder, as this process released or read them. The latter lack their outbox. An entry may be stale, because
//! another process may have changed the session since. That is harmless: the store fences every write by the epoch, so
//! a write that is based on a stale entry changes nothing.

use crate::store::lane;
use crate::store::records::{Change, Commit, Committed};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use types::session::Session;
use types::timestamp::Timestamp;

/// The size limit in bytes of all released sessions, as [`bytes()`] estimates their sizes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// How long an unused session stays in the cache.
const IDLE_EXPIRY: Duration = Duration::from_secs(600);

/// The cache. Cheap to clone: clones share their entries.
#[derive(Clone, Debug)]
pub struct SessionCache {
    /// Sessions whose lanes this process holds. Their commits need them, so no limit evicts them. Boxed, because the
    /// map reserves room for twice as many entries.
    granted: Arc<Mutex<HashMap<String, Box<Session>>>>,
    released: Cache<String, Arc<Slot>>,
}

/// The place of one released session. A turn changes the session and keeps the place, which is cheaper than a new cache
/// entry. `bytes` is fixed when the place is made.
#[derive(Debug)]
struct Slot {
    bytes: usize,
    session: Mutex<Option<Session>>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SessionCache {
    fn default() -> Self {
        Self::with_capacity(MAX_BYTES)
    }
}

impl SessionCache {
    fn with_capacity(bytes: u64) -> Self {
        let weigh = |_: &String, slot: &Arc<Slot>| u32::try_from(slot.bytes).unwrap_or(u32::MAX);
        let released = Cache::builder().max_capacity(bytes).weigher(weigh).time_to_idle(IDLE_EXPIRY);
        Self { granted: Arc::default(), released: released.eviction_policy(EvictionPolicy::lru()).build() }
    }

    fn granted(&self) -> MutexGuard<'_, HashMap<String, Box<Session>>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns a released session. The entry stays empty until the next [`put`](Self::put).
    pub fn take_released(&self, session_id: &str) -> Option<Session> {
        self.released.get(session_id)?.lock().take()
    }

    /// Removes and returns the session that was granted under `epoch`.
    pub fn take_granted(&self, session_id: &str, epoch: u64) -> Option<Session> {
        let mut granted = self.granted();
        granted.get(session_id).filter(|session| session.epoch == epoch)?;
        granted.remove(session_id).map(|session| *session)
    }

    /// Drops all copies of a session.
    pub fn forget(&self, session_id: &str) {
        self.granted().remove(session_id);
        self.released.invalidate(session_id);
    }

    /// Returns the creation time of the session that was granted under `epoch`.
    pub fn created_at(&self, session_id: &str, epoch: u64) -> Option<Timestamp> {
        self.granted().get(session_id).filter(|session| session.epoch == epoch).map(|session| session.created_at)
    }

    /// Adds a session that was read from the store, if its lane is free and the cache has no entry for it.
    pub fn offer(&self, session: &Session) {
        let left = session.lease.is_none() && session.turn.is_none();
        let known = || {
            let slot = self.released.get(&session.session_id);
            self.granted().contains_key(&session.session_id) || slot.is_some_and(|slot| slot.lock().is_some())
        };
        if left && !known() {
            self.put(session.clone());
        }
    }

    /// Adds a session that was granted or released. A worker that acquires a lane has removed the released entry first.
    /// An entry that a reader adds in between is stale and matches nothing.
    pub fn put(&self, mut session: Session) {
        if let Some(lease) = &session.lease {
            let (mut granted, until) = (self.granted(), lease.until);
            if granted.len() == granted.capacity() {
                // Before the map grows: drop the leases that were lost without notice. Their sessions are of no use.
                let lasts =
                    |known: &Session| known.lease.as_ref().is_some_and(|lease| lease.until.plus(IDLE_EXPIRY) > until);
                granted.retain(|_, session| lasts(session));
            }
            granted.insert(session.session_id.clone(), Box::new(session));
            return;
        }
        if !session.outbox.is_empty() {
            session.outbox = Vec::new();
            session.outbox_unread = true;
        }
        let bytes = bytes(&session);
        match self.released.get(&session.session_id) {
            Some(slot) if bytes <= slot.bytes => *slot.lock() = Some(session),
            _ => {
                let (session_id, session) = (session.session_id.clone(), Mutex::new(Some(session)));
                // With room to grow, so that a growing session does not need a new place in every turn.
                self.released.insert(session_id, Arc::new(Slot { bytes: bytes + bytes / 4, session }));
            }
        }
    }
}

fn bytes(session: &Session) -> usize {
    // Each text counts twice, since the transcript repeats it.
    let history: usize =
        session.history.iter().map(|entry| 256 + 2 * entry.text.len() + 64 * entry.metadata.len()).sum();
    let jobs: usize = session.recent_jobs.iter().map(|job| 24 + job.len()).sum();
    1_024 + history + jobs + 64 * session.profile.len()
}

/// Returns the session as it is after a commit at `now`, without its outbox.
pub fn after_commit(mut session: Session, commit: &Commit, now: Timestamp) -> (Session, Committed) {
    match &commit.change {
        Some(change) => {
            lane::apply(&mut session, change, now);
            session.outbox = Vec::new();
            session.outbox_unread = !change.outbox.is_empty();
            add_history(&mut session, change);
        }
        None => lane::finish_unchanged(&mut session),
    }
    let committed = lane::finish(&mut session, commit, now);
    (session, committed)
}

fn add_history(session: &mut Session, change: &Change) {
    session.transcript = session.transcript.followed_by(&session.history, &change.history, change.history_drop);
    let history = Arc::make_mut(&mut session.history);
    history.extend(change.history.iter().cloned());
    history.drain(..change.history_drop.min(history.len()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::session::Lease;

    fn session(id: usize, until: Option<i64>) -> Session {
        let lease = |until| Lease { owner: "w".into(), until: Timestamp::from_millis(until), token: "t".into() };
        let session = Session::new(format!("s{id}"), Timestamp::from_millis(0));
        Session { epoch: 1, lease: until.map(lease), ..session }
    }

    #[test]
    fn a_session_whose_lane_is_held_is_known_however_many_others_are() {
        let cache = SessionCache::with_capacity(4_096);
        (0..1_000).for_each(|id| cache.put(session(id, Some(6_000))));
        (1_000..2_000).for_each(|id| cache.put(session(id, None)));
        cache.released.run_pending_tasks();
        assert!((1_000..2_000).filter(|id| cache.take_released(&format!("s{id}")).is_some()).count() < 4);
        assert!((0..1_000).all(|id| cache.take_released(&format!("s{id}")).is_none()));
        assert!((0..500).all(|id| cache.take_granted(&format!("s{id}"), 1).is_some()));
        assert_eq!(cache.take_granted("s500", 2), None, "of another epoch");
        assert!(cache.take_granted("s500", 1).is_some());
    }

    #[test]
    fn an_outbox_is_left_out_of_what_is_known_of_a_session_that_was_left() {
        let cache = SessionCache::default();
        let event = types::event::OutEvent {
            channel: "c".into(),
            session_id: "s1".into(),
            event_type: types::event::EventType::Status,
            msg_id: None,
            payload: "{}".into(),
        };
        cache.put(Session { outbox: vec![event.clone()], ..session(1, None) });
        let left = cache.take_released("s1").unwrap();
        assert!(left.outbox.is_empty() && left.outbox_unread);
        cache.put(Session { outbox: vec![event], ..session(1, Some(6_000)) });
        assert_eq!(cache.take_granted("s1", 1).unwrap().outbox.len(), 1, "the lease holder has to publish it");
    }

    #[test]
    fn leases_that_were_lost_unseen_do_not_pile_up() {
        let cache = SessionCache::default();
        for id in 0..100_000 {
            cache.put(session(id, Some(i64::try_from(id).unwrap() * 1_000)));
        }
        assert!(cache.granted().len() < 4_000, "{}", cache.granted().len());
    }

    #[test]
    fn what_was_read_is_known_unless_more_is() {
        let cache = SessionCache::default();
        cache.offer(&session(1, None));
        assert!(cache.take_released("s1").is_some());
        cache.put(session(1, Some(6_000)));
        cache.offer(&session(1, None));
        assert_eq!(cache.take_released("s1"), None);
    }
}
