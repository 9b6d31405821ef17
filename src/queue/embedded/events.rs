//! Events: the file has them, an index by session in memory finds them, live readers are told of new ones.

use super::{DUPLICATE_WINDOW, lock};
use crate::clock::{self, Timestamp};
use crate::queue::{EventType, From, OutEvent, QueueError, Result, StreamEvent};
use crate::store::embedded::EmbeddedFile;
use crate::store::embedded::fault::Fault;
use crate::store::embedded::tables;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use redb::ReadableTable;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// The counter of event sequences in the file.
const LAST: &str = "last_event";
/// The most events that a reader takes at once.
const CHUNK: usize = 256;

/// See the module.
pub(super) struct Events {
    file: Arc<EmbeddedFile>,
    index: Arc<Mutex<Index>>,
    /// The last sequence that can be read.
    last: Arc<watch::Sender<u64>>,
    retention: Duration,
}

#[derive(Default)]
struct Index {
    next: u64,
    by_session: HashMap<String, VecDeque<u64>>,
    by_seq: BTreeMap<u64, (Timestamp, String)>,
    ids: HashMap<String, Timestamp>,
}

impl Events {
    pub(super) fn new(file: Arc<EmbeddedFile>, retention: Duration) -> Result<Self> {
        let mut index = Index::default();
        let last = file.read(|read| {
            for row in read.open_table(tables::EVENT_INDEX)?.iter()? {
                let (seq, row) = row?;
                let (at, session_id, msg_id) = row.value();
                index.add(seq.value(), Timestamp::from_millis(at), session_id, msg_id);
            }
            Ok(read.open_table(tables::META)?.get(LAST)?.map_or(0, |last| last.value()))
        })?;
        index.next = last + 1;
        Ok(Self { file, index: Arc::new(Mutex::new(index)), last: Arc::new(watch::Sender::new(last)), retention })
    }

    /// Writes all in order, without repeats; then readers see them.
    pub(super) async fn emit(&self, events: Vec<OutEvent>) -> Result<()> {
        let now = clock::now();
        let written = {
            let mut index = lock(&self.index);
            let expired = index.expired(now.minus(self.retention));
            index.ids.retain(|_, at| *at >= now.minus(DUPLICATE_WINDOW));
            let mut rows = Vec::with_capacity(events.len());
            for event in events {
                let repeated = event.msg_id.as_ref().is_some_and(|msg_id| index.ids.contains_key(msg_id));
                if !repeated {
                    let seq = index.next;
                    index.next += 1;
                    index.add(seq, now, &event.session_id, event.msg_id.as_deref());
                    rows.push((seq, event));
                }
            }
            let through = index.next - 1;
            let last = Arc::clone(&self.last);
            self.file.write_then(
                move |tables| {
                    for seq in expired {
                        tables.events.remove(seq)?;
                        tables.event_index.remove(seq)?;
                    }
                    for (seq, event) in &rows {
                        let row = (event.channel.as_str(), event.event_type.as_str(), event.payload.as_ref());
                        tables.events.insert(*seq, row)?;
                        let entry = (now.as_millis(), event.session_id.as_str(), event.msg_id.as_deref());
                        tables.event_index.insert(*seq, entry)?;
                    }
                    super::next_seq(tables, LAST, through)
                },
                move |()| {
                    last.send_if_modified(|last| {
                        let newer = through > *last;
                        *last = through.max(*last);
                        newer
                    });
                },
            )
        };
        Ok(written.await?)
    }

    pub(super) fn has(&self, session_id: &str) -> bool {
        lock(&self.index).by_session.contains_key(session_id)
    }

    /// Events of a session in order, without end.
    pub(super) fn read(&self, session_id: &str, from: From) -> Result<BoxStream<'static, Result<StreamEvent>>> {
        let receiver = self.last.subscribe();
        let last = *self.last.borrow();
        let after = match from {
            From::Now => last,
            From::After(seq) if seq > last => 0,
            From::After(seq) => seq,
        };
        let reader = Reader {
            file: Arc::clone(&self.file),
            index: Arc::clone(&self.index),
            receiver,
            session_id: session_id.to_owned(),
            after,
        };
        Ok(stream::unfold(reader, |mut reader| async move {
            let events = reader.next().await?;
            Some((stream::iter(events), reader))
        })
        .flatten()
        .boxed())
    }
}

impl Index {
    fn add(&mut self, seq: u64, at: Timestamp, session_id: &str, msg_id: Option<&str>) {
        self.by_session.entry(session_id.to_owned()).or_default().push_back(seq);
        self.by_seq.insert(seq, (at, session_id.to_owned()));
        if let Some(msg_id) = msg_id {
            self.ids.insert(msg_id.to_owned(), at);
        }
    }

    /// Forgets what is older than `before`; answers the sequences.
    fn expired(&mut self, before: Timestamp) -> Vec<u64> {
        let mut expired = Vec::new();
        while let Some(entry) = self.by_seq.first_entry()
            && entry.get().0 < before
        {
            let (seq, (_, session_id)) = entry.remove_entry();
            if let Some(seqs) = self.by_session.get_mut(&session_id) {
                seqs.pop_front();
                if seqs.is_empty() {
                    self.by_session.remove(&session_id);
                }
            }
            expired.push(seq);
        }
        expired
    }
}

/// One reader of one session.
struct Reader {
    file: Arc<EmbeddedFile>,
    index: Arc<Mutex<Index>>,
    receiver: watch::Receiver<u64>,
    session_id: String,
    after: u64,
}

impl Reader {
    /// The next events; `None` when the queue is gone.
    async fn next(&mut self) -> Option<Vec<Result<StreamEvent>>> {
        loop {
            let readable = *self.receiver.borrow_and_update();
            let seqs = self.seqs(readable);
            if seqs.is_empty() {
                self.receiver.changed().await.ok()?;
                continue;
            }
            self.after = seqs.last().copied().unwrap_or(self.after);
            return Some(match self.fetch(&seqs) {
                Ok(events) => events.into_iter().map(Ok).collect(),
                Err(fault) => vec![Err(QueueError::from(fault))],
            });
        }
    }

    fn seqs(&self, readable: u64) -> Vec<u64> {
        let index = lock(&self.index);
        let Some(seqs) = index.by_session.get(&self.session_id) else { return Vec::new() };
        let first = seqs.partition_point(|seq| *seq <= self.after);
        seqs.range(first..).take_while(|seq| **seq <= readable).take(CHUNK).copied().collect()
    }

    fn fetch(&self, seqs: &[u64]) -> std::result::Result<Vec<StreamEvent>, Fault> {
        self.file.read(|read| {
            let table = read.open_table(tables::EVENTS)?;
            let mut events = Vec::new();
            for seq in seqs {
                // An event may expire between index and table.
                let Some(row) = table.get(*seq)? else { continue };
                let (_, event_type, payload) = row.value();
                if let Some(event_type) = EventType::from_token(event_type) {
                    events.push(StreamEvent { seq: *seq, event_type, payload: Bytes::copy_from_slice(payload) });
                }
            }
            Ok(events)
        })
    }
}
