//! What carries jobs to workers and events to channels.
//!
//! [`Queue`] is the seam; [`nats`] and [`embedded`] implement it. [`job`] and [`event`] are the payloads of CONTRACT.md.

pub mod message;

pub use message::Message;
use types::cause::Cause;
use types::event::{EventType, OutEvent};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use types::timestamp::Timestamp;

/// Why the queue did not do it.
#[derive(Debug, Error)]
pub enum QueueError {
    /// It cannot be reached or does not answer in time: the same call may succeed later.
    #[error("the queue is unavailable: {0}")]
    Unavailable(String),
    /// The stream, or the session's share of it, is full.
    #[error("the queue is full: {0}")]
    Full(String),
    /// The payload exceeds what the queue takes.
    #[error("a payload of {bytes} bytes is more than the queue takes ({limit} bytes)")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It refused the call.
    #[error("the queue refused: {0}")]
    Refused(String),
}

/// Places of each lane beyond `lane.max_depth`, which users' messages leave to operators' commands, due timers and wake-ups.
pub const LANE_RESERVE: u64 = 128;

/// The refusal of a user's message by a lane that holds `depth` jobs.
pub fn lane_is_full(session_id: &str, depth: u64, max_depth: u64) -> QueueError {
    QueueError::Full(format!(
        "session `{session_id}` has {depth} jobs waiting, and `lane.max_depth` is {max_depth}; send again when some are done, or raise it"
    ))
}

/// A result of the queue.
pub type Result<T> = std::result::Result<T, QueueError>;

/// A job on its way to the queue.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The lane.
    pub session_id: String,
    /// The queue drops a repeat under the same id within its window.
    pub msg_id: Option<String>,
    /// The job as JSON.
    pub payload: Bytes,
}

/// Where a published message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its sequence in the stream.
    pub seq: u64,
    /// It was dropped as a repeat.
    pub duplicate: bool,
}

/// A message handed to this process, which has to acknowledge it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// Names the delivery to the queue.
    pub token: DeliveryToken,
    /// False when nothing waited behind it, so that there is no use in asking for more at once.
    pub followed: bool,
}

/// Names a delivery to the queue that made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryToken(pub String);

/// An event as read from the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEvent {
    /// Its sequence, which is the event's id.
    pub seq: u64,
    /// Its type.
    pub event_type: EventType,
    /// The payload as published.
    pub payload: Bytes,
}

/// Where a reader of events begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With what comes from now on.
    Now,
    /// After this sequence; an id beyond the stream's end begins with the first retained event.
    After(u64),
}

/// A dead letter as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptLetter {
    /// Its sequence among the dead letters.
    pub seq: u64,
    /// When it was put there.
    pub at: Timestamp,
    /// What was put there.
    pub letter: DeadLetter,
}

/// A job that is given up (CONTRACT.md, "Dead letter").
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// Why, as a word.
    pub cause: Cause,
    /// Why, in words.
    pub reason: String,
    /// The subject that it came on.
    pub subject: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Its job id, where known.
    pub job_id: Option<String>,
    /// Drops a repeat.
    pub msg_id: String,
    /// The original bytes.
    pub payload: Bytes,
    /// The size of the original bytes, when the queue did not take all of them and `payload` is only their beginning.
    pub cut_from: Option<usize>,
}

/// The stream of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// When it was made: tells it from a stream of the same name that was there before. A sequence says nothing without it.
    pub made: Timestamp,
    /// The last sequence that it has given, whether that message is still there or not; 0 when it never had one.
    pub last_seq: u64,
}

/// The jobs that are not handled yet, waiting or in work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many there are.
    pub jobs: u64,
    /// When the stream took the oldest of them.
    pub oldest: Option<Timestamp>,
}

/// How much one stream, or the embedded file, holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// `jobs`, `out`, `dead`, or `file`.
    pub part: &'static str,
    /// Bytes on the disk.
    pub bytes: u64,
    /// The most bytes that it may hold, if it has a limit.
    pub max_bytes: Option<u64>,
}

/// A timer was armed that is due before the scheduler's next sweep would see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerHint;

/// A `cancel` has been put on a lane: whoever runs a turn there reads it, and ends the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelHint {
    /// The lane.
    pub session_id: String,
    /// The command's sequence in the stream.
    pub seq: u64,
}

/// A durable stream of jobs and one of events. "Durable" below means: as durable as the stream's replicas and its
/// server's fsync interval make it (in the embedded queue: synced to the file).
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Puts a job on its session's lane, as a part of the current trace. Durable on return. For operators' commands, timers and
    /// wake-ups: it may use the lane's reserve, [`LANE_RESERVE`] places beyond `lane.max_depth`.
    async fn publish(&self, job: Publish) -> Result<Published>;

    /// Puts a user's message on its session's lane like [`Queue::publish`], but refuses it when `lane.max_depth` jobs wait there, or
    /// the stream is nearly full. On NATS a few messages too many may pass, as many as other processes publish meanwhile.
    async fn publish_message(&self, job: Publish) -> Result<Published> {
        self.publish(job).await
    }

    /// Waits up to `wait` for a wake-up, then answers it with what else is there at once, `max` at most; empty when
    /// there was none. Without a `wait` it answers what is there. A delivery that is neither acknowledged nor kept alive comes again after the ack wait. Never
    /// dropped half-way: a caller that stops pulling awaits the answer first.
    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>>;

    /// The first message of a lane with a sequence above `after`, straight from the stream. `at_least` is a sequence
    /// that the caller knows to be in the lane (0: none): an answer that is empty or later is asked again, since a
    /// replica may be behind, and is accepted only from the stream's leader. Without a leader the call fails.
    async fn next_in_lane(&self, session_id: &str, after: u64, at_least: u64) -> Result<Option<Message>>;

    /// Removes a handled message from the lane. Not confirmed: a lost one leads to a redelivery, which the lane drops.
    async fn ack(&self, token: &DeliveryToken) -> Result<()>;

    /// Asks for a redelivery after `delay`.
    async fn nak(&self, token: &DeliveryToken, delay: Duration) -> Result<()>;

    /// Keeps deliveries from coming again for another ack wait.
    async fn progress(&self, tokens: &[DeliveryToken]) -> Result<()>;

    /// Which stream of jobs it is, and how far it has come, from the server that leads it. Messages read or delivered from
    /// now on name this stream.
    async fn stream(&self) -> Result<StreamState>;

    /// How much is not handled yet, over all lanes.
    async fn backlog(&self) -> Result<Backlog>;

    /// How much each stream, or the embedded file, holds now.
    async fn storage(&self) -> Result<Vec<Storage>> {
        Ok(Vec::new())
    }

    /// The most bytes of a payload that the queue takes now.
    fn max_payload(&self) -> usize;

    /// Publishes events in the given order. All durable on return.
    async fn emit(&self, events: Arc<[OutEvent]>) -> Result<()>;

    /// Events of one session, in stream order, without end.
    async fn events(&self, session_id: &str, from: From) -> Result<BoxStream<'static, Result<StreamEvent>>>;

    /// True when the streams hold something of the session: a job, or a retained event.
    async fn knows(&self, session_id: &str) -> Result<bool>;

    /// Puts a job to the dead letters. Durable on return. A payload that does not fit with its headers is cut.
    async fn dead(&self, letter: DeadLetter) -> Result<()>;

    /// Dead letters with a sequence above `after`, oldest first.
    async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<KeptLetter>>;

    /// The sequence of the last dead letter, whether it is still there or not; 0 when there never was one.
    async fn last_letter(&self) -> Result<u64>;

    /// Removes a dead letter; false when it is not there. Durable on return.
    async fn remove_letter(&self, seq: u64) -> Result<bool>;

    /// Tells every worker that a cancellation waits in a lane. May get lost: its delivery tells them again.
    async fn hint_cancel(&self, hint: CancelHint) -> Result<()>;

    /// Hints of cancellations from everybody, without end.
    async fn cancel_hints(&self) -> Result<BoxStream<'static, CancelHint>>;

    /// Tells the scheduler to look now. May get lost: the sweep sees the timer later.
    async fn hint_timers(&self) -> Result<()>;

    /// Hints from all workers, without end.
    async fn timer_hints(&self) -> Result<BoxStream<'static, TimerHint>>;

    /// An error when the queue cannot be reached.
    async fn ping(&self) -> Result<()>;
}
