//! Sessions in the file, and those with an open lane in memory: a turn reads its session from the file once, or not at all
//! if it was left by this process, and the sweep for abandoned lanes reads no file.

use super::fault::Fault;
use super::tables::{HISTORY, SESSIONS, Tables, decode, encode};
use super::{EmbeddedFile, lanes, queries};
use crate::clock::{self, Timestamp};
use crate::session::history::MAX_ENTRIES;
use crate::session::{Entry, Kind, Session, Status};
use crate::store::lane::{self, Taken};
use crate::store::{AbandonedLane, Acquire, Acquired, Grant};
use moka::sync::Cache;
use redb::{ReadTransaction, ReadableTable};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An open conversation that waits for its user. (1 was an open lane, which has a row of its own.)
pub(super) const IDLE: u8 = 2;
/// Sessions whose last commits are remembered.
const REMEMBERED: u64 = 100_000;

/// Sessions with an open lane, as the writer last left them; without their histories, like those in the file.
#[derive(Debug)]
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
    /// What the writer knows of sessions that it has committed.
    committed: Cache<String, Mark>,
}

/// What the last commit has left of a session.
#[derive(Clone, Debug)]
struct Mark {
    epoch: u64,
    /// The numbers of the entries of its history.
    entries: Range<u64>,
}

impl Sessions {
    /// What the last process left open. Its leases ended with it: the next wake-up may take the lane at once.
    pub(super) fn load(file: &EmbeddedFile) -> Result<Self, Fault> {
        let open = file.read(|read| {
            let (sessions, mut open) = (read.open_table(SESSIONS)?, HashMap::new());
            for (id, lane) in lanes::all(read)? {
                let Some(mut session) = queries::head(&sessions, &id)? else { continue };
                lane.lay_over(&mut session);
                session.lease = None;
                open.insert(id, session);
            }
            Ok(open)
        })?;
        Ok(Self { open: Mutex::new(open), committed: Cache::new(REMEMBERED) })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session as the operations before this one left it. `left` is used if it is what the last commit has left.
    fn get_or(&self, tables: &Tables<'_>, id: &str, left: Option<Session>) -> Result<Option<Session>, Fault> {
        if let Some(session) = self.open().get(id) {
            return Ok(Some(session.clone()));
        }
        let Some(row) = tables.sessions.get(id)? else { return Ok(None) };
        let (updated_at, _, bytes) = row.value();
        let last = |left: &Session| {
            let committed = self.committed.get(id).is_some_and(|mark| mark.epoch == left.epoch);
            committed && left.updated_at.as_millis() == updated_at
        };
        match left.filter(last) {
            Some(left) => Ok(Some(left)),
            None => decode(|| queries::session_name(id), bytes).map(Some),
        }
    }

    /// A session as the operations before this one left it.
    pub(super) fn get(&self, tables: &Tables<'_>, id: &str) -> Result<Option<Session>, Fault> {
        self.get_or(tables, id, None)
    }

    /// Writes a session, whose history must be empty and whose outbox must be there; `bytes` are the session's, so that
    /// callers may encode it before they write anything.
    pub(super) fn put(&self, tables: &mut Tables<'_>, session: Session, bytes: &[u8]) -> Result<(), Fault> {
        let (id, open) = (session.session_id.as_str(), lane::is_open(&session));
        let flags = if is_idle(&session) { IDLE } else { 0 };
        tables.sessions.insert(id, (session.updated_at.as_millis(), flags, bytes))?;
        if open {
            return self.put_lane(tables, session);
        }
        if self.open().remove(id).is_some() {
            tables.lanes.remove(id)?;
        }
        Ok(())
    }

    /// Writes the open lane of a session that is in the file.
    pub(super) fn put_lane(&self, tables: &mut Tables<'_>, session: Session) -> Result<(), Fault> {
        lanes::put(tables, &session)?;
        self.open().insert(session.session_id.clone(), session);
        Ok(())
    }

    /// Changes the lane of a session that is there, and writes it if `change` says so; false when it is not there, too.
    pub(super) fn change(
        &self,
        tables: &mut Tables<'_>,
        id: &str,
        change: impl FnOnce(&mut Session) -> bool,
    ) -> Result<bool, Fault> {
        let Some(mut session) = self.get(tables, id)? else { return Ok(false) };
        let changed = change(&mut session);
        if changed {
            self.put_lane(tables, session)?;
        }
        Ok(changed)
    }

    /// Takes the lane; `left` is the session as this process has left it, if it knows. The history of a grant is still to be
    /// read.
    pub(super) fn acquire(
        &self,
        tables: &mut Tables<'_>,
        request: &Acquire,
        left: Option<Session>,
    ) -> Result<Acquired, Fault> {
        let (now, id) = (clock::now(), request.session_id.as_str());
        let (mut session, new) = match self.get_or(tables, id, left)? {
            Some(session) => (session, false),
            None => (lane::begin(request, now), true),
        };
        let acquired = match lane::acquire(&mut session, request, now) {
            Taken::Handled => return Ok(Acquired::Handled),
            Taken::Busy(until) => Acquired::Busy(until),
            Taken::Granted { resumed } => Acquired::Granted(Box::new(Grant { session: session.clone(), resumed })),
        };
        if new {
            let bytes = encode("the session", &session)?;
            self.put(tables, session, &bytes)?;
        } else {
            self.put_lane(tables, session)?;
        }
        Ok(acquired)
    }

    /// Appends to the history of a session that is committed under `epoch`, whose oldest `drop` entries go. The bound in
    /// bytes is the caller's, who has the whole conversation; the bound in entries holds here in any case.
    pub(super) fn append_history(
        &self,
        tables: &mut Tables<'_>,
        (id, epoch): (&str, u64),
        added: &[Vec<u8>],
        drop: usize,
    ) -> Result<(), Fault> {
        let before = match self.committed.get(id) {
            Some(mark) => mark.entries,
            None => numbers(tables, id)?,
        };
        let end = before.end + added.len() as u64;
        let excess = (end - before.start).saturating_sub(MAX_ENTRIES as u64).max(drop as u64);
        let keep = (before.start + excess).min(end);
        for number in before.start..keep.min(before.end) {
            tables.history.remove((id, number))?;
        }
        for (number, entry) in (before.end..end).zip(added).filter(|(number, _)| *number >= keep) {
            tables.history.insert((id, number), entry.as_slice())?;
        }
        self.committed.insert(id.to_owned(), Mark { epoch, entries: keep..end });
        Ok(())
    }

    /// Lanes with work that nobody has held since `before`.
    pub(super) fn abandoned(&self, before: Timestamp, limit: usize) -> Vec<AbandonedLane> {
        self.open()
            .values()
            .filter(|session| lane::is_abandoned(session, before))
            .take(limit)
            .map(|session| AbandonedLane { session_id: session.session_id.clone(), epoch: session.epoch })
            .collect()
    }
}

/// Removes the lane of a run that is forgotten, unless it has work or a holder.
pub(super) fn forget_lane(tables: &mut Tables<'_>, run_id: &str) -> Result<(), Fault> {
    let ended = match tables.sessions.get(run_id)? {
        Some(row) if tables.lanes.get(run_id)?.is_none() => {
            let lane: Session = decode(|| queries::session_name(run_id), row.value().2)?;
            lane.kind == Kind::Run
        }
        _ => false,
    };
    if ended {
        tables.sessions.remove(run_id)?;
    }
    Ok(())
}

fn is_idle(session: &Session) -> bool {
    session.kind == Kind::Chat
        && session.closed_at.is_none()
        && matches!(session.workflow_state.status, Status::Ready | Status::Cancelled)
}

/// The conversation of a session.
pub(super) fn history(read: &ReadTransaction, id: &str) -> Result<Vec<Entry>, Fault> {
    let table = read.open_table(HISTORY)?;
    let mut entries = Vec::new();
    for row in table.range((id, 0)..=(id, u64::MAX))? {
        entries.push(decode(|| format!("the history of session `{id}`"), row?.1.value())?);
    }
    Ok(entries)
}

/// The numbers of the entries of a conversation.
fn numbers(tables: &Tables<'_>, id: &str) -> Result<Range<u64>, Fault> {
    let mut range = tables.history.range((id, 0)..=(id, u64::MAX))?;
    let first = range.next().transpose()?.map(|row| row.0.value().1);
    let last = range.next_back().transpose()?.map(|row| row.0.value().1).or(first);
    Ok(first.unwrap_or(1)..last.unwrap_or(0) + 1)
}
