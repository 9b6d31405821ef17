//! The histories of sessions.
//!
//! The entries of a session are numbered, and the entries of one turn share a row. The session's row has the number of
//! its first entry. So a turn that drops the oldest entries only raises this number; the rows are deleted later, many
//! at a time.

use super::fault::FileFault;
use super::tables::{HISTORY, SESSIONS, Tables, decode};
use redb::{ReadTransaction, ReadableTable};
use std::ops::Range;
use types::session::Entry;
use types::session::history::MAX_ENTRIES;

/// The number of a new session's first entry.
pub(super) const FIRST_ENTRY: u64 = 1;
/// The number of dropped entries that are deleted together.
const DELETE_BATCH: u64 = 32;

/// The numbers of a session's entries, as the writer remembers them.
#[derive(Clone, Debug)]
pub(super) struct HistoryRange {
    /// The numbers of the current entries.
    entries: Range<u64>,
    /// Entries below this number are deleted.
    cleared: u64,
}

impl HistoryRange {
    /// The number of the first entry.
    pub(super) fn first(&self) -> u64 {
        self.entries.start
    }

    /// Reads the numbers from the file.
    pub(super) fn from_file(tables: &Tables<'_>, id: &str) -> Result<Self, FileFault> {
        let first = tables.sessions.get(id)?.map_or(FIRST_ENTRY, |row| row.value().2);
        let last = tables.history.range((id, 0)..=(id, u64::MAX))?.next_back().transpose()?;
        let end = last.map_or(first, |(key, said)| key.value().1 + said.value().len() as u64);
        Ok(Self { entries: first..end.max(first), cleared: 0 })
    }
}

/// Appends entries to a history and drops its oldest `drop` entries. The caller enforces the limit in bytes, since it
/// has the whole history; this function enforces the limit in entries. The caller must store the returned first number
/// in the session's row.
pub(super) fn append(
    tables: &mut Tables<'_>,
    id: &str,
    before: &HistoryRange,
    added: &[Vec<u8>],
    drop: usize,
) -> Result<HistoryRange, FileFault> {
    let Range { start, end: next } = before.entries;
    let end = next + added.len() as u64;
    let excess = (end - start).saturating_sub(MAX_ENTRIES as u64).max(drop as u64);
    let first = (start + excess).min(end);
    let place = next.max(first);
    let said: Vec<&[u8]> = added.iter().skip((place - next) as usize).map(Vec::as_slice).collect();
    if !said.is_empty() {
        tables.history.insert((id, place), said)?;
    }
    let mut cleared = before.cleared;
    if first - cleared >= DELETE_BATCH {
        let goes_on = |(_, number): (&str, u64), said: Vec<&[u8]>| number + said.len() as u64 > first;
        tables.history.retain_in((id, 0)..(id, first), goes_on)?;
        cleared = first;
    }
    Ok(HistoryRange { entries: first..end, cleared })
}

/// Reads the history of a session.
pub(super) fn read(read: &ReadTransaction, id: &str) -> Result<Vec<Entry>, FileFault> {
    let first = read.open_table(SESSIONS)?.get(id)?.map_or(FIRST_ENTRY, |row| row.value().2);
    let mut entries = Vec::new();
    for row in read.open_table(HISTORY)?.range((id, 0)..=(id, u64::MAX))? {
        let (key, said) = row?;
        let said = said.value();
        for (_, entry) in (key.value().1..).zip(said).filter(|(number, _)| *number >= first) {
            entries.push(decode(|| format!("the history of session `{id}`"), entry)?);
        }
    }
    Ok(entries)
}

/// Reads the last entry of a session's history.
pub(super) fn last(read: &ReadTransaction, id: &str) -> Result<Option<Entry>, FileFault> {
    let table = read.open_table(HISTORY)?;
    let Some(row) = table.range((id, 0)..=(id, u64::MAX))?.next_back() else { return Ok(None) };
    let (_, said) = row?;
    let last = said.value().into_iter().next_back();
    last.map(|entry| decode(|| format!("the history of session `{id}`"), entry)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EmbeddedFile;
    use crate::store::tables::encode;
    use redb::ReadableTableMetadata;
    use std::collections::VecDeque;
    use types::session::Role;
    use types::timestamp::Timestamp;

    fn entry(text: String) -> Entry {
        let (at, turn_id) = (Timestamp::from_millis(0), "m".to_owned());
        Entry { role: Role::User, text, at, turn_id, kind: None, metadata: Default::default() }
    }

    #[tokio::test]
    async fn what_is_read_is_what_was_said_last_and_little_else_is_kept() {
        let file = EmbeddedFile::in_memory().unwrap();
        let (mut said, mut known) = (VecDeque::new(), None::<HistoryRange>);
        for turn in 0..400_usize {
            let added: Vec<Entry> = (0..turn % 4).map(|part| entry(format!("{turn}.{part}"))).collect();
            let drop = if turn % 90 == 89 { said.len() + added.len() } else { said.len().min(turn * 7 % 3) };
            said.extend(added.iter().map(|entry| entry.text.clone()));
            said.drain(..drop.max(said.len().saturating_sub(MAX_ENTRIES)));
            // Sometimes without the remembered numbers, as after a restart.
            let before = known.take().filter(|_| turn % 11 != 0);
            let append = move |tables: &mut Tables<'_>| {
                let before = before.map_or_else(|| HistoryRange::from_file(tables, "s"), Ok)?;
                let bytes: Vec<Vec<u8>> = added.iter().map(|entry| encode("it", entry)).collect::<Result<_, _>>()?;
                let numbers = append(tables, "s", &before, &bytes, drop)?;
                tables.sessions.insert("s", (0, 0, numbers.first(), &b""[..]))?;
                Ok((numbers, tables.history.len()?))
            };
            let (numbers, rows) = file.write(append).await.unwrap();
            let read: VecDeque<String> =
                file.read(|file| read(file, "s")).unwrap().into_iter().map(|e| e.text).collect();
            assert_eq!(read, said, "after turn {turn}");
            assert!(rows <= MAX_ENTRIES as u64 + DELETE_BATCH, "{rows} rows");
            known = Some(numbers);
        }
    }
}
