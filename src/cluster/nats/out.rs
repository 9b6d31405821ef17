//! Events and dead letters.

use super::NatsQueue;
use super::error;
use super::lane::{headers, stored_at};
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, future};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use storage::queue::{self, DeadLetter, From, QueueError, StoredDeadLetter, StreamEvent};
use tracing::warn;
use types::cause::Cause;
use types::event::{EventType, OutEvent};

/// Events that a reader has in memory before its client takes them. An event has up to 4 MiB, and a gateway thousands of
/// readers.
const EVENTS_AHEAD: i64 = 16;
/// How long events are published one by one after a failure. It is longer than the election of a leader takes, and
/// longer than a failed job waits for its retry.
const CAUTION_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// How many events of all callers wait for their acknowledgements. The NATS client itself lets 5,000 publications wait, and
/// gives each a permit when it is sent. Callers that held some permits each while they waited for more would wait for one
/// another, so a caller reserves those of a whole group here first.
pub(super) const EVENTS_IN_FLIGHT: usize = 4_096;

/// The most events that a caller sends before it awaits their acknowledgements.
const GROUP: usize = 512;

/// The header with the original size of a dead letter's payload that was cut.
const PAYLOAD_BYTES: &str = "Tw-Payload-Bytes";

impl NatsQueue {
    /// Publishes events in order and awaits their acknowledgements. Usually a whole group is sent before its first
    /// acknowledgement. For [`CAUTION_AFTER_FAILURE`] after a failure, each event waits for the acknowledgement of the
    /// previous one: when an event is lost, no later event may be stored before its repeat.
    pub(super) async fn emit_events(&self, events: &[OutEvent]) -> queue::Result<()> {
        let shaken = self.failed_at().is_some_and(|at| at.elapsed() < CAUTION_AFTER_FAILURE);
        let published = if shaken { self.emit_singly(events).await } else { self.emit_in_groups(events).await };
        if matches!(published, Err(QueueError::Unavailable(_))) {
            *self.failed_at() = Some(Instant::now());
        }
        published
    }

    fn failed_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.emit_failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn emit_singly(&self, events: &[OutEvent]) -> queue::Result<()> {
        for event in events {
            let headers = headers(event.msg_id.as_deref());
            self.put(self.subject_of(event), headers, event.payload.clone()).await?;
        }
        Ok(())
    }

    async fn emit_in_groups(&self, events: &[OutEvent]) -> queue::Result<()> {
        for group in events.chunks(GROUP) {
            let permits = u32::try_from(group.len()).unwrap_or(u32::MAX);
            let _permits = self.events_in_flight.acquire_many(permits).await.map_err(QueueError::unavailable)?;
            self.emit_together(group).await?;
        }
        Ok(())
    }

    async fn emit_together(&self, events: &[OutEvent]) -> queue::Result<()> {
        let largest = events.iter().map(|event| event.payload.len()).max().unwrap_or_default();
        let refused = |error| error::publish(error, largest, self.client.max_payload());
        for attempt in 0..2 {
            let mut acks = Vec::with_capacity(events.len());
            for event in events {
                let (subject, headers) = (self.subject_of(event), headers(event.msg_id.as_deref()));
                let sent = self.context.publish_with_headers(subject, headers, event.payload.clone()).await;
                acks.push(sent.map_err(refused)?);
            }
            match acknowledged(acks).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == PublishErrorKind::StreamNotFound && attempt == 0 => {
                    Box::pin(self.ensure_streams()).await?;
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(())
    }

    fn subject_of(&self, event: &OutEvent) -> String {
        self.names.event(&event.channel, &event.session_id, event.event_type.as_str())
    }

    pub(super) async fn read_events(
        &self,
        session_id: &str,
        from: From,
    ) -> queue::Result<BoxStream<'static, queue::Result<StreamEvent>>> {
        let stream = self.context.get_stream(&self.names.out).await.map_err(QueueError::unavailable)?;
        let last = stream.cached_info().state.last_sequence;
        let deliver_policy = match from {
            From::Now => DeliverPolicy::New,
            From::After(seq) if seq == 0 || seq > last => DeliverPolicy::All,
            From::After(seq) => DeliverPolicy::ByStartSequence { start_sequence: seq + 1 },
        };
        let config = pull::OrderedConfig {
            filter_subject: self.names.event("*", session_id, "*"),
            deliver_policy,
            max_batch: EVENTS_AHEAD,
            ..pull::OrderedConfig::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(QueueError::unavailable)?;
        let messages = consumer.messages().await.map_err(QueueError::unavailable)?;
        let events = messages.filter_map(|message| {
            future::ready(match message {
                Ok(message) => event(&message).map(Ok),
                Err(error) => Some(Err(QueueError::unavailable(error))),
            })
        });
        Ok(events.boxed())
    }

    pub(super) async fn has_events(&self, session_id: &str) -> queue::Result<bool> {
        let stream = self.context.get_stream_no_info(&self.names.out).await.map_err(QueueError::unavailable)?;
        let subject = self.names.event("*", session_id, "*");
        let mut subjects = stream.info_with_subjects(subject).await.map_err(QueueError::unavailable)?;
        Ok(subjects.next().await.is_some())
    }

    /// Stores a dead letter. Cuts a payload that is too large, since the letter must not block its lane.
    pub(super) async fn publish_dead_letter(&self, letter: DeadLetter) -> queue::Result<()> {
        let (subject, mut headers) = (self.names.dead_letter(letter.cause.as_str()), letter_headers(&letter));
        let whole = letter.payload.len();
        let limit = match self.put(subject.clone(), headers.clone(), letter.payload.clone()).await {
            Err(QueueError::TooLarge { limit, .. }) => limit,
            stored => return stored.map(|_| ()),
        };
        headers.insert(PAYLOAD_BYTES, whole.to_string().as_str());
        let room = limit.saturating_sub(size(&headers)).min(whole);
        let cut = match self.put(subject.clone(), headers.clone(), letter.payload.slice(..room)).await {
            // The stream's limit may be below the server's.
            Err(QueueError::TooLarge { .. }) => self.put(subject, headers, Bytes::new()).await,
            cut => cut,
        };
        warn!(msg_id = letter.msg_id, "the payload of a dead letter was cut because it is too large: {whole} bytes");
        cut.map(|_| ())
    }

    pub(super) async fn read_dead_letters(&self, after: u64, limit: usize) -> queue::Result<Vec<StoredDeadLetter>> {
        let subject = self.names.dead_letter("*");
        let (mut letters, mut after) = (Vec::new(), after);
        while letters.len() < limit {
            let Some(message) = self.direct_get(&self.names.dead, &subject, after.saturating_add(1)).await? else {
                break;
            };
            after = message.sequence;
            letters.extend(letter(&message));
        }
        Ok(letters)
    }
}

impl NatsQueue {
    pub(super) async fn last_dead_letter_seq(&self) -> queue::Result<u64> {
        let stream = self.context.get_stream(&self.names.dead).await.map_err(QueueError::unavailable)?;
        Ok(stream.cached_info().state.last_sequence)
    }

    pub(super) async fn delete_dead_letter(&self, seq: u64) -> queue::Result<bool> {
        let stream = self.context.get_stream_no_info(&self.names.dead).await.map_err(QueueError::unavailable)?;
        let error = match stream.delete_message(seq).await {
            Ok(removed) => return Ok(removed),
            Err(error) => error,
        };
        // The server's error for a missing message differs between its versions.
        let found = self.direct_get(&self.names.dead, &self.names.dead_letter("*"), seq).await?;
        if found.is_some_and(|found| found.sequence == seq) { Err(QueueError::unavailable(error)) } else { Ok(false) }
    }
}

fn letter_headers(letter: &DeadLetter) -> HeaderMap {
    let mut headers = headers(Some(&letter.msg_id));
    // The value of a header is one line.
    let line = |text: &str| text.replace(['\r', '\n'], " ");
    headers.insert("Tw-Cause", letter.cause.as_str());
    headers.insert("Tw-Reason", line(&letter.reason).as_str());
    headers.insert("Tw-Subject", line(&letter.subject).as_str());
    headers.insert("Tw-Attempts", letter.attempts.to_string().as_str());
    if let Some(job_id) = &letter.job_id {
        headers.insert("Tw-Job-Id", line(job_id).as_str());
    }
    headers
}

/// The number of bytes that the headers take in a message.
fn size(headers: &HeaderMap) -> usize {
    const FRAME: usize = "NATS/1.0\r\n\r\n".len();
    let line = |name: &str, value: &str| name.len() + ": ".len() + value.len() + "\r\n".len();
    let lines = headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    FRAME + lines.map(|(name, value)| line(name.as_ref(), value.as_str())).sum::<usize>()
}

/// Awaits the last acknowledgement first. They arrive in order, so the turn wakes up once instead of for each of them.
async fn acknowledged(acks: Vec<PublishAckFuture>) -> Result<(), PublishError> {
    for ack in acks.into_iter().rev() {
        ack.await?;
    }
    Ok(())
}

/// Decodes a letter that [`NatsQueue::publish_dead_letter`] wrote; `None` for other messages.
fn letter(message: &StreamMessage) -> Option<StoredDeadLetter> {
    let header = |name: &str| message.headers.get(name).map(ToString::to_string);
    let letter = DeadLetter {
        cause: Cause::from_token(message.subject.rsplit('.').next()?)?,
        reason: header("Tw-Reason")?,
        subject: header("Tw-Subject")?,
        attempts: header("Tw-Attempts")?.parse().ok()?,
        job_id: header("Tw-Job-Id"),
        msg_id: header("Nats-Msg-Id").unwrap_or_default(),
        payload: message.payload.clone(),
        cut_from: header(PAYLOAD_BYTES).and_then(|bytes| bytes.parse().ok()),
    };
    Some(StoredDeadLetter { seq: message.sequence, at: stored_at(message), letter })
}

fn event(message: &async_nats::jetstream::Message) -> Option<StreamEvent> {
    let event_type = EventType::from_token(message.subject.rsplit('.').next()?)?;
    let seq = message.info().ok()?.stream_sequence;
    Some(StreamEvent { seq, event_type, payload: message.payload.clone() })
}
