//! The queue in one file, for one process; the file is that of [`crate::store::embedded`]. [`jobs`] has the lanes and what is
//! handed out, [`events`] what channels read. What was handed out is in memory only: a restart hands everything out again.

mod events;
mod jobs;

use super::{
    DeadLetter, Delivery, DeliveryToken, From, Message, OutEvent, Publish, Published, Queue, QueueError, Result,
    StreamEvent, TimerHint,
};
use crate::clock;
use crate::config::Settings;
use crate::store::embedded::EmbeddedFile;
use crate::store::embedded::fault::Fault;
use crate::store::embedded::tables;
use async_trait::async_trait;
use events::Events;
use futures::StreamExt;
use futures::stream::BoxStream;
use jobs::Jobs;
use redb::ReadableTable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tokio_stream::wrappers::BroadcastStream;

/// The largest payload, as the gateway has it.
const MAX_PAYLOAD: usize = 1024 * 1024 + 64 * 1024;
/// How long message ids are remembered.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(3600);

/// See the module.
pub struct EmbeddedQueue {
    file: Arc<EmbeddedFile>,
    jobs: Arc<Mutex<Jobs>>,
    /// A job may be handed out now.
    arrived: Arc<Notify>,
    events: Events,
    hints: broadcast::Sender<()>,
    max_depth: u64,
    ack_wait: Duration,
}

impl EmbeddedQueue {
    /// The queue in `file`.
    pub fn new(file: Arc<EmbeddedFile>, settings: &Settings) -> Result<Self> {
        let jobs = jobs::load(&file)?;
        Ok(Self {
            events: Events::new(Arc::clone(&file), settings.retention.out.0)?,
            file,
            jobs: Arc::new(Mutex::new(jobs)),
            arrived: Arc::new(Notify::new()),
            hints: broadcast::channel(16).0,
            max_depth: settings.lane.max_depth,
            ack_wait: settings.worker.ack_wait.0,
        })
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        lock(&self.jobs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Queue for EmbeddedQueue {
    async fn publish(&self, job: Publish) -> Result<Published> {
        if job.payload.len() > MAX_PAYLOAD {
            return Err(QueueError::TooLarge { bytes: job.payload.len(), limit: MAX_PAYLOAD });
        }
        let now = clock::now();
        // The place in the order is taken here, under the lock; the writer keeps it, since it works in order of arrival.
        let (message, written) = {
            let mut jobs = self.jobs();
            if let Some(seq) = job.msg_id.as_deref().and_then(|id| jobs.known_id(id, now.minus(DUPLICATE_WINDOW))) {
                return Ok(Published { seq, duplicate: true });
            }
            if jobs.depth(&job.session_id) >= self.max_depth {
                return Err(QueueError::Full(format!(
                    "the session has lane.max_depth = {} messages waiting",
                    self.max_depth
                )));
            }
            let message = jobs.begin(job, now);
            let (row, jobs, arrived) = (message.clone(), Arc::clone(&self.jobs), Arc::clone(&self.arrived));
            let stored = message.clone();
            let written = self.file.write_then(
                move |tables| jobs::insert(tables, &row),
                move |()| {
                    lock(&jobs).arrive(stored);
                    arrived.notify_one();
                },
            );
            (message, written)
        };
        written.await?;
        Ok(Published { seq: message.seq, duplicate: false })
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let deadline = Instant::now() + wait;
        loop {
            let (deliveries, next) = self.jobs().hand_out(max, self.ack_wait);
            if !deliveries.is_empty() {
                // There may be more than this caller wanted.
                self.arrived.notify_one();
                return Ok(deliveries);
            }
            let until = next.map_or(deadline, |next| next.min(deadline));
            tokio::select! {
                () = self.arrived.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
            if Instant::now() >= deadline {
                return Ok(self.jobs().hand_out(max, self.ack_wait).0);
            }
        }
    }

    async fn next_in_lane(&self, session_id: &str, after: u64, _at_least: u64) -> Result<Option<Message>> {
        Ok(self.jobs().next_in_lane(session_id, after))
    }

    async fn ack(&self, token: &DeliveryToken) -> Result<()> {
        let acknowledged = self.jobs().acknowledge(token);
        if let Some(seq) = acknowledged {
            // A removal that is lost leads to a redelivery, which the lane drops.
            self.file.write_lazily(move |tables| {
                tables.jobs.remove(seq)?;
                Ok(())
            });
        }
        Ok(())
    }

    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> Result<()> {
        self.jobs().again_at(token, Instant::now() + delay);
        self.arrived.notify_one();
        Ok(())
    }

    async fn progress(&self, tokens: &[DeliveryToken]) -> Result<()> {
        let until = Instant::now() + self.ack_wait;
        let mut jobs = self.jobs();
        for token in tokens {
            jobs.again_at(token, until);
        }
        Ok(())
    }

    async fn emit(&self, events: Vec<OutEvent>) -> Result<()> {
        if let Some(large) = events.iter().find(|event| event.payload.len() > MAX_PAYLOAD) {
            return Err(QueueError::TooLarge { bytes: large.payload.len(), limit: MAX_PAYLOAD });
        }
        self.events.emit(events).await
    }

    async fn events(&self, session_id: &str, from: From) -> Result<BoxStream<'static, Result<StreamEvent>>> {
        self.events.read(session_id, from)
    }

    async fn knows(&self, session_id: &str) -> Result<bool> {
        Ok(self.jobs().next_in_lane(session_id, 0).is_some() || self.events.has(session_id))
    }

    async fn dead(&self, letter: DeadLetter) -> Result<()> {
        let headers = serde_json::json!({
            "Tw-Cause": letter.cause.as_str(),
            "Tw-Reason": letter.reason,
            "Tw-Subject": letter.subject,
            "Tw-Attempts": letter.attempts,
            "Tw-Job-Id": letter.job_id,
        });
        let at = clock::now().as_millis();
        let buried = self.file.write(move |tables| {
            let mut last = 0;
            for row in tables.dead.iter()? {
                let (seq, value) = row?;
                if value.value().1 == letter.msg_id {
                    return Ok(());
                }
                last = seq.value();
            }
            let headers = tables::encode("a dead letter", &headers)?;
            tables.dead.insert(last + 1, (at, letter.msg_id.as_str(), headers.as_slice(), letter.payload.as_ref()))?;
            Ok(())
        });
        Ok(buried.await?)
    }

    async fn hint_timers(&self) -> Result<()> {
        // Without a scheduler nobody listens.
        let _ = self.hints.send(());
        Ok(())
    }

    async fn timer_hints(&self) -> Result<BoxStream<'static, TimerHint>> {
        Ok(BroadcastStream::new(self.hints.subscribe()).map(|_| TimerHint).boxed())
    }

    async fn ping(&self) -> Result<()> {
        Ok(self.file.check()?)
    }
}

/// The next sequence of a stream, never used twice.
fn next_seq(tables: &mut tables::Tables<'_>, name: &'static str, at_least: u64) -> std::result::Result<(), Fault> {
    let last = tables.meta.get(name)?.map_or(0, |last| last.value());
    if at_least > last {
        tables.meta.insert(name, at_least)?;
    }
    Ok(())
}
