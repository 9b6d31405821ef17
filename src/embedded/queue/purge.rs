//! Deletion of a session's jobs and events.

use super::EmbeddedQueue;
use crate::store::{FileFault, Tables};
use async_trait::async_trait;
use redb::ReadableTable;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::queue::{Purge, Result};

/// An event of a row: (channel, type, payload).
type RowEvent = (String, String, Vec<u8>);
/// An entry of an index row: (sequence, session, message id).
type IndexEntry = (u64, String, Option<String>);

#[async_trait]
impl Purge for EmbeddedQueue {
    async fn purge_lane(&self, session_id: &str) -> Result<u64> {
        let state = Arc::clone(&self.state);
        let session = session_id.to_owned();
        let purged = self.file.write(move |tables| {
            let seqs = state.lock().deliveries.lane(&session);
            for seq in &seqs {
                tables.jobs.remove(seq)?;
                state.lock().deliveries.remove(*seq);
            }
            Ok(seqs.len() as u64)
        });
        Ok(purged.await?)
    }

    async fn purge_events(&self, session_id: &str) -> Result<u64> {
        let (state, then_state) = (Arc::clone(&self.state), Arc::clone(&self.state));
        let (session, then_session) = (session_id.to_owned(), session_id.to_owned());
        let work = move |tables: &mut Tables<'_>| {
            let seqs = state.lock().all_events(&session);
            blank_events(tables, &seqs)?;
            clear_index(tables, &session, &seqs)?;
            Ok(seqs)
        };
        let then = move |seqs: &Vec<u64>| {
            if let Some(last) = seqs.last() {
                then_state.lock().remove_expired(&then_session, *last);
            }
        };
        Ok(self.file.write_then(work, then).await?.len() as u64)
    }
}

/// Empties events. They keep their places, because an event's sequence is that of its row plus its place.
fn blank_events(tables: &mut Tables<'_>, seqs: &[u64]) -> std::result::Result<(), FileFault> {
    let mut rows: BTreeMap<u64, Vec<RowEvent>> = BTreeMap::new();
    for seq in seqs {
        let Some(row) = tables.events.range(..=*seq)?.next_back().transpose()? else { continue };
        let first = row.0.value();
        let stored = || {
            let events = row.1.value().into_iter();
            events.map(|(channel, kind, payload)| (channel.to_owned(), kind.to_owned(), payload.to_vec())).collect()
        };
        let events = rows.entry(first).or_insert_with(stored);
        let place = usize::try_from(seq - first).unwrap_or(usize::MAX);
        if let Some(event) = events.get_mut(place) {
            *event = RowEvent::default();
        }
    }
    for (first, events) in rows {
        let row: Vec<(&str, &str, &[u8])> =
            events.iter().map(|(channel, kind, payload)| (&**channel, &**kind, &**payload)).collect();
        tables.events.insert(first, row)?;
    }
    Ok(())
}

/// Clears the entries of events in the index, which is read when the file is opened. The entries keep their places,
/// because the housekeeping deletes events by their index rows.
fn clear_index(tables: &mut Tables<'_>, session: &str, seqs: &[u64]) -> std::result::Result<(), FileFault> {
    let gone: BTreeSet<u64> = seqs.iter().copied().collect();
    let mut rows: BTreeMap<u64, (i64, Vec<IndexEntry>)> = BTreeMap::new();
    for seq in seqs {
        let Some(row) = tables.event_index.range(..=*seq)?.next_back().transpose()? else { continue };
        let stored = || {
            let (at, events) = row.1.value();
            let entry =
                |(seq, session, id): (u64, &str, Option<&str>)| (seq, session.to_owned(), id.map(str::to_owned));
            (at, events.into_iter().map(entry).collect())
        };
        rows.entry(row.0.value()).or_insert_with(stored);
    }
    for (first, (at, mut events)) in rows {
        for (seq, of, id) in &mut events {
            if of == session && gone.contains(seq) {
                of.clear();
                *id = None;
            }
        }
        let row: Vec<(u64, &str, Option<&str>)> =
            events.iter().map(|(seq, session, id)| (*seq, &**session, id.as_deref())).collect();
        tables.event_index.insert(first, (at, row))?;
    }
    Ok(())
}
