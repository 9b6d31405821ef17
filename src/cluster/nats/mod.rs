//! The queue on NATS JetStream. [`NatsQueue`] implements [`Queue`].
//!
//! - [`fn@connect`]: connects with the settings of the process.
//! - [`streams`]: creates and checks the streams and the workers' consumer.
//! - [`lane`]: jobs, from publishing to acknowledging. [`message_limits`]: the limits for users' messages.
//! - [`out`]: events and dead letters. `event_log`: the events of all sessions. `purge`: deletion.
//! - `error`: converts the server's errors.

mod connection;
mod error;
mod event_log;
mod lane;
mod message_limits;
mod out;
mod purge;
pub mod streams;

pub use connection::connect;

use async_nats::Client;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use base::config::Settings;
use base::config::secrets::masked_address;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use message_limits::MessageLimits;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use storage::queue::{
    Backlog, CancelHint, DeadLetter, Delivery, DeliveryToken, From, Message, Publish, Published, Queue, QueueError,
    Result, Storage, StoredDeadLetter, StreamEvent, StreamState, TimerHint,
};
use streams::Names;
use tokio::sync::{RwLock, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::event::OutEvent;

/// The time limit of a request to the server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes of a message that are reserved for its headers, which the server counts as payload.
const HEADER_RESERVE: usize = 1_024;

/// The queue on NATS JetStream. Cheap to clone: clones share the connection.
#[derive(Clone)]
pub struct NatsQueue {
    client: Client,
    context: Context,
    names: Names,
    settings: Settings,
    /// The creation time of the job stream in milliseconds. Default job ids and delivery tokens contain it.
    created: Arc<AtomicI64>,
    /// The limits for users' messages.
    message_limits: MessageLimits,
    /// The consumer's sequence of the last delivery.
    delivered: Arc<AtomicU64>,
    /// The workers' consumer, after its first lookup.
    cached: Arc<RwLock<Option<PullConsumer>>>,
    /// When publishing events failed last.
    emit_failed: Arc<Mutex<Option<Instant>>>,
    /// One permit for each event that waits for its acknowledgement.
    events_in_flight: Arc<Semaphore>,
}

impl NatsQueue {
    /// Connects and creates missing streams. While the server is unreachable, the call retries and logs each failure,
    /// until `stop`. Fails when waiting cannot help, for example because of wrong credentials.
    pub async fn connect(settings: &Settings, stop: CancellationToken) -> Result<Self> {
        let mut pause = Duration::from_millis(200);
        loop {
            let problem = match Box::pin(Self::try_connect(settings)).await {
                Ok(queue) => return Ok(queue),
                Err(error @ QueueError::Refused(_)) => return Err(error),
                Err(error) => error,
            };
            warn!("NATS at nats.url = {} is unreachable, retrying: {problem}", masked_address(&settings.nats.url));
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
                () = stop.cancelled() => return Err(problem),
            }
        }
    }

    async fn try_connect(settings: &Settings) -> Result<Self> {
        let client = connect(settings).await?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(REQUEST_TIMEOUT);
        let names = Names::new(&settings.namespace);
        let (created, delivered, cached, emit_failed) =
            (Arc::default(), Arc::default(), Arc::default(), Arc::default());
        let (message_limits, settings) = (MessageLimits::new(settings), settings.clone());
        let events_in_flight = Arc::new(Semaphore::new(out::EVENTS_IN_FLIGHT));
        let queue = Self {
            client,
            context,
            names,
            settings,
            created,
            delivered,
            message_limits,
            cached,
            emit_failed,
            events_in_flight,
        };
        queue.ensure_streams().await?;
        info!("connected to NATS at {}", masked_address(&queue.settings.nats.url));
        Ok(queue)
    }
}

#[async_trait]
impl Queue for NatsQueue {
    async fn publish(&self, job: Publish) -> Result<Published> {
        self.publish_job(job).await
    }

    async fn publish_message(&self, job: Publish) -> Result<Published> {
        self.publish_user_message(job).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        self.pull_jobs(max, wait).await
    }

    async fn next_in_lane(&self, session_id: &str, after: u64, at_least: u64) -> Result<Option<Message>> {
        self.next_message(session_id, after, at_least).await
    }

    async fn ack(&self, token: &DeliveryToken) -> Result<()> {
        self.answer(token, Bytes::from_static(b"+ACK")).await
    }

    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> Result<()> {
        let answer =
            if delay.is_zero() { "-NAK".to_owned() } else { format!("-NAK {{\"delay\":{}}}", delay.as_nanos()) };
        self.answer(token, answer.into()).await
    }

    async fn progress(&self, tokens: &[DeliveryToken]) -> Result<()> {
        for token in tokens {
            self.answer(token, Bytes::from_static(b"+WPI")).await?;
        }
        self.client.flush().await.map_err(QueueError::unavailable)
    }

    async fn stream(&self) -> Result<StreamState> {
        self.job_stream().await
    }

    async fn backlog(&self) -> Result<Backlog> {
        self.read_backlog().await
    }

    async fn storage(&self) -> Result<Vec<Storage>> {
        self.stored_bytes().await
    }

    fn max_payload(&self) -> usize {
        self.client.max_payload().saturating_sub(HEADER_RESERVE)
    }

    async fn emit(&self, events: Arc<[OutEvent]>) -> Result<()> {
        self.emit_events(&events).await
    }

    async fn events(&self, session_id: &str, from: From) -> Result<BoxStream<'static, Result<StreamEvent>>> {
        self.read_events(session_id, from).await
    }

    async fn has_session(&self, session_id: &str) -> Result<bool> {
        Ok(self.next_message(session_id, 0, 0).await?.is_some() || self.has_events(session_id).await?)
    }

    async fn publish_dead_letter(&self, letter: DeadLetter) -> Result<()> {
        self.publish_dead_letter(letter).await
    }

    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<StoredDeadLetter>> {
        self.read_dead_letters(after, limit).await
    }

    async fn last_dead_letter_seq(&self) -> Result<u64> {
        self.last_dead_letter_seq().await
    }

    async fn remove_dead_letter(&self, seq: u64) -> Result<bool> {
        self.delete_dead_letter(seq).await
    }

    async fn hint_cancel(&self, hint: CancelHint) -> Result<()> {
        // Plain data with text keys always serializes.
        let payload = serde_json::to_vec(&hint).unwrap_or_default();
        self.client.publish(self.names.cancels.clone(), payload.into()).await.map_err(QueueError::unavailable)?;
        self.client.flush().await.map_err(QueueError::unavailable)
    }

    async fn cancel_hints(&self) -> Result<BoxStream<'static, CancelHint>> {
        let hints = self.client.subscribe(self.names.cancels.clone()).await.map_err(QueueError::unavailable)?;
        // Ignores what other programs publish on this subject.
        Ok(hints.filter_map(async |hint| serde_json::from_slice(&hint.payload).ok()).boxed())
    }

    async fn notify_scheduler(&self) -> Result<()> {
        self.client.publish(self.names.hints.clone(), Bytes::new()).await.map_err(QueueError::unavailable)
    }

    async fn timer_hints(&self) -> Result<BoxStream<'static, TimerHint>> {
        let hints = self.client.subscribe(self.names.hints.clone()).await.map_err(QueueError::unavailable)?;
        Ok(hints.map(|_| TimerHint).boxed())
    }

    async fn ping(&self) -> Result<()> {
        let stream = self.context.get_stream(&self.names.jobs).await;
        match stream {
            Ok(stream) => {
                self.notice(stream.cached_info());
                Ok(())
            }
            // The server responds, but its streams are missing: its storage is new, or an operator deleted them.
            Err(error) if error::is_missing(&error) => Box::pin(self.ensure_streams()).await,
            Err(error) => Err(QueueError::unavailable(error)),
        }
    }
}
