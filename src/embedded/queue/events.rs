//! Events: written in order, and always read from the file, so that readers of old and new events share one path.

use super::state::{EVENTS_LAST, State};
use crate::store::{EVENTS, EmbeddedFile, FileFault, StoredEvent, Tables};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use redb::ReadableTable;
use std::collections::VecDeque;
use std::sync::Arc;
use storage::queue::{From, QueueError, Result, StreamEvent};
use tokio::sync::watch;
use types::event::{EventType, OutEvent};
use types::timestamp::Timestamp;

/// The number of events that a reader loads together.
const PAGE_SIZE: usize = 128;
/// The number of rows in one operation of the housekeeping, so that other operations run in between.
pub(super) const PRUNE_BATCH: usize = 1_024;

/// Stores events, except for duplicates. Returns the stored events.
pub(super) fn emit(
    tables: &mut Tables<'_>,
    state: &State,
    events: &[OutEvent],
) -> std::result::Result<Vec<StoredEvent>, FileFault> {
    let now = tables.clock.now();
    let (mut stored, mut row) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
    let mut inner = state.lock();
    for event in events {
        let id = event.msg_id.as_deref();
        let published = inner.events.next(id, now);
        if published.duplicate {
            continue;
        }
        row.push((event.channel.as_str(), event.event_type.as_str(), &*event.payload));
        tables.pending_rows.event(now, published.seq, &event.session_id, id);
        stored.push((event.session_id.clone(), published.seq));
    }
    drop(inner);
    if let (Some((_, first)), Some((_, last))) = (stored.first(), stored.last()) {
        // The single writer assigns the sequences, so those of one call are consecutive.
        tables.events.insert(*first, row)?;
        tables.pending_rows.counter(EVENTS_LAST, *last);
    }
    Ok(stored)
}

/// Deletes a batch of events from before `before`. Returns the deleted events.
pub(super) fn prune(tables: &mut Tables<'_>, before: Timestamp) -> std::result::Result<Vec<StoredEvent>, FileFault> {
    let (mut old, mut rows) = (Vec::new(), Vec::new());
    for row in tables.event_index.iter()? {
        let (first, value) = row?;
        let (at, events) = value.value();
        if at >= before.as_millis() || old.len() >= PRUNE_BATCH {
            break;
        }
        rows.push(first.value());
        old.extend(events.into_iter().map(|(seq, session, _)| (session.to_owned(), seq)));
    }
    for first in rows {
        tables.event_index.remove(first)?;
    }
    if let Some((_, last)) = old.last() {
        tables.events.retain_in(..=*last, |_, _| false)?;
    }
    Ok(old)
}

struct Reader {
    file: Arc<EmbeddedFile>,
    state: Arc<State>,
    session: String,
    after: u64,
    more: watch::Receiver<u64>,
    page: VecDeque<StreamEvent>,
}

/// Returns the events of a session as a stream that does not end.
pub(super) fn subscribe(
    file: Arc<EmbeddedFile>,
    state: Arc<State>,
    session: &str,
    from: From,
) -> BoxStream<'static, Result<StreamEvent>> {
    let (after, more) = state.lock().subscribe(session, from);
    let reader = Reader { file, state, session: session.to_owned(), after, more, page: VecDeque::new() };
    stream::unfold(reader, |mut reader| async move { reader.next().await.map(|next| (next, reader)) }).boxed()
}

impl Reader {
    async fn next(&mut self) -> Option<Result<StreamEvent>> {
        loop {
            if let Some(event) = self.page.pop_front() {
                self.after = event.seq;
                return Some(Ok(event));
            }
            self.more.mark_unchanged();
            let seqs = self.state.lock().events_after(&self.session, self.after, PAGE_SIZE);
            if seqs.is_empty() {
                // Cannot fail: the sender lives in the state, which this reader holds.
                self.more.changed().await.ok()?;
                continue;
            }
            match self.read(&seqs) {
                Ok(page) => self.page = page,
                Err(fault) => return Some(Err(fault)),
            }
            // All of them expired after the index was read.
            if self.page.is_empty() {
                self.after = seqs.last().copied().unwrap_or(self.after);
            }
        }
    }

    fn read(&self, seqs: &[u64]) -> Result<VecDeque<StreamEvent>> {
        let page = self.file.read(|read| {
            let table = read.open_table(EVENTS)?;
            let mut page = VecDeque::with_capacity(seqs.len());
            let mut seqs = seqs.iter().copied().peekable();
            while let Some(seq) = seqs.peek().copied() {
                let row = table.range(..=seq)?.next_back().transpose()?;
                let (first, events) =
                    row.as_ref().map_or((seq, Vec::new()), |(first, row)| (first.value(), row.value()));
                for (at, (_, token, payload)) in (first..).zip(&events) {
                    // A deleted event has no type.
                    if seqs.next_if_eq(&at).is_some() && !token.is_empty() {
                        page.push_back(stored_event(at, token, payload)?);
                    }
                }
                // The event is in this row, or it has expired.
                seqs.next_if_eq(&seq);
            }
            Ok(page)
        });
        page.map_err(QueueError::from)
    }
}

fn stored_event(seq: u64, token: &str, payload: &[u8]) -> std::result::Result<StreamEvent, FileFault> {
    let damaged =
        || FileFault::Damaged { what: format!("event {seq}"), source: format!("its type is `{token}`").into() };
    let event_type = EventType::from_token(token).ok_or_else(damaged)?;
    Ok(StreamEvent { seq, event_type, payload: Bytes::copy_from_slice(payload) })
}
