//! The contract of the queue, which carries jobs to workers and events to channels.
//!
//! [`Queue`] is the trait that the backends implement. [`Message`] is a job on its way to a worker, [`StreamEvent`] an
//! event for a reader, [`DeadLetter`] a job that the engine will not try again. The payloads are described in
//! `docs/contract/nats.md`.
//!
//! [`Purge`] deletes the messages of a session, [`EventLog`] reads the events of all sessions.

pub mod event_log;
pub mod message;
pub mod purge;

pub use event_log::{EventBounds, EventLog, LoggedEvent};
pub use message::Message;
pub use purge::Purge;
use types::cause::Cause;
use types::event::{EventType, OutEvent};

use async_trait::async_trait;
use base::error::SharedError;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use types::timestamp::Timestamp;

/// Why a call to the queue failed.
#[derive(Debug, Error)]
pub enum QueueError {
    /// The queue is unreachable or did not respond within its time limit. The call may have taken effect. The same call
    /// may succeed later.
    #[error("the queue is unavailable: {0}")]
    Unavailable(#[source] SharedError),
    /// The stream, or the lane of the session, has no room for the message. The message is not stored.
    #[error("the queue is full: {0}")]
    Full(#[source] SharedError),
    /// The payload is larger than the queue's limit. The message is not stored.
    #[error("the payload of {bytes} bytes exceeds the queue's limit of {limit} bytes")]
    TooLarge {
        /// The size of the payload in bytes.
        bytes: usize,
        /// The largest payload that the queue accepts, in bytes.
        limit: usize,
    },
    /// The queue rejected the call. The same call will fail again.
    #[error("the queue refused: {0}")]
    Refused(#[source] SharedError),
}

impl QueueError {
    /// Creates [`Self::Unavailable`] from an error or a text.
    pub fn unavailable(cause: impl Into<SharedError>) -> Self {
        Self::Unavailable(cause.into())
    }

    /// Creates [`Self::Full`] from an error or a text.
    pub fn full(cause: impl Into<SharedError>) -> Self {
        Self::Full(cause.into())
    }

    /// Creates [`Self::Refused`] from an error or a text.
    pub fn refused(cause: impl Into<SharedError>) -> Self {
        Self::Refused(cause.into())
    }
}

/// Places of each lane beyond `lane.max_depth`. They are reserved for operators' commands, due timers and wake-ups.
pub const LANE_RESERVE: u64 = 128;

/// Returns the error for a user's message whose lane already holds `depth` jobs.
pub fn lane_is_full(session_id: &str, depth: u64, max_depth: u64) -> QueueError {
    QueueError::full(format!(
        "session `{session_id}` has {depth} jobs waiting, and `lane.max_depth` is {max_depth}; retry when some are \
         processed, or raise it"
    ))
}

/// The result of a call to the queue.
pub type Result<T> = std::result::Result<T, QueueError>;

/// A job to be published.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The session whose lane the job belongs to.
    pub session_id: String,
    /// The id for deduplication. The queue drops a second message with the same id for one hour.
    pub msg_id: Option<String>,
    /// The job as JSON.
    pub payload: Bytes,
}

/// The queue's confirmation that it has stored a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The message's sequence in the stream. For a duplicate it is the sequence of the first message.
    pub seq: u64,
    /// True when the queue dropped the message because it already holds one with the same `msg_id`.
    pub duplicate: bool,
}

/// A message that the queue has handed to this process. The process must acknowledge it, or the queue redelivers it
/// after the ack wait.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The delivered message.
    pub message: Message,
    /// Identifies this delivery in [`Queue::ack`], [`Queue::nak`] and [`Queue::progress`].
    pub token: DeliveryToken,
    /// False when no further message was ready at the time of this delivery. An immediate second pull would then return
    /// nothing.
    pub more_pending: bool,
}

/// Identifies a delivery to the queue that made it. Opaque to callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryToken(pub String);

/// An event as a reader gets it from the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEvent {
    /// The event's sequence in the stream, which is also its id.
    pub seq: u64,
    /// The event's type, from its subject.
    pub event_type: EventType,
    /// The payload as published.
    pub payload: Bytes,
}

/// The position from which a reader of events starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Only events that are stored after the call.
    Now,
    /// The events after this sequence. A sequence beyond the end of the stream starts with the first retained event,
    /// since it belongs to a former stream.
    After(u64),
}

/// A stored dead letter.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDeadLetter {
    /// Its sequence in the stream of dead letters.
    pub seq: u64,
    /// When the stream stored it.
    pub at: Timestamp,
    /// The dead letter.
    pub letter: DeadLetter,
}

/// A job that the engine will not try again by itself, with the reason. `docs/contract/nats.md` has its headers.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// The kind of failure.
    pub cause: Cause,
    /// The reason, as a sentence for operators.
    pub reason: String,
    /// The subject on which the job was published.
    pub subject: String,
    /// The number of attempts that were made.
    pub attempts: u32,
    /// The job's id, when it is known.
    pub job_id: Option<String>,
    /// The id for deduplication. A second letter with the same id is dropped.
    pub msg_id: String,
    /// The job's payload, unchanged.
    pub payload: Bytes,
    /// The original size in bytes, when the queue could not hold the whole payload and `payload` is only its beginning.
    pub cut_from: Option<usize>,
}

/// The identity and the end of the stream of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// The creation time of the stream. It distinguishes the stream from an earlier one of the same name, so a sequence
    /// only counts together with it.
    pub created_at: Timestamp,
    /// The highest sequence that the stream has assigned, also when that message is already removed; 0 when there never
    /// was a message.
    pub last_seq: u64,
}

/// The jobs that are not processed yet, waiting or in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The number of these jobs.
    pub jobs: u64,
    /// When the stream stored the oldest of them.
    pub oldest: Option<Timestamp>,
}

/// The disk usage of one stream, of the database, or of the embedded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// `jobs`, `out`, `dead`, `mongodb` or `file`.
    pub part: &'static str,
    /// The bytes used on disk.
    pub bytes: u64,
    /// The limit in bytes; `None` when there is no limit.
    pub max_bytes: Option<u64>,
}

/// The hint that a timer was armed which is due before the scheduler's next sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerHint;

/// The hint that a `cancel` command waits in a lane, or that the session is being deleted. The lease holder reads the
/// command and ends the current turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelHint {
    /// The session whose lane holds the command.
    pub session_id: String,
    /// The command's sequence in the stream; 0 without a command.
    pub seq: u64,
    /// True if the session is being deleted: its lease holder has lost the lane, and all processes drop their copies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// A durable stream of jobs, one of events and one of dead letters.
///
/// *Durable* means: stored by the stream's replicas, and on disk as the servers' fsync interval has it. In the embedded
/// queue it means synced to the file.
///
/// *Errors.* Every call fails with [`QueueError::Unavailable`] when the queue is unreachable or does not respond within
/// its time limit. A write that failed so may have taken effect; repeat it under the same message id. The other errors
/// are named at the methods.
///
/// *Cancel safety.* A caller may drop the future of every call but [`Queue::pull`]. A dropped read has no effect. A
/// dropped write may still take effect.
#[async_trait]
pub trait Queue: Purge + EventLog + Send + Sync + 'static {
    /// Publishes a job on its session's lane, as part of the current trace. Durable on return.
    ///
    /// For operators' commands, timers and wake-ups: the call may use the lane's reserve, the [`LANE_RESERVE`] places
    /// beyond `lane.max_depth`. Fails with [`QueueError::Full`] when the lane or the stream is full, and with
    /// [`QueueError::TooLarge`] when the payload exceeds [`Queue::max_payload`].
    async fn publish(&self, job: Publish) -> Result<Published>;

    /// Publishes a user's message on its session's lane. Durable on return.
    ///
    /// Differs from [`Queue::publish`] in its limit: fails with [`QueueError::Full`] when `lane.max_depth` jobs wait in
    /// the lane, or when the stream is nearly full. On NATS the limit is not exact: other processes that publish
    /// concurrently may exceed it by a few messages.
    async fn publish_message(&self, job: Publish) -> Result<Published> {
        self.publish(job).await
    }

    /// Waits up to `wait` for a message, then returns it together with the messages that are ready, at most `max` in
    /// all. Returns an empty list when no message arrived. With a `wait` of zero the call returns only the messages
    /// that are ready.
    ///
    /// A message that is neither acknowledged nor kept alive by [`Queue::progress`] is redelivered after the ack wait.
    ///
    /// Not cancel safe: messages of a dropped call are lost to this process until their redelivery. A caller that stops
    /// pulling awaits the current call first.
    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>>;

    /// Returns the first message of a lane with a sequence above `after`, or `None` when the lane has no such message.
    /// Reads the stream directly, so the message need not be delivered to this process.
    ///
    /// `at_least` is a sequence that the caller knows to be in the lane, or 0. A replica may be behind: a response that
    /// is empty or skips `at_least` is therefore not trusted. The call repeats it and finally asks the stream's leader.
    /// It fails with [`QueueError::Unavailable`] when there is no leader, or when the leader has not seen `at_least`.
    async fn next_in_lane(&self, session_id: &str, after: u64, at_least: u64) -> Result<Option<Message>>;

    /// Acknowledges a delivery, which removes its message from the lane.
    ///
    /// Not confirmed and not durable on return: a lost acknowledgement causes a redelivery, and the lane drops it as
    /// already processed. A token of an earlier stream has no effect.
    async fn ack(&self, token: &DeliveryToken) -> Result<()>;

    /// Asks the queue to redeliver a message after `delay`. Not confirmed: when the request is lost, the queue
    /// redelivers the message after the ack wait.
    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> Result<()>;

    /// Restarts the ack wait of these deliveries, so that the queue does not redeliver them while their turns run. Not
    /// confirmed.
    async fn progress(&self, tokens: &[DeliveryToken]) -> Result<()>;

    /// Returns the creation time and the last sequence of the stream of jobs, from the server that leads the stream.
    /// Messages that are read or delivered after the call carry this creation time.
    async fn stream(&self) -> Result<StreamState>;

    /// Returns the number of jobs in all lanes that are not processed yet, and the age of the oldest.
    async fn backlog(&self) -> Result<Backlog>;

    /// Returns the disk usage of each stream, or of the embedded file. Empty when the backend has no figures.
    async fn storage(&self) -> Result<Vec<Storage>> {
        Ok(Vec::new())
    }

    /// Returns the largest payload in bytes that the queue accepts now. The servers may change it.
    fn max_payload(&self) -> usize;

    /// Publishes events in the given order. All of them are durable on return.
    ///
    /// The queue drops an event whose `msg_id` it already holds. After an error some of the events may be stored: the
    /// caller repeats the whole batch, and the queue drops the duplicates. Fails with [`QueueError::TooLarge`] when one
    /// payload exceeds the limit.
    async fn emit(&self, events: Arc<[OutEvent]>) -> Result<()>;

    /// Returns the events of one session in stream order. The stream does not end: it waits for further events. An item
    /// is an error when reading fails.
    async fn events(&self, session_id: &str, from: From) -> Result<BoxStream<'static, Result<StreamEvent>>>;

    /// Returns true when a stream holds anything of the session: a job, or a retained event.
    async fn has_session(&self, session_id: &str) -> Result<bool>;

    /// Stores a dead letter. Durable on return. A second letter with the same `msg_id` is dropped. A payload
    /// beyond the limit is cut, so that the letter does not block its lane. The limit is [`Queue::max_payload`]; on
    /// NATS it is the server's, which counts the letter's headers, too.
    async fn publish_dead_letter(&self, letter: DeadLetter) -> Result<()>;

    /// Returns at most `limit` dead letters with a sequence above `after`, oldest first.
    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<StoredDeadLetter>>;

    /// Returns the sequence of the last dead letter, also when that letter is already removed; 0 when there never was
    /// one.
    async fn last_dead_letter_seq(&self) -> Result<u64>;

    /// Removes a dead letter. The removal is durable on return. Returns false when the letter does not exist.
    async fn remove_dead_letter(&self, seq: u64) -> Result<bool>;

    /// Notifies all workers that a `cancel` command waits in a lane. A hint may get lost; the command's delivery then
    /// notifies the lease holder.
    async fn hint_cancel(&self, hint: CancelHint) -> Result<()>;

    /// Returns the hints about cancellations from all processes. The stream does not end.
    async fn cancel_hints(&self) -> Result<BoxStream<'static, CancelHint>>;

    /// Notifies the scheduler that a timer is due soon. A hint may get lost; the scheduler's next sweep then finds the
    /// timer.
    async fn notify_scheduler(&self) -> Result<()>;

    /// Returns the hints about timers from all processes. The stream does not end.
    async fn timer_hints(&self) -> Result<BoxStream<'static, TimerHint>>;

    /// Checks that the queue is reachable and usable. Fails with [`QueueError::Unavailable`] when it is not.
    async fn ping(&self) -> Result<()>;
}
