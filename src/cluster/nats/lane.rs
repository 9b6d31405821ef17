//! The jobs' side: publish, pull, and reading a lane straight from the stream.

use super::error::{self, unavailable};
use super::{NatsQueue, REQUEST_TIMEOUT};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, RawMessageErrorKind};
use async_nats::{HeaderMap, jetstream};
use base::metrics::metrics;
use base::telemetry::TraceContext;
use base::telemetry::trace_context::{TRACEPARENT, TRACESTATE};
use bytes::Bytes;
use futures::StreamExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::queue::{Backlog, Delivery, DeliveryToken, Message, Publish, Published, QueueError, Result};
use types::timestamp::Timestamp;

/// How often an answer that is behind is asked again, before the stream's leader is asked.
const LAGGING_RETRIES: u32 = 5;
/// How long an answer to a pull may take. A server that goes down takes the request with it, and nobody answers any more.
const ANSWER: Duration = Duration::from_secs(1);
/// Deliveries of two concurrent pulls may be out of order by this many.
const OUT_OF_ORDER: u64 = 4_096;
const MSG_ID: &str = "Nats-Msg-Id";
const UNANSWERED: &str = "nats-server does not respond to a pull: it is down, or does not let this user pull";

impl NatsQueue {
    pub(super) async fn publish_job(&self, job: Publish) -> Result<Published> {
        let ack = self.put(self.names.job(&job.session_id), headers(job.msg_id.as_deref()), job.payload).await?;
        Ok(Published { seq: ack.sequence, duplicate: ack.duplicate })
    }

    /// Publishes and awaits the acknowledgement; once more after making the streams, should they be missing.
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
        // One message is waited for to the end of the request, so that none is handed out to nobody.
        let mut deliveries = Vec::new();
        if !wait.is_zero() {
            let mut first =
                consumer.batch().max_messages(1).expires(wait).messages().await.map_err(|e| self.lost(e))?;
            loop {
                match tokio::time::timeout(wait + ANSWER, first.next()).await {
                    Ok(Some(message)) => {
                        deliveries.push(self.delivery(&message.map_err(|error| self.lost(error))?).await?);
                    }
                    // The server ends each request, also an empty one.
                    Err(_) if deliveries.is_empty() => return Err(self.lost(UNANSWERED)),
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
        while let Some(Ok(message)) = answered(more.next(), ANSWER).await {
            deliveries.push(self.delivery(&message).await?);
        }
        Ok(deliveries)
    }

    /// The consumer as it was looked up last.
    async fn workers(&self) -> Result<PullConsumer> {
        if let Some(consumer) = self.cached.read().await.clone() {
            return Ok(consumer);
        }
        let consumer = self.consumer().await?;
        *self.cached.write().await = Some(consumer.clone());
        Ok(consumer)
    }

    /// A failed pull: the consumer may be gone, so it is looked up anew.
    fn lost(&self, error: impl std::fmt::Display) -> QueueError {
        if let Ok(mut cached) = self.cached.try_write() {
            *cached = None;
        }
        unavailable(error)
    }

    async fn delivery(&self, message: &jetstream::Message) -> Result<Delivery> {
        let info = message.info().map_err(unavailable)?;
        if info.delivered > 1 {
            metrics().redeliveries.inc();
        }
        let before = self.delivered.swap(info.consumer_sequence, Ordering::Relaxed);
        if info.consumer_sequence.saturating_add(OUT_OF_ORDER) < before {
            // A consumer that counts from the beginning is another one, and so may its stream be.
            self.job_stream().await?;
        }
        let reply = message.reply.as_ref().map(|reply| reply.as_str()).unwrap_or_default();
        let token = format!("{} {reply}", self.created.load(Ordering::Relaxed));
        let at = Timestamp::from_millis(millis(info.published.unix_timestamp_nanos()));
        // What is to be delivered again is not among the pending.
        let followed = info.pending > 0 || info.delivered > 1;
        let (seq, payload) = (info.stream_sequence, &message.payload);
        let message = self.message(message.subject.as_str(), seq, at, message.headers.as_ref(), payload);
        Ok(Delivery { message, token: DeliveryToken(token), followed })
    }

    fn message(&self, subject: &str, seq: u64, at: Timestamp, headers: Option<&HeaderMap>, payload: &Bytes) -> Message {
        let session_id = subject.strip_prefix(&self.names.job("")).unwrap_or(subject).to_owned();
        let msg_id = headers.and_then(|headers| headers.get(MSG_ID)).map(ToString::to_string);
        let created = self.created.load(Ordering::Relaxed);
        let (default_id, stream) = (format!("{created}-{seq}"), Timestamp::from_millis(created));
        let trace = headers.and_then(trace_of);
        // As it came it is a part of a larger buffer, which thousands of turns that wait would all keep.
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
        // Every replica may be behind, the leader is not.
        let stream = self.context.get_stream_no_info(&self.names.jobs).await.map_err(unavailable)?;
        match stream.raw_message_builder().sequence(after + 1).next_by_subject(subject).send().await {
            Ok(message) => Ok(Some(self.stored(&message))),
            // Only this says that the message is gone. A stream without a leader, or a timeout, says nothing.
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                self.has_seen(at_least).await?;
                Ok(None)
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    /// An error unless the stream's leader has had this sequence. A leader that is cut off leads for some ten seconds more, and
    /// knows nothing of the messages that another leader has accepted since.
    async fn has_seen(&self, seq: u64) -> Result<()> {
        let stream = self.context.get_stream(&self.names.jobs).await.map_err(unavailable)?;
        let last = stream.cached_info().state.last_sequence;
        if last >= seq {
            return Ok(());
        }
        let leader = stream.cached_info().cluster.as_ref().and_then(|cluster| cluster.leader.clone());
        Err(unavailable(format!(
            "the leader of {} ({}) is behind: it ends at message {last}, and message {seq} was delivered",
            self.names.jobs,
            leader.unwrap_or_else(|| "unknown".into())
        )))
    }

    /// The first message of a subject from `seq` on.
    pub(super) async fn direct_get(&self, stream: &str, subject: &str, seq: u64) -> Result<Option<StreamMessage>> {
        let stream = self.context.get_stream_no_info(stream).await.map_err(unavailable)?;
        let asked = tokio::time::timeout(REQUEST_TIMEOUT, stream.direct_get_next_for_subject(subject, Some(seq))).await;
        match asked.map_err(unavailable)? {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    fn stored(&self, message: &StreamMessage) -> Message {
        let at = stored_at(message);
        self.message(message.subject.as_str(), message.sequence, at, Some(&message.headers), &message.payload)
    }

    /// What the stream holds: an acknowledged job is in it no more.
    pub(super) async fn unhandled(&self) -> Result<Backlog> {
        let stream = self.context.get_stream(&self.names.jobs).await.map_err(unavailable)?;
        let state = &stream.cached_info().state;
        let oldest = Timestamp::from_millis(millis(state.first_timestamp.unix_timestamp_nanos()));
        Ok(Backlog { jobs: state.messages, oldest: (state.messages > 0).then_some(oldest) })
    }

    /// Acknowledges, refuses or prolongs a delivery. Skips a delivery of a former stream: the consumer may have given its
    /// sequences to another message.
    pub(super) async fn answer(&self, token: &DeliveryToken, answer: Bytes) -> Result<()> {
        let (stream, reply) = token.0.split_once(' ').unwrap_or_default();
        if stream.parse() != Ok(self.created.load(Ordering::Relaxed)) {
            return Ok(());
        }
        self.client.publish(reply.to_owned(), answer).await.map_err(unavailable)
    }
}

/// The next answer, unless it takes longer than `limit`. A message that comes later still comes again after the ack wait.
async fn answered<T>(next: impl Future<Output = Option<T>>, limit: Duration) -> Option<T> {
    tokio::time::timeout(limit, next).await.ok().flatten()
}

/// When the stream took it.
pub(super) fn stored_at(message: &StreamMessage) -> Timestamp {
    Timestamp::from_millis(millis(message.time.unix_timestamp_nanos()))
}

/// The headers of a message: its id, and the trace that is current, if any.
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
    // Some clients write all headers like those of HTTP.
    let parent = headers.get(TRACEPARENT).or_else(|| headers.get("Traceparent"))?;
    let state = headers.get(TRACESTATE).or_else(|| headers.get("Tracestate"));
    TraceContext::parse(parent.as_str(), state.map(|state| state.as_str()))
}

fn millis(nanos: i128) -> i64 {
    i64::try_from(nanos / 1_000_000).unwrap_or(0)
}
