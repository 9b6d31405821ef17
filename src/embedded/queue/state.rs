//! The queue's memory: deliveries, the index of events, recent message ids, and readers that wait. It is rebuilt when
//! the file is opened.

use super::deliveries::Deliveries;
use super::events;
use super::window::{DUPLICATE_WINDOW, DuplicateWindow};
use crate::store::{DEAD, EVENT_INDEX, EmbeddedFile, FileFault, JOB_IDS, JOBS, META, Publisher, StoredEvent, Tables};
use base::telemetry::TraceContext;
use redb::ReadableTable;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::queue::{From, Publish, Published};
use tokio::sync::{Notify, watch};
use types::event::OutEvent;
use types::timestamp::Timestamp;

/// The names in the table `meta` of the job stream's creation time and of the last sequences.
const JOBS_CREATED: &str = "jobs_created";
const JOBS_LAST: &str = "jobs_last";
pub(super) const EVENTS_LAST: &str = "events_last";
pub(super) const DEAD_LAST: &str = "dead_last";

/// The memory of one queue.
#[derive(Debug)]
pub(super) struct State {
    inner: Mutex<Inner>,
    /// Notified when a job is ready, or when the next redelivery is earlier than before.
    pub(super) wake: Notify,
    /// The creation time of the job stream, in milliseconds.
    pub(super) created: u64,
    /// The setting `lane.max_depth`.
    pub(super) max_depth: u64,
}

/// Whether the queue has stored a job.
pub(super) enum PublishOutcome {
    /// The job is stored, or an earlier message with its id is.
    Stored(Published),
    /// The job is not stored, because its lane already holds `depth` jobs.
    LaneFull { depth: u64 },
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) deliveries: Deliveries,
    /// The number of jobs in the current batch of the writer, by lane. They are not in `deliveries` yet.
    reserved: HashMap<String, u64>,
    pub(super) jobs: Counter,
    pub(super) events: Counter,
    pub(super) dead: Counter,
    /// The sequences of the retained events, by session.
    index: HashMap<String, VecDeque<u64>>,
    /// The sequence of the last event on disk.
    last_event: u64,
    readers: HashMap<String, watch::Sender<u64>>,
    /// The last event on disk, for readers of all sessions.
    all: watch::Sender<u64>,
}

/// The last sequence and the recent message ids of one stream.
#[derive(Debug, Default)]
pub(super) struct Counter {
    last: u64,
    window: DuplicateWindow,
}

impl Counter {
    /// Returns the next sequence, or for a duplicate the sequence of the first message.
    pub(super) fn next(&mut self, id: Option<&str>, now: Timestamp) -> Published {
        if let Some(seq) = id.and_then(|id| self.window.find(id, now)) {
            return Published { seq, duplicate: true };
        }
        self.last += 1;
        if let Some(id) = id {
            self.window.insert(id, self.last, now);
        }
        Published { seq: self.last, duplicate: false }
    }

    /// Returns the last assigned sequence.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    fn find(&mut self, id: Option<&str>, now: Timestamp) -> Option<u64> {
        id.and_then(|id| self.window.find(id, now))
    }
}

impl State {
    /// Builds the state from the file.
    pub(super) async fn load(file: &EmbeddedFile, max_depth: u64, keep_events: Duration) -> Result<Self, FileFault> {
        let now = file.clock().now();
        let created = file
            .write(move |tables| {
                let known = tables.meta.get(JOBS_CREATED)?.map(|created| created.value());
                let created = known.unwrap_or_else(|| now.as_millis().unsigned_abs());
                tables.meta.insert(JOBS_CREATED, created)?;
                Ok(created)
            })
            .await?;
        let inner = file.read(|read| Inner::load(read, now, keep_events))?;
        Ok(Self { inner: Mutex::new(inner), wake: Notify::new(), created, max_depth })
    }

    /// Returns the creation time of the job stream.
    pub(super) fn created_at(&self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.created).unwrap_or(i64::MAX))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a job, unless it is a duplicate or its lane already holds `places` jobs.
    pub(super) fn publish(
        &self,
        tables: &mut Tables<'_>,
        job: &Publish,
        places: u64,
    ) -> Result<PublishOutcome, FileFault> {
        let (now, session, id) = (tables.clock.now(), job.session_id.as_str(), job.msg_id.as_deref());
        let seq = {
            let mut inner = self.lock();
            if let Some(seq) = inner.jobs.find(id, now) {
                return Ok(PublishOutcome::Stored(Published { seq, duplicate: true }));
            }
            let depth = inner.deliveries.depth(session) + inner.reserved.get(session).copied().unwrap_or(0);
            if depth >= places {
                return Ok(PublishOutcome::LaneFull { depth });
            }
            *inner.reserved.entry(session.to_owned()).or_default() += 1;
            inner.jobs.next(id, now).seq
        };
        tables.pending_rows.counter(JOBS_LAST, seq);
        tables.jobs.insert(seq, (now.as_millis(), session, id, &*job.payload))?;
        if let Some(id) = id {
            tables.pending_rows.job_id(now, seq, id);
        }
        Ok(PublishOutcome::Stored(Published { seq, duplicate: false }))
    }

    /// Makes a job deliverable, after it is on disk.
    pub(super) fn notify_published(&self, session: &str, seq: u64, trace: Option<TraceContext>) {
        let mut inner = self.lock();
        if let Some(reserved) = inner.reserved.get_mut(session) {
            *reserved -= 1;
            if *reserved == 0 {
                inner.reserved.remove(session);
            }
        }
        inner.deliveries.add(seq, session, trace);
        drop(inner);
        self.wake.notify_one();
    }
}

impl Publisher for State {
    fn emit(&self, tables: &mut Tables<'_>, events: &[OutEvent]) -> Result<Vec<StoredEvent>, FileFault> {
        events::emit(tables, self, events)
    }

    fn notify_emitted(&self, stored: &[StoredEvent]) {
        self.lock().notify_emitted(stored);
    }
}

impl Inner {
    fn load(read: &redb::ReadTransaction, now: Timestamp, keep_events: Duration) -> Result<Self, FileFault> {
        let mut inner = Self::default();
        // After its retention, the id of an event may be used again.
        inner.events.window = DuplicateWindow::new(DUPLICATE_WINDOW.min(keep_events));
        let [jobs_start, events_start, dead_start] =
            [&inner.jobs, &inner.events, &inner.dead].map(|counter| counter.window.start(now).as_millis());
        let meta = read.open_table(META)?;
        let last = |name| -> Result<u64, FileFault> { Ok(meta.get(name)?.map_or(0, |last| last.value())) };
        inner.jobs.last = last(JOBS_LAST)?;
        inner.events.last = last(EVENTS_LAST)?;
        inner.dead.last = last(DEAD_LAST)?;
        inner.last_event = inner.events.last;
        for row in read.open_table(JOBS)?.iter()? {
            let (seq, job) = row?;
            inner.deliveries.add(seq.value(), job.value().1, None);
        }
        for row in read.open_table(JOB_IDS)?.iter()? {
            let row = row?;
            let (at, ids) = row.1.value();
            for (seq, id) in ids.into_iter().filter(|_| at >= jobs_start) {
                inner.jobs.window.insert(id, seq, Timestamp::from_millis(at));
            }
        }
        for row in read.open_table(EVENT_INDEX)?.iter()? {
            let row = row?;
            let (at, events) = row.1.value();
            // A deleted event has no session.
            for (seq, session, id) in events.into_iter().filter(|(_, session, _)| !session.is_empty()) {
                inner.index_event(session, seq);
                if let Some(id) = id.filter(|_| at >= events_start) {
                    inner.events.window.insert(id, seq, Timestamp::from_millis(at));
                }
            }
        }
        for row in read.open_table(DEAD)?.iter()? {
            let (seq, value) = row?;
            let (at, id, ..) = value.value();
            if at >= dead_start {
                inner.dead.window.insert(id, seq.value(), Timestamp::from_millis(at));
            }
        }
        Ok(inner)
    }

    fn index_event(&mut self, session: &str, seq: u64) {
        match self.index.get_mut(session) {
            Some(seqs) => seqs.push_back(seq),
            None => drop(self.index.insert(session.to_owned(), VecDeque::from([seq]))),
        }
    }

    /// True when all of these events are on disk.
    pub(super) fn has_all(&mut self, events: &[OutEvent], now: Timestamp) -> bool {
        let last = self.last_event;
        events.iter().all(|event| self.events.find(event.msg_id.as_deref(), now).is_some_and(|seq| seq <= last))
    }

    /// Adds events to the index and notifies their readers, after the events are on disk.
    pub(super) fn notify_emitted(&mut self, stored: &[StoredEvent]) {
        for (session, seq) in stored {
            self.index_event(session, *seq);
            self.last_event = self.last_event.max(*seq);
            if self.readers.get(session).is_some_and(|reader| reader.send(*seq).is_err()) {
                // The last reader of this session is gone.
                self.readers.remove(session);
            }
        }
        if !stored.is_empty() {
            self.all.send_replace(self.last_event);
        }
    }

    /// The sequence of the last event on disk.
    pub(super) fn last_event(&self) -> u64 {
        self.last_event
    }

    /// Returns the channel that notifies a reader of all sessions of new events.
    pub(super) fn follow(&self) -> watch::Receiver<u64> {
        self.all.subscribe()
    }

    /// Removes an expired event, and all earlier ones, from the index.
    pub(super) fn remove_expired(&mut self, session: &str, seq: u64) {
        if let Some(seqs) = self.index.get_mut(session) {
            while seqs.front().is_some_and(|first| *first <= seq) {
                seqs.pop_front();
            }
            if seqs.is_empty() {
                self.index.remove(session);
            }
        }
    }

    /// Returns the sequence after which a reader begins, and the channel that notifies it of new events.
    pub(super) fn subscribe(&mut self, session: &str, from: From) -> (u64, watch::Receiver<u64>) {
        let after = match from {
            From::Now => self.last_event,
            From::After(seq) if seq > self.last_event => 0,
            From::After(seq) => seq,
        };
        // Also drops the readers that are gone, since their sessions may never emit again.
        self.readers.retain(|_, reader| reader.receiver_count() > 0);
        let reader = self.readers.entry(session.to_owned()).or_insert_with(|| watch::Sender::new(0));
        (after, reader.subscribe())
    }

    /// Returns up to `max` sequences of a session's events above `after`.
    pub(super) fn events_after(&self, session: &str, after: u64, max: usize) -> Vec<u64> {
        let Some(seqs) = self.index.get(session) else { return Vec::new() };
        let start = seqs.partition_point(|seq| *seq <= after);
        seqs.range(start..).take(max).copied().collect()
    }

    /// Returns the sequences of all retained events of a session.
    pub(super) fn all_events(&self, session: &str) -> Vec<u64> {
        self.index.get(session).map(|seqs| seqs.iter().copied().collect()).unwrap_or_default()
    }

    /// True when the queue holds a job or an event of the session.
    pub(super) fn has_session(&self, session: &str) -> bool {
        self.deliveries.depth(session) > 0 || self.index.contains_key(session)
    }
}
