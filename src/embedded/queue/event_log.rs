//! The events of all sessions, read from the file in the order of their sequences.

use super::EmbeddedQueue;
use super::state::State;
use crate::store::{EVENT_INDEX, EVENTS, EmbeddedFile, FileFault};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use redb::{ReadTransaction, ReadableTable};
use std::collections::VecDeque;
use std::sync::Arc;
use storage::queue::{EventBounds, EventLog, LoggedEvent, QueueError, Result};
use tokio::sync::watch;
use types::event::EventType;

/// The number of events that a reader loads together. A page ends with a whole row of the index.
const PAGE_SIZE: usize = 256;

#[async_trait]
impl EventLog for EmbeddedQueue {
    async fn event_bounds(&self) -> Result<EventBounds> {
        self.file.check()?;
        let last = self.state.lock().last_event();
        let first = self.file.read(|read| {
            let index = read.open_table(EVENT_INDEX)?;
            let row = index.first()?;
            Ok(row.map(|(first, _)| first.value()))
        })?;
        Ok(EventBounds { first: first.unwrap_or(last + 1), last })
    }

    async fn all_events(&self, after: u64) -> Result<BoxStream<'static, Result<LoggedEvent>>> {
        self.file.check()?;
        let more = self.state.lock().follow();
        let (file, state) = (Arc::clone(&self.file), Arc::clone(&self.state));
        let reader = Reader { file, _state: state, after, more, page: VecDeque::new() };
        Ok(stream::unfold(reader, |mut reader| async move { reader.next().await.map(|next| (next, reader)) }).boxed())
    }
}

struct Reader {
    file: Arc<EmbeddedFile>,
    /// Keeps the sender of `more`.
    _state: Arc<State>,
    after: u64,
    more: watch::Receiver<u64>,
    page: VecDeque<LoggedEvent>,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<LoggedEvent>> {
        loop {
            if let Some(event) = self.page.pop_front() {
                return Some(Ok(event));
            }
            self.more.mark_unchanged();
            let after = self.after;
            match self.file.read(|read| page(read, after)) {
                // Deleted events leave an empty page, behind which there may be others.
                Ok((page, last)) if last > self.after => (self.page, self.after) = (page, last),
                // Cannot fail: the sender lives in the state, which this reader holds.
                Ok(_) => self.more.changed().await.ok()?,
                Err(fault) => return Some(Err(QueueError::from(fault))),
            }
        }
    }
}

/// Returns about [`PAGE_SIZE`] events above `after`, and the last sequence that was looked at.
fn page(read: &ReadTransaction, after: u64) -> std::result::Result<(VecDeque<LoggedEvent>, u64), FileFault> {
    let (index, events) = (read.open_table(EVENT_INDEX)?, read.open_table(EVENTS)?);
    let (mut wanted, mut last) = (VecDeque::new(), after);
    // The row that holds the next sequence may begin before it.
    let begin = index.range(..=after.saturating_add(1))?.next_back().transpose()?.map_or(0, |(first, _)| first.value());
    for row in index.range(begin..)? {
        let (_, row) = row?;
        for (seq, session, _) in row.value().1.into_iter().filter(|(seq, ..)| *seq > after) {
            last = last.max(seq);
            // A deleted event has no session.
            if !session.is_empty() {
                wanted.push_back((seq, session.to_owned()));
            }
        }
        if wanted.len() >= PAGE_SIZE {
            break;
        }
    }
    let mut page = VecDeque::with_capacity(wanted.len());
    while let Some((seq, _)) = wanted.front() {
        let row = events.range(..=*seq)?.next_back().transpose()?;
        let (first, stored) = row.as_ref().map_or((*seq, Vec::new()), |(first, row)| (first.value(), row.value()));
        let end = first + stored.len() as u64;
        let mut of_row = 0;
        while let Some((seq, session_id)) = wanted.pop_front_if(|(seq, _)| *seq < end) {
            of_row += 1;
            let place = usize::try_from(seq - first).ok().and_then(|place| stored.get(place));
            if let Some((channel, token, payload)) = place.filter(|(_, token, _)| !token.is_empty()) {
                page.push_back(event(seq, channel, session_id, token, payload)?);
            }
        }
        if of_row == 0 {
            // The event has expired since the index was read.
            wanted.pop_front();
        }
    }
    Ok((page, last))
}

fn event(
    seq: u64,
    channel: &str,
    session_id: String,
    token: &str,
    payload: &[u8],
) -> std::result::Result<LoggedEvent, FileFault> {
    let damaged =
        || FileFault::Damaged { what: format!("event {seq}"), source: format!("its type is `{token}`").into() };
    let event_type = EventType::from_token(token).ok_or_else(damaged)?;
    let (channel, payload) = (channel.to_owned(), Bytes::copy_from_slice(payload));
    Ok(LoggedEvent { seq, channel, session_id, event_type, payload })
}
