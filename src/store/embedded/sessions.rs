//! Sessions in the file, and those with an open lane in memory: a turn reads its session from the file once, and the
//! sweep for abandoned lanes reads no file at all.

use super::fault::Fault;
use super::tables::{HISTORY, SESSIONS, Tables, decode, encode};
use super::{EmbeddedFile, queries};
use crate::clock::{self, Timestamp};
use crate::session::history::MAX_ENTRIES;
use crate::session::{Entry, Kind, Session, Status};
use crate::store::lane::{self, Taken};
use crate::store::{AbandonedLane, Acquire, Acquired, Grant};
use redb::{ReadTransaction, ReadableTable};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lane has work or a holder.
const OPEN: u8 = 1;
/// An open conversation that waits for its user.
pub(super) const IDLE: u8 = 2;

/// Sessions with an open lane, as the writer last left them; without their histories, like those in the file.
#[derive(Debug)]
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
}

impl Sessions {
    /// What the last process left open. Its leases ended with it: the next wake-up may take the lane at once.
    pub(super) fn load(file: &EmbeddedFile) -> Result<Self, Fault> {
        let open = file.read(|read| {
            let mut open = HashMap::new();
            for row in read.open_table(SESSIONS)?.iter()? {
                let (id, value) = row?;
                let (_, flags, bytes) = value.value();
                if flags & OPEN != 0 {
                    let mut session: Session = decode(|| queries::session_name(id.value()), bytes)?;
                    session.lease = None;
                    open.insert(id.value().to_owned(), session);
                }
            }
            Ok(open)
        })?;
        Ok(Self { open: Mutex::new(open) })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session as the operations before this one left it.
    pub(super) fn get(&self, tables: &Tables<'_>, id: &str) -> Result<Option<Session>, Fault> {
        if let Some(session) = self.open().get(id) {
            return Ok(Some(session.clone()));
        }
        match tables.sessions.get(id)? {
            Some(value) => decode(|| queries::session_name(id), value.value().2).map(Some),
            None => Ok(None),
        }
    }

    /// Writes a session, whose history must be empty.
    pub(super) fn put(&self, tables: &mut Tables<'_>, session: Session) -> Result<(), Fault> {
        let bytes = encode("the session", &session)?;
        self.put_encoded(tables, session, &bytes)
    }

    /// Like [`Self::put`], for callers that encode before they write anything.
    pub(super) fn put_encoded(&self, tables: &mut Tables<'_>, session: Session, bytes: &[u8]) -> Result<(), Fault> {
        let open = lane::is_open(&session);
        let flags = if open { OPEN } else { 0 } | if is_idle(&session) { IDLE } else { 0 };
        tables.sessions.insert(session.session_id.as_str(), (session.updated_at.as_millis(), flags, bytes))?;
        if open {
            self.open().insert(session.session_id.clone(), session);
        } else {
            self.open().remove(&session.session_id);
        }
        Ok(())
    }

    /// Changes a session that is there, and writes it if `change` says so; false when it is not there, too.
    pub(super) fn change(
        &self,
        tables: &mut Tables<'_>,
        id: &str,
        change: impl FnOnce(&mut Session) -> bool,
    ) -> Result<bool, Fault> {
        let Some(mut session) = self.get(tables, id)? else { return Ok(false) };
        let changed = change(&mut session);
        if changed {
            self.put(tables, session)?;
        }
        Ok(changed)
    }

    /// Takes the lane; the history of a grant is still to be read.
    pub(super) fn acquire(&self, tables: &mut Tables<'_>, request: &Acquire) -> Result<Acquired, Fault> {
        let now = clock::now();
        let mut session = self.get(tables, &request.session_id)?.unwrap_or_else(|| lane::begin(request, now));
        Ok(match lane::acquire(&mut session, request, now) {
            Taken::Handled => Acquired::Handled,
            Taken::Busy(until) => {
                self.put(tables, session)?;
                Acquired::Busy(until)
            }
            Taken::Granted { resumed } => {
                self.put(tables, session.clone())?;
                Acquired::Granted(Box::new(Grant { session, resumed }))
            }
        })
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
        Some(row) => {
            let (_, flags, bytes) = row.value();
            let lane: Session = decode(|| queries::session_name(run_id), bytes)?;
            flags & OPEN == 0 && lane.kind == Kind::Run
        }
        None => false,
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

/// Appends to a conversation, whose oldest `drop` entries go. The bound in bytes is the caller's, who has the whole
/// conversation; the bound in entries holds here in any case.
pub(super) fn append_history(tables: &mut Tables<'_>, id: &str, added: &[Vec<u8>], drop: usize) -> Result<(), Fault> {
    if added.is_empty() && drop == 0 {
        return Ok(());
    }
    let (first, last) = {
        let mut range = tables.history.range((id, 0)..=(id, u64::MAX))?;
        let first = range.next().transpose()?.map(|row| row.0.value().1);
        let last = range.next_back().transpose()?.map(|row| row.0.value().1);
        (first.unwrap_or(1), last.or(first).unwrap_or(0))
    };
    let next = last + 1;
    let end = next + added.len() as u64;
    let excess = (end - first).saturating_sub(MAX_ENTRIES as u64).max(drop as u64);
    let keep = (first + excess).min(end);
    for number in first..keep.min(next) {
        tables.history.remove((id, number))?;
    }
    for (number, entry) in (next..end).zip(added).filter(|(number, _)| *number >= keep) {
        tables.history.insert((id, number), entry.as_slice())?;
    }
    Ok(())
}
