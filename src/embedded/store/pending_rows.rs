//! Rows that all operations of one commit share: indexes that are read when the file is opened, and marks for expiry.

use super::fault::FileFault;
use super::tables::Tables;
use redb::ReadableTable;
use std::mem::take;
use types::timestamp::Timestamp;

/// The entries that the operations of one commit have added so far. [`write()`] turns them into rows.
#[derive(Default)]
pub struct PendingRows {
    /// The latest time of any entry.
    latest: i64,
    counters: Vec<(&'static str, u64)>,
    job_ids: Vec<(u64, String)>,
    events: Vec<(u64, String, Option<String>)>,
    turns: Vec<(String, String)>,
}

impl PendingRows {
    fn at(&mut self, at: Timestamp) {
        self.latest = self.latest.max(at.as_millis());
    }

    /// Sets the counter `name` of the table `meta`.
    pub(crate) fn counter(&mut self, name: &'static str, value: u64) {
        match self.counters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => *before = value,
            None => self.counters.push((name, value)),
        }
    }

    /// Adds the message id of a job.
    pub(crate) fn job_id(&mut self, at: Timestamp, seq: u64, id: &str) {
        self.at(at);
        self.job_ids.push((seq, id.to_owned()));
    }

    /// Adds an event to the index.
    pub(crate) fn event(&mut self, at: Timestamp, seq: u64, session: &str, id: Option<&str>) {
        self.at(at);
        self.events.push((seq, session.to_owned(), id.map(str::to_owned)));
    }

    /// Marks a turn as changed at `at`. It expires its retention after that.
    pub fn turn(&mut self, at: Timestamp, session: &str, turn: &str) {
        self.at(at);
        self.turns.push((session.to_owned(), turn.to_owned()));
    }
}

/// Writes the rows of the entries that the operations have added.
pub(super) fn write(tables: &mut Tables<'_>) -> Result<(), FileFault> {
    let PendingRows { latest, counters, job_ids, events, turns } = take(&mut tables.pending_rows);
    for (name, value) in counters {
        tables.meta.insert(name, value)?;
    }
    if let Some((first, _)) = job_ids.first() {
        let ids: Vec<(u64, &str)> = job_ids.iter().map(|(seq, id)| (*seq, id.as_str())).collect();
        tables.job_ids.insert(*first, (latest, ids))?;
    }
    if let Some((first, ..)) = events.first() {
        let index: Vec<(u64, &str, Option<&str>)> =
            events.iter().map(|(seq, session, id)| (*seq, session.as_str(), id.as_deref())).collect();
        tables.event_index.insert(*first, (latest, index))?;
    }
    if !turns.is_empty() {
        let mut number = 0;
        while tables.turn_ages.get((latest, number))?.is_some() {
            number += 1;
        }
        let turns: Vec<(&str, &str)> = turns.iter().map(|(session, turn)| (session.as_str(), turn.as_str())).collect();
        tables.turn_ages.insert((latest, number), turns)?;
    }
    Ok(())
}
