//! Session documents, their histories and the index of their timers.

use super::fault::Fault;
use super::tables::{HISTORY, SESSIONS, TIMERS, Tables, decode, encode};
use crate::clock::Timestamp;
use crate::session::{Entry, Session};
use crate::store::Change;
use crate::timer::Timer;
use redb::{ReadTransaction, ReadableTable};

/// A session without its history.
pub(super) fn load(tables: &Tables<'_>, session_id: &str) -> Result<Option<Session>, Fault> {
    let row = tables.sessions.get(session_id)?;
    row.map(|row| decode(|| format!("session `{session_id}`"), row.value().2)).transpose()
}

/// Stores a session; its history is stored by [`append_history`].
pub(super) fn save(tables: &mut Tables<'_>, session: &Session) -> Result<(), Fault> {
    let bytes = if session.history.is_empty() {
        encode("a session", session)?
    } else {
        encode("a session", &Session { history: Vec::new(), ..session.clone() })?
    };
    let flags = u8::from(super::lane::is_open(session));
    tables.sessions.insert(session.session_id.as_str(), (session.updated_at.as_millis(), flags, bytes.as_slice()))?;
    Ok(())
}

/// A session with its history.
pub(super) fn read(read: &ReadTransaction, session_id: &str) -> Result<Option<Session>, Fault> {
    let table = read.open_table(SESSIONS)?;
    let Some(row) = table.get(session_id)? else { return Ok(None) };
    let mut session: Session = decode(|| format!("session `{session_id}`"), row.value().2)?;
    session.history = entries(&read.open_table(HISTORY)?, session_id)?;
    Ok(Some(session))
}

pub(super) fn history(tables: &Tables<'_>, session_id: &str) -> Result<Vec<Entry>, Fault> {
    entries(&tables.history, session_id)
}

fn entries(
    table: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    session_id: &str,
) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::new();
    for row in table.range((session_id, 0)..=(session_id, u64::MAX))? {
        entries.push(decode(|| format!("the history of session `{session_id}`"), row?.1.value())?);
    }
    Ok(entries)
}

/// Appends what a turn added and drops the oldest entries.
pub(super) fn append_history(tables: &mut Tables<'_>, session_id: &str, change: &Change) -> Result<(), Fault> {
    let mut numbers = Vec::new();
    for row in tables.history.range((session_id, 0)..=(session_id, u64::MAX))? {
        numbers.push(row?.0.value().1);
    }
    let next = numbers.last().map_or(0, |last| last + 1);
    for number in numbers.iter().take(change.history_drop) {
        tables.history.remove((session_id, *number))?;
    }
    // More may have to go than there was: a turn that alone exceeds the bounds.
    let skip = change.history_drop.saturating_sub(numbers.len());
    for (number, entry) in (next..).zip(change.history.iter().skip(skip)) {
        tables.history.insert((session_id, number), encode("an entry of a history", entry)?.as_slice())?;
    }
    Ok(())
}

pub(super) fn forget_timers(tables: &mut Tables<'_>, session: &Session) -> Result<(), Fault> {
    for timer in &session.timers {
        tables.timers.remove((timer.due_at.as_millis(), session.session_id.as_str(), timer.timer_id.as_str()))?;
    }
    Ok(())
}

pub(super) fn index_timers(tables: &mut Tables<'_>, session: &Session) -> Result<(), Fault> {
    for timer in &session.timers {
        tables.timers.insert((timer.due_at.as_millis(), session.session_id.as_str(), timer.timer_id.as_str()), ())?;
    }
    Ok(())
}

/// The timers due until `until`, earliest first.
pub(super) fn due(read: &ReadTransaction, until: Timestamp, limit: usize) -> Result<Vec<(String, Timer)>, Fault> {
    let (index, sessions) = (read.open_table(TIMERS)?, read.open_table(SESSIONS)?);
    let mut due = Vec::new();
    for row in index.range(..(until.as_millis() + 1, "", ""))?.take(limit) {
        let key = row?.0;
        let (_, session_id, timer_id) = key.value();
        let Some(session) = sessions.get(session_id)? else { continue };
        let session: Session = decode(|| format!("session `{session_id}`"), session.value().2)?;
        if let Some(timer) = session.timers.into_iter().find(|timer| timer.timer_id == timer_id) {
            due.push((session_id.to_owned(), timer));
        }
    }
    Ok(due)
}
