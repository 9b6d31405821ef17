//! The queue in the embedded file, for `turnwheel dev` and for tests. [`EmbeddedQueue`] implements [`Queue`].
//!
//! - [`state`]: the queue's memory, which is rebuilt when the file is opened.
//! - [`deliveries`]: waiting and in-flight jobs. [`window`]: recent message ids, for deduplication.
//! - [`events`]: events of a session, [`event_log`]: of all. `purge`: deletion. [`dead_letters`]: dead letters.

mod dead_letters;
mod deliveries;
mod event_log;
mod events;
mod purge;
mod state;
mod window;

use crate::store::{EmbeddedFile, FileFault, JOBS, Publisher, StoredEvent, Tables};
use async_trait::async_trait;
use base::clock::Moment;
use base::metrics::metrics;
use base::tasks::{OnPanic, Tasks};
use base::telemetry::TraceContext;
use bytes::Bytes;
use deliveries::TakenJob;
use futures::StreamExt;
use futures::stream::BoxStream;
use redb::ReadableTable;
use state::{PublishOutcome, State};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::message::Message;
use storage::queue::{
    Backlog, CancelHint, DeadLetter, Delivery, DeliveryToken, From, LANE_RESERVE, Publish, Published, Queue,
    QueueError, Result, Storage, StoredDeadLetter, StreamEvent, StreamState, TimerHint, lane_is_full,
};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tracing::warn;
use types::event::OutEvent;
use types::timestamp::Timestamp;

/// The largest payload in bytes: 1 MiB and some room for the fields that the gateway adds.
pub const MAX_PAYLOAD: usize = 1024 * 1024 + 64 * 1024;
/// The interval at which expired events, letters and ids are deleted.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(60);
/// How long dead letters are kept.
const DEAD_LETTER_RETENTION: Duration = Duration::from_secs(30 * 86_400);

/// The queue in an [`EmbeddedFile`]. A file has one queue.
#[derive(Debug)]
pub struct EmbeddedQueue {
    file: Arc<EmbeddedFile>,
    state: Arc<State>,
    hints: broadcast::Sender<TimerHint>,
    cancels: broadcast::Sender<CancelHint>,
    ack_wait: Duration,
    keep_events: Duration,
}

/// The jobs of one pull.
struct TakenJobs {
    jobs: Vec<TakenJob>,
    /// True if more jobs are ready.
    more: bool,
    /// When the next redelivery is due.
    next_due: Option<Moment>,
}

impl EmbeddedQueue {
    /// Opens the queue in `file`, and starts its housekeeping as one of `tasks`. All jobs that were not acknowledged
    /// are delivered again.
    pub async fn new(file: Arc<EmbeddedFile>, settings: &base::config::Settings, tasks: &Tasks) -> Result<Arc<Self>> {
        let state = Arc::new(State::load(&file, settings.lane.max_depth, settings.retention.out.0).await?);
        file.set_publisher(Arc::<State>::clone(&state));
        let queue = Arc::new(Self {
            file,
            state,
            hints: broadcast::channel(16).0,
            cancels: broadcast::channel(256).0,
            ack_wait: settings.worker.ack_wait.0,
            keep_events: settings.retention.out.0,
        });
        let (housekeeper, stop, clock) = (Arc::downgrade(&queue), tasks.stop_token(), queue.file.clock().clone());
        tasks.spawn("embedded queue housekeeping", OnPanic::Log, async move {
            while stop.run_until_cancelled(clock.sleep(HOUSEKEEPING_INTERVAL)).await.is_some() {
                // The task must not keep the file open.
                let Some(queue) = housekeeper.upgrade() else { return };
                if let Err(error) = queue.prune().await {
                    warn!("deleting expired events failed: {error}");
                }
            }
        });
        Ok(queue)
    }

    /// Deletes events, dead letters and message ids that are older than their retention. Returns the number of deleted
    /// events. The housekeeping calls this every minute.
    pub async fn prune(&self) -> Result<u64> {
        let now = self.file.clock().now();
        let (before, mut pruned) = (now.minus(self.keep_events), 0);
        loop {
            let state = Arc::clone(&self.state);
            let then = move |old: &Vec<StoredEvent>| {
                let mut inner = state.lock();
                old.iter().for_each(|(session, seq)| inner.remove_expired(session, *seq));
            };
            let old = self.file.write_then(move |tables| events::prune(tables, before), then).await?;
            pruned += old.len() as u64;
            if old.len() < events::PRUNE_BATCH {
                break;
            }
        }
        let (ids, letters) =
            (now.minus(window::DUPLICATE_WINDOW).as_millis(), now.minus(DEAD_LETTER_RETENTION).as_millis());
        while self.file.write(move |tables| prune_ids(tables, ids, letters)).await? {}
        Ok(pruned)
    }

    /// Takes up to `max` jobs.
    fn take(&self, max: usize) -> TakenJobs {
        let mut inner = self.state.lock();
        let before = inner.deliveries.next_due();
        let taken = inner.deliveries.take(max, self.file.clock().moment(), self.ack_wait);
        let next = inner.deliveries.next_due();
        let sooner = next.is_some_and(|next| before.is_none_or(|before| next < before));
        // Wakes another puller: it takes the rest, or waits for the new, earlier time.
        let more = inner.deliveries.has_ready();
        let tell = more || sooner;
        drop(inner);
        if tell && !taken.is_empty() {
            self.state.wake.notify_one();
        }
        TakenJobs { jobs: taken, more, next_due: next }
    }

    fn message(&self, table: &JobTable, seq: u64) -> std::result::Result<Option<Message>, FileFault> {
        Ok(table.get(seq)?.map(|row| {
            let (at, session, msg_id, payload) = row.value();
            Message {
                session_id: session.to_owned(),
                seq,
                stream: self.state.created_at(),
                payload: Bytes::copy_from_slice(payload),
                msg_id: msg_id.map(str::to_owned),
                default_id: format!("{}-{seq}", self.state.created),
                at: Timestamp::from_millis(at),
                trace: self.state.lock().deliveries.trace(seq),
            }
        }))
    }

    fn deliver(&self, taken: &[TakenJob], more_pending: bool) -> Result<Vec<Delivery>> {
        let again = taken.iter().filter(|one| one.delivered > 1).count();
        metrics().redeliveries.inc_by(again as u64);
        let deliveries = self.file.read(|read| {
            let table = read.open_table(JOBS)?;
            let mut deliveries = Vec::with_capacity(taken.len());
            for one in taken {
                let Some(message) = self.message(&table, one.seq)? else { continue };
                deliveries.push(Delivery { message, token: token(*one), more_pending });
            }
            Ok(deliveries)
        })?;
        Ok(deliveries)
    }

    /// Publishes a job unless its lane already holds `places` jobs.
    async fn publish_within(&self, job: Publish, places: u64) -> Result<Published> {
        check_size(&job.payload)?;
        let (state, ready) = (Arc::clone(&self.state), Arc::clone(&self.state));
        let (session_id, session) = (job.session_id.clone(), job.session_id.clone());
        let trace = TraceContext::current();
        let work = move |tables: &mut Tables<'_>| state.publish(tables, &job, places);
        let then = move |outcome: &PublishOutcome| {
            if let PublishOutcome::Stored(Published { seq, duplicate: false }) = outcome {
                ready.notify_published(&session, *seq, trace);
            }
        };
        match self.file.write_then(work, then).await? {
            PublishOutcome::Stored(published) => Ok(published),
            PublishOutcome::LaneFull { depth } => Err(lane_is_full(&session_id, depth, self.state.max_depth)),
        }
    }

    fn postpone(&self, token: &DeliveryToken, delay: Duration) -> Result<()> {
        let taken = parse(token)?;
        self.state.lock().deliveries.postpone(taken, self.file.clock().moment() + delay);
        Ok(())
    }
}

type JobTable = redb::ReadOnlyTable<u64, (i64, &'static str, Option<&'static str>, &'static [u8])>;

fn token(taken: TakenJob) -> DeliveryToken {
    DeliveryToken(format!("{}:{}", taken.seq, taken.delivered))
}

fn parse(token: &DeliveryToken) -> Result<TakenJob> {
    let parts = token.0.split_once(':').and_then(|(seq, delivered)| Some((seq.parse().ok()?, delivered.parse().ok()?)));
    let (seq, delivered) =
        parts.ok_or_else(|| QueueError::refused(format!("`{}` is not a delivery token of this queue", token.0)))?;
    Ok(TakenJob { seq, delivered })
}

fn check_size(payload: &Bytes) -> Result<()> {
    match payload.len() {
        bytes if bytes > MAX_PAYLOAD => Err(QueueError::TooLarge { bytes, limit: MAX_PAYLOAD }),
        _ => Ok(()),
    }
}

// Returns true when there may be more expired rows.
fn prune_ids(tables: &mut Tables<'_>, ids: i64, letters: i64) -> std::result::Result<bool, FileFault> {
    let mut old = Vec::new();
    for row in tables.job_ids.iter()?.take(events::PRUNE_BATCH) {
        let (seq, value) = row?;
        if value.value().0 >= ids {
            break;
        }
        old.push(seq.value());
    }
    for seq in &old {
        tables.job_ids.remove(seq)?;
    }
    let more = old.len() == events::PRUNE_BATCH;
    let mut old = Vec::new();
    for row in tables.dead.iter()?.take(events::PRUNE_BATCH) {
        let (seq, value) = row?;
        if value.value().0 >= letters {
            break;
        }
        old.push(seq.value());
    }
    for seq in &old {
        tables.dead.remove(seq)?;
    }
    Ok(more || old.len() == events::PRUNE_BATCH)
}

#[async_trait]
impl Queue for EmbeddedQueue {
    async fn publish(&self, job: Publish) -> Result<Published> {
        self.publish_within(job, self.state.max_depth.saturating_add(LANE_RESERVE)).await
    }

    async fn publish_message(&self, job: Publish) -> Result<Published> {
        self.publish_within(job, self.state.max_depth).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let clock = self.file.clock();
        let end = clock.moment() + wait;
        loop {
            self.file.check()?;
            let TakenJobs { jobs, more, next_due } = self.take(max);
            if !jobs.is_empty() {
                return self.deliver(&jobs, more);
            }
            if clock.moment() >= end || max == 0 {
                return Ok(Vec::new());
            }
            let until = next_due.map_or(end, |due| due.min(end));
            // The notifier keeps a notification that no puller awaited, so none is lost.
            tokio::select! {
                () = self.state.wake.notified() => {}
                () = clock.sleep_until(until) => {}
            }
        }
    }

    async fn next_in_lane(&self, session_id: &str, after: u64, _at_least: u64) -> Result<Option<Message>> {
        let mut after = after;
        loop {
            let Some(seq) = self.state.lock().deliveries.next(session_id, after) else { return Ok(None) };
            let message = self.file.read(|read| self.message(&read.open_table(JOBS)?, seq))?;
            if message.is_some() {
                return Ok(message);
            }
            // The job was acknowledged after the lookup in memory.
            after = seq;
        }
    }

    async fn ack(&self, token: &DeliveryToken) -> Result<()> {
        let seq = parse(token)?.seq;
        if self.state.lock().deliveries.remove(seq) {
            self.file.write_lazily(move |tables| {
                tables.jobs.remove(seq)?;
                Ok(())
            });
        }
        Ok(())
    }

    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> Result<()> {
        self.postpone(token, delay)?;
        self.state.wake.notify_one();
        Ok(())
    }

    async fn progress(&self, tokens: &[DeliveryToken]) -> Result<()> {
        tokens.iter().try_for_each(|token| self.postpone(token, self.ack_wait))
    }

    async fn stream(&self) -> Result<StreamState> {
        self.file.check()?;
        Ok(StreamState { created_at: self.state.created_at(), last_seq: self.state.lock().jobs.last() })
    }

    async fn backlog(&self) -> Result<Backlog> {
        let (jobs, first) = self.state.lock().deliveries.backlog();
        let Some(first) = first else { return Ok(Backlog::default()) };
        let message = self.file.read(|read| self.message(&read.open_table(JOBS)?, first))?;
        Ok(Backlog { jobs, oldest: message.map(|message| message.at) })
    }

    async fn storage(&self) -> Result<Vec<Storage>> {
        Ok(self.file.bytes().map(|bytes| Storage { part: "file", bytes, max_bytes: None }).into_iter().collect())
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    async fn emit(&self, events: Arc<[OutEvent]>) -> Result<()> {
        events.iter().try_for_each(|event| check_size(&event.payload))?;
        // A commit stores the events of its outbox itself, so they may already be there.
        if self.state.lock().has_all(&events, self.file.clock().now()) {
            return Ok(());
        }
        let (state, readers) = (Arc::clone(&self.state), Arc::clone(&self.state));
        let work = move |tables: &mut Tables<'_>| events::emit(tables, &state, &events);
        self.file.write_then(work, move |stored| readers.notify_emitted(stored)).await?;
        Ok(())
    }

    async fn events(&self, session_id: &str, from: From) -> Result<BoxStream<'static, Result<StreamEvent>>> {
        self.file.check()?;
        Ok(events::subscribe(Arc::clone(&self.file), Arc::clone(&self.state), session_id, from))
    }

    async fn has_session(&self, session_id: &str) -> Result<bool> {
        Ok(self.state.lock().has_session(session_id))
    }

    async fn publish_dead_letter(&self, letter: DeadLetter) -> Result<()> {
        let state = Arc::clone(&self.state);
        Ok(self.file.write(move |tables| dead_letters::put(tables, &state, &letter)).await?)
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<StoredDeadLetter>> {
        dead_letters::list(&self.file, after, limit)
    }

    async fn last_dead_letter_seq(&self) -> Result<u64> {
        Ok(self.state.lock().dead.last())
    }

    async fn remove_dead_letter(&self, seq: u64) -> Result<bool> {
        Ok(self.file.write(move |tables| Ok(tables.dead.remove(seq)?.is_some())).await?)
    }

    async fn hint_cancel(&self, hint: CancelHint) -> Result<()> {
        // Sending fails only when no worker listens.
        let _ = self.cancels.send(hint);
        Ok(())
    }

    async fn cancel_hints(&self) -> Result<BoxStream<'static, CancelHint>> {
        // A missed hint is harmless: the command's delivery notifies the worker, too.
        Ok(BroadcastStream::new(self.cancels.subscribe()).filter_map(async |hint| hint.ok()).boxed())
    }

    async fn notify_scheduler(&self) -> Result<()> {
        // Sending fails only when no scheduler listens.
        let _ = self.hints.send(TimerHint);
        Ok(())
    }

    async fn timer_hints(&self) -> Result<BoxStream<'static, TimerHint>> {
        // A lag counts as one hint: the scheduler looks at all timers anyway.
        Ok(BroadcastStream::new(self.hints.subscribe()).map(|_| TimerHint).boxed())
    }

    async fn ping(&self) -> Result<()> {
        Ok(self.file.check()?)
    }
}
