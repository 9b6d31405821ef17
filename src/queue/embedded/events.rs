//! Events: stored in order, read from the file, so that a replay and what comes live are one and the same.

use super::state::{State, put_last_event};
use crate::clock::{self, Timestamp};
use crate::queue::{EventType, From, OutEvent, QueueError, Result, StreamEvent};
use crate::store::embedded::{EVENTS, EmbeddedFile, Fault, Tables};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use redb::ReadableTable;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

/// How many events are read at once.
const PAGE: usize = 128;
/// How many rows one operation of the housekeeping deletes, so that others get between.
pub(super) const PRUNE_BATCH: usize = 1_024;

/// Stores events but for repeats; answers (session, sequence) of those stored.
pub(super) fn emit(
    tables: &mut Tables<'_>,
    state: &State,
    events: &[OutEvent],
) -> std::result::Result<Vec<(String, u64)>, Fault> {
    let now = clock::now();
    let mut stored = Vec::with_capacity(events.len());
    for event in events {
        let id = event.msg_id.as_deref();
        let published = state.lock().events.next(id, now);
        if published.duplicate {
            continue;
        }
        let (seq, session) = (published.seq, event.session_id.as_str());
        tables.events.insert(seq, (event.channel.as_str(), event.event_type.as_str(), &*event.payload))?;
        tables.event_index.insert(seq, (now.as_millis(), session, id))?;
        stored.push((event.session_id.clone(), seq));
    }
    if let Some((_, last)) = stored.last() {
        put_last_event(tables, *last)?;
    }
    Ok(stored)
}

/// Deletes some of the events from before `before`; answers them as (session, sequence).
pub(super) fn prune(tables: &mut Tables<'_>, before: Timestamp) -> std::result::Result<Vec<(String, u64)>, Fault> {
    let mut old = Vec::new();
    for row in tables.event_index.iter()?.take(PRUNE_BATCH) {
        let (seq, value) = row?;
        let (at, session, _) = value.value();
        if at >= before.as_millis() {
            break;
        }
        old.push((session.to_owned(), seq.value()));
    }
    for (_, seq) in &old {
        tables.event_index.remove(seq)?;
        tables.events.remove(seq)?;
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

/// The events of a session, without end.
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
            let seqs = self.state.lock().events_after(&self.session, self.after, PAGE);
            if seqs.is_empty() {
                // Its sender lives in the state that this reader holds.
                self.more.changed().await.ok()?;
                continue;
            }
            match self.read(&seqs) {
                Ok(page) => self.page = page,
                Err(fault) => return Some(Err(fault)),
            }
            // All of them have expired between the index and the file.
            if self.page.is_empty() {
                self.after = seqs.last().copied().unwrap_or(self.after);
            }
        }
    }

    fn read(&self, seqs: &[u64]) -> Result<VecDeque<StreamEvent>> {
        let page = self.file.read(|read| {
            let table = read.open_table(EVENTS)?;
            let mut page = VecDeque::with_capacity(seqs.len());
            for seq in seqs {
                let Some(row) = table.get(seq)? else { continue };
                let (_, token, payload) = row.value();
                let event_type = EventType::from_token(token).ok_or_else(|| Fault::Damaged {
                    what: format!("event {seq}"),
                    problem: format!("its type is `{token}`"),
                })?;
                page.push_back(StreamEvent { seq: *seq, event_type, payload: Bytes::copy_from_slice(payload) });
            }
            Ok(page)
        });
        page.map_err(QueueError::from)
    }
}
