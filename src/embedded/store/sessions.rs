//! Sessions in the file. Those with an open lane are in memory, too. So a turn reads its session from the file at most
//! once, and the search for abandoned lanes reads no file.

use super::fault::FileFault;
use super::history::{self, FIRST_ENTRY, HistoryRange};
use super::tables::{SESSIONS, Tables, decode, encode};
use super::{EmbeddedFile, lanes, queries};
use moka::sync::Cache;
use redb::ReadableTable;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use storage::store::lane::{self, AcquireOutcome};
use storage::store::records::{AbandonedLane, Acquire, Acquired, Grant};
use types::session::{Kind, Session, Status};
use types::timestamp::Timestamp;
use types::turn::TurnMark;

/// The flag of an open conversation that waits for its user. (1 was the flag of an open lane in an earlier layout.)
pub(super) const IDLE_FLAG: u8 = 2;
/// The flag of a session that is not handed off. Earlier versions never set it.
pub(super) const NOT_HANDED_OFF_FLAG: u8 = 4;
/// The number of sessions whose last commits are remembered.
const MAX_REMEMBERED_COMMITS: u64 = 100_000;

/// The sessions with an open lane, as the writer last wrote them. Like those in the file, they lack their histories.
#[derive(Debug)]
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
    /// The last commits of sessions, as far as they are remembered.
    committed: Cache<String, LastCommit>,
}

/// The remembered last commit of a session.
#[derive(Clone, Debug)]
struct LastCommit {
    epoch: u64,
    said: HistoryRange,
}

impl Sessions {
    /// Loads the lanes that the last process left open. Its leases ended with it, so the next delivery acquires such a
    /// lane immediately. All waiting jobs are delivered again anyway, so the lanes count as released now and not as
    /// abandoned.
    pub(super) fn load(file: &EmbeddedFile) -> Result<Self, FileFault> {
        let open = file.read(|read| {
            let (sessions, mut open) = (read.open_table(SESSIONS)?, HashMap::new());
            for (id, lane) in lanes::all(read)? {
                let Some(mut session) = queries::head(&sessions, &id)? else { continue };
                lane.apply_to(&mut session);
                session.lease = None;
                session.updated_at = file.clock().now();
                open.insert(id, session);
            }
            Ok(open)
        })?;
        Ok(Self { open: Mutex::new(open), committed: Cache::new(MAX_REMEMBERED_COMMITS) })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a session as the previous operation left it. Uses `left` instead of decoding the row if it is the state
    /// after the last commit.
    fn get_or(&self, tables: &Tables<'_>, id: &str, left: Option<Session>) -> Result<Option<Session>, FileFault> {
        if let Some(session) = self.open().get(id) {
            return Ok(Some(session.clone()));
        }
        let Some(row) = tables.sessions.get(id)? else { return Ok(None) };
        let (updated_at, _, _, bytes) = row.value();
        let last = |left: &Session| {
            let committed = self.committed.get(id).is_some_and(|mark| mark.epoch == left.epoch);
            committed && left.updated_at.as_millis() == updated_at
        };
        match left.filter(last) {
            Some(left) => Ok(Some(left)),
            None => decode(|| queries::session_name(id), bytes).map(Some),
        }
    }

    /// Returns a session as the previous operation left it.
    pub(super) fn get(&self, tables: &Tables<'_>, id: &str) -> Result<Option<Session>, FileFault> {
        self.get_or(tables, id, None)
    }

    /// Writes a session. Its history must be empty and its outbox complete. `bytes` is the encoded session, so that
    /// callers can encode it before they write anything, and `first` is the number of the first entry of its history.
    pub(super) fn put(
        &self,
        tables: &mut Tables<'_>,
        session: Session,
        first: u64,
        bytes: &[u8],
    ) -> Result<(), FileFault> {
        let (id, open) = (session.session_id.as_str(), lane::is_open(&session));
        let idle = if is_idle(&session) { IDLE_FLAG } else { 0 };
        let flags = idle | if session.handoff.is_none() { NOT_HANDED_OFF_FLAG } else { 0 };
        tables.sessions.insert(id, (session.updated_at.as_millis(), flags, first, bytes))?;
        if open {
            return self.put_lane(tables, session);
        }
        if self.open().remove(id).is_some() {
            tables.lanes.remove(id)?;
        }
        Ok(())
    }

    /// Drops the memory of a deleted session.
    pub(super) fn remove(&self, id: &str) {
        self.open().remove(id);
        self.committed.invalidate(id);
    }

    /// Writes the open lane of a session that is in the file.
    pub(super) fn put_lane(&self, tables: &mut Tables<'_>, session: Session) -> Result<(), FileFault> {
        lanes::put(tables, &session)?;
        self.open().insert(session.session_id.clone(), session);
        Ok(())
    }

    /// Runs `change` on a session, and writes its lane when `change` returns true. Returns false when the session does
    /// not exist or did not change.
    pub(super) fn change(
        &self,
        tables: &mut Tables<'_>,
        id: &str,
        change: impl FnOnce(&mut Session) -> bool,
    ) -> Result<bool, FileFault> {
        let Some(mut session) = self.get(tables, id)? else { return Ok(false) };
        let changed = change(&mut session);
        if changed {
            self.put_lane(tables, session)?;
        }
        Ok(changed)
    }

    /// Acquires the lane for a request. `left` is the session from the cache of released sessions. The history of a
    /// granted session is empty; the caller reads it.
    pub(super) fn acquire(
        &self,
        tables: &mut Tables<'_>,
        request: &Acquire,
        left: Option<Session>,
    ) -> Result<Acquired, FileFault> {
        let (now, id) = (tables.clock.now(), request.session_id.as_str());
        // A rewind writes the whole session, and a cached session may lack its outbox.
        let left = left.filter(|_| request.rewind.is_none());
        let (mut session, new) = match self.get_or(tables, id, left)? {
            Some(session) => (session, false),
            None => (lane::new_session(request, now), true),
        };
        let acquired = match lane::acquire(&mut session, request, now) {
            AcquireOutcome::Handled => return Ok(Acquired::Handled),
            AcquireOutcome::OtherStream => return Ok(Acquired::OtherStream),
            AcquireOutcome::Busy(until) => Acquired::Busy(until),
            AcquireOutcome::Granted { resumed } => {
                let earlier = Some(earlier(tables, &session, &request.job_id)?);
                Acquired::Granted(Box::new(Grant { session: session.clone(), resumed, earlier }))
            }
        };
        if new || request.rewind.is_some() {
            let bytes = encode("the session", &session)?;
            let first = tables.sessions.get(id)?.map_or(FIRST_ENTRY, |row| row.value().2);
            self.put(tables, session, first, &bytes)?;
        } else {
            self.put_lane(tables, session)?;
        }
        Ok(acquired)
    }

    /// Appends to the history of a session that is committed under `epoch`, and drops its oldest entries. Returns the
    /// number of the first remaining entry.
    pub(super) fn append_history(
        &self,
        tables: &mut Tables<'_>,
        id: &str,
        epoch: u64,
        added: &[Vec<u8>],
        drop: usize,
    ) -> Result<u64, FileFault> {
        let before = match self.committed.get(id) {
            Some(mark) => mark.said,
            None => HistoryRange::from_file(tables, id)?,
        };
        let said = history::append(tables, id, &before, added, drop)?;
        let first = said.first();
        self.committed.insert(id.to_owned(), LastCommit { epoch, said });
        Ok(first)
    }

    /// Returns up to `limit` lanes with work and without a lease holder since `before`, the longest abandoned first.
    pub(super) fn abandoned(&self, before: Timestamp, limit: usize) -> Vec<AbandonedLane> {
        let open = self.open();
        let mut lanes: Vec<&Session> = open.values().filter(|session| lane::is_abandoned(session, before)).collect();
        lanes.sort_by_key(|session| lane::free_since(session));
        let lane = |session: &&Session| AbandonedLane { session_id: session.session_id.clone(), epoch: session.epoch };
        lanes.iter().take(limit).map(lane).collect()
    }
}

/// Returns the mark of the recorded turn under this job id, if the session may have dropped the job from `recent_jobs`.
fn earlier(tables: &Tables<'_>, session: &Session, job_id: &str) -> Result<Option<TurnMark>, FileFault> {
    if !session.forgets_jobs() {
        return Ok(None);
    }
    let id = session.session_id.as_str();
    match tables.turns.get((id, job_id))? {
        Some(row) => decode(|| queries::turn_name(id, job_id), row.value().1).map(Some),
        None => Ok(None),
    }
}

/// Removes the session of a deleted run, unless its lane has work or a lease.
pub(super) fn forget_lane(tables: &mut Tables<'_>, run_id: &str) -> Result<(), FileFault> {
    let ended = match tables.sessions.get(run_id)? {
        Some(row) if tables.lanes.get(run_id)?.is_none() => {
            let lane: Session = decode(|| queries::session_name(run_id), row.value().3)?;
            lane.kind == Kind::Run
        }
        _ => false,
    };
    if ended {
        tables.sessions.remove(run_id)?;
    }
    Ok(())
}

/// True for a conversation that waits only for its user.
pub(super) fn is_idle(session: &Session) -> bool {
    session.kind == Kind::Chat
        && session.closed_at.is_none()
        && matches!(session.workflow_state.status, Status::Ready | Status::Cancelled)
        && session.timers.is_empty()
        && session.waiting.is_none()
        && session.task.is_none()
}
