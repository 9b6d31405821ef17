//! Jobs: publishing, pulling, and reading a lane directly from the stream.

use super::error;
use super::{NatsQueue, REQUEST_TIMEOUT};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, RawMessageErrorKind};
use async_nats::{HeaderMap, jetstream};
use base::error::SharedError;
use base::metrics::metrics;
use base::telemetry::TraceContext;
use base::telemetry::trace_context::{TRACEPARENT, TRACESTATE};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::queue::{Backlog, Delivery, DeliveryToken, Message, Publish, Published, QueueError, Result};
use types::timestamp::Timestamp;

/// How often a response that is behind is requested again, before the stream's leader is asked.
const LAGGING_RETRIES: u32 = 5;
/// How long a response to a pull may take after the request has ended. A server that goes down loses the request, and
/// no other server responds to it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The largest distance by which the deliveries of two concurrent pulls may be out of order.
const MAX_DISORDER: u64 = 4_096;
const MSG_ID: &str = "Nats-Msg-Id";
const NO_RESPONSE: &str = "nats-server did not respond to a pull request: it is down, or does not let this user pull";

impl NatsQueue {
    pub(super) async fn publish_job(&self, job: Publish) -> Result<Published> {
        let ack = self.put(self.names.job(&job.session_id), headers(job.msg_id.as_deref()), job.payload).await?;
        Ok(Published { seq: ack.sequence, duplicate: ack.duplicate })
    }

    /// Publishes a message and awaits the acknowledgement. When the stream is missing, creates the streams and
    /// publishes once more.
    pub(super) async fn put(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<jetstream::publish::PublishAck> {
        let (bytes, limit) = (payload.len(), self.client.max_payload());
        let send = || async {
            let sent = self.context.publish_with_headers(subject.clone(), headers.clone(), payload.clone()).await?;
            sent.await
        };
        match send().await {
            Ok(ack) => Ok(ack),
            Err(error) if error.kind() == jetstream::context::PublishErrorKind::StreamNotFound => {
                Box::pin(self.ensure_streams()).await?;
                send().await.map_err(|error| error::publish(error, bytes, limit))
            }
            Err(error) => Err(error::publish(error, bytes, limit)),
        }
    }

    pub(super) async fn pull_jobs(&self, max: usize, wait: Duration) -> Result<Vec<Delivery>> {
        let consumer = self.workers().await?;
        // Awaits the first message until the request has ended: a message for a dropped request would only come back
        // with its redelivery.
        let mut deliveries = Vec::new();
        if !wait.is_zero() {
            let mut first =
                consumer.batch().max_messages(1).expires(wait).messages().await.map_err(|e| self.lost(e))?;
            loop {
                match tokio::time::timeout(wait + RESPONSE_TIMEOUT, first.next()).await {
                    Ok(Some(message)) => {
                        deliveries.push(self.delivery(&message.map_err(|error| self.lost(error))?).await?);
                    }
                    // The server ends every request, also one without a message, so silence means that it is down.
                    Err(_) if deliveries.is_empty() => return Err(self.lost(NO_RESPONSE)),
                    Ok(None) | Err(_) => break,
                }
            }
            if deliveries.is_empty() || max <= 1 {
                return Ok(deliveries);
            }
        }
        let mut more = match consumer.fetch().max_messages(max - deliveries.len()).messages().await {
            Ok(more) => more,
            Err(_) => return Ok(deliveries),
        };
        while let Some(Ok(message)) = answered(more.next(), RESPONSE_TIMEOUT).await {
            deliveries.push(self.delivery(&message).await?);
        }
        Ok(deliveries)
    }

    /// Returns the consumer, from the cache if possible.
    async fn workers(&self) -> Result<PullConsumer> {
        if let Some(consumer) = self.cached.read().await.clone() {
            return Ok(consumer);
        }
        let consumer = self.consumer().await?;
        *self.cached.write().await = Some(consumer.clone());
        Ok(consumer)
    }

    /// Converts the error of a failed pull. Clears the cached consumer, because it may not exist any longer.
    fn lost(&self, error: impl Into<SharedError>) -> QueueError {
        if let Ok(mut cached) = self.cached.try_write() {
            *cached = None;
        }
        QueueError::unavailable(error)
    }

    async fn delivery(&self, message: &jetstream::Message) -> Result<Delivery> {
        let info = message.info().map_err(QueueError::unavailable)?;
        if info.delivered > 1 {
            metrics().redeliveries.inc();
        }
        let before = self.delivered.swap(info.consumer_sequence, Ordering::Relaxed);
        if info.consumer_sequence.saturating_add(MAX_DISORDER) < before {
            // The consumer's sequence restarted, so it is a new consumer, possibly of a new stream.
            self.job_stream().await?;
        }
        let reply = message.reply.as_ref().map(|reply| reply.as_str()).unwrap_or_default();
        let token = format!("{} {reply}", self.created.load(Ordering::Relaxed));
        let at = Timestamp::from_millis(millis(info.published.unix_timestamp_nanos()));
        // The pending count does not include redeliveries, so after a redelivery more may be ready.
        let more_pending = info.pending > 0 || info.delivered > 1;
        let (seq, payload) = (info.stream_sequence, &message.payload);
        let message = self.message(message.subject.as_str(), seq, at, message.headers.as_ref(), payload);
        Ok(Delivery { message, token: DeliveryToken(token), more_pending })
    }

    fn message(&self, subject: &str, seq: u64, at: Timestamp, headers: Option<&HeaderMap>, payload: &Bytes) -> Message {
        let session_id = subject.strip_prefix(&self.names.job("")).unwrap_or(subject).to_owned();
        let msg_id = headers.and_then(|headers| headers.get(MSG_ID)).map(ToString::to_string);
        let created = self.created.load(Ordering::Relaxed);
        let (default_id, stream) = (format!("{created}-{seq}"), Timestamp::from_millis(created));
        let trace = headers.and_then(trace_of);
        // Copied, because the received bytes are a part of a larger buffer. Thousands of waiting turns would keep all
        // of these buffers.
        let payload = Bytes::copy_from_slice(payload);
        Message { session_id, seq, stream, payload, msg_id, default_id, at, trace }
    }

    pub(super) async fn next_message(&self, session_id: &str, after: u64, at_least: u64) -> Result<Option<Message>> {
        let subject = self.names.job(session_id);
        let mut pause = Duration::from_millis(2);
        let mut answer = self.direct_get(&self.names.jobs, &subject, after + 1).await?;
        for _ in 0..LAGGING_RETRIES {
            let behind = at_least > 0 && answer.as_ref().is_none_or(|message| message.sequence > at_least);
            if !behind {
                return Ok(answer.map(|message| self.stored(&message)));
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            answer = self.direct_get(&self.names.jobs, &subject, after + 1).await?;
        }
        // Every replica may be behind. The leader is not.
        let stream = self.context.get_stream_no_info(&self.names.jobs).await.map_err(QueueError::unavailable)?;
        match stream.raw_message_builder().sequence(after + 1).next_by_subject(subject).send().await {
            Ok(message) => Ok(Some(self.stored(&message))),
            // Only this error proves that the message is gone. A missing leader or a timeout proves nothing.
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                self.has_seen(at_least).await?;
                Ok(None)
            }
            Err(error) => Err(QueueError::unavailable(error)),
        }
    }

    /// Fails unless the stream's leader has seen this sequence. A leader that is cut off still leads for about ten
    /// seconds, and does not know the messages that a newer leader has accepted.
    async fn has_seen(&self, seq: u64) -> Result<()> {
        let stream = self.context.get_stream(&self.names.jobs).await.map_err(QueueError::unavailable)?;
        let last = stream.cached_info().state.last_sequence;
        if last >= seq {
            return Ok(());
        }
        let leader = stream.cached_info().cluster.as_ref().and_then(|cluster| cluster.leader.clone());
        Err(QueueError::unavailable(format!(
            "the leader of the stream {} ({}) is behind: its last message is {last}, but message {seq} was delivered",
            self.names.jobs,
            leader.unwrap_or_else(|| "unknown".into())
        )))
    }

    /// Returns the first message of a subject with a sequence of at least `seq`.
    pub(super) async fn direct_get(&self, stream: &str, subject: &str, seq: u64) -> Result<Option<StreamMessage>> {
        let stream = self.context.get_stream_no_info(stream).await.map_err(QueueError::unavailable)?;
        let asked = tokio::time::timeout(REQUEST_TIMEOUT, stream.direct_get_next_for_subject(subject, Some(seq))).await;
        match asked.map_err(QueueError::unavailable)? {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(QueueError::unavailable(error)),
        }
    }

    fn stored(&self, message: &StreamMessage) -> Message {
        let at = stored_at(message);
        self.message(message.subject.as_str(), message.sequence, at, Some(&message.headers), &message.payload)
    }

    /// Returns the number of messages in the stream of jobs. Acknowledged jobs are no longer in it.
    pub(super) async fn read_backlog(&self) -> Result<Backlog> {
        let stream = self.context.get_stream(&self.names.jobs).await.map_err(QueueError::unavailable)?;
        let state = &stream.cached_info().state;
        let oldest = Timestamp::from_millis(millis(state.first_timestamp.unix_timestamp_nanos()));
        Ok(Backlog { jobs: state.messages, oldest: (state.messages > 0).then_some(oldest) })
    }

    /// Sends an acknowledgement, a NAK or a progress signal for a delivery. Ignores the deliveries of a former stream:
    /// the consumer may have assigned their sequences to other messages.
    pub(super) async fn answer(&self, token: &DeliveryToken, answer: Bytes) -> Result<()> {
        let (stream, reply) = token.0.split_once(' ').unwrap_or_default();
        if stream.parse() != Ok(self.created.load(Ordering::Relaxed)) {
            return Ok(());
        }
        self.client.publish(reply.to_owned(), answer).await.map_err(QueueError::unavailable)
    }
}

/// Returns the next item, or `None` when it takes longer than `limit`. A message that arrives later is redelivered
/// after the ack wait.
async fn answered<T>(next: impl Future<Output = Option<T>>, limit: Duration) -> Option<T> {
    tokio::time::timeout(limit, next).await.ok().flatten()
}

/// Returns when the stream stored the message.
pub(super) fn stored_at(message: &StreamMessage) -> Timestamp {
    Timestamp::from_millis(millis(message.time.unix_timestamp_nanos()))
}

/// Builds the headers of a message: its id, and the current trace.
pub(super) fn headers(msg_id: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(msg_id) = msg_id {
        headers.insert(MSG_ID, msg_id);
    }
    if let Some(trace) = TraceContext::current() {
        headers.insert(TRACEPARENT, trace.traceparent().as_str());
        if let Some(state) = trace.tracestate() {
            headers.insert(TRACESTATE, state.as_str());
        }
    }
    headers
}

fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    // Some clients capitalize the names of all headers, as in HTTP.
    let parent = headers.get(TRACEPARENT).or_else(|| headers.get("Traceparent"))?;
    let state = headers.get(TRACESTATE).or_else(|| headers.get("Tracestate"));
    TraceContext::parse(parent.as_str(), state.map(|state| state.as_str()))
}

fn millis(nanos: i128) -> i64 {
    i64::try_from(nanos / 1_000_000).unwrap_or(0)
}
