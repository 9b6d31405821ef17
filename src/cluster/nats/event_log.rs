//! The events of all sessions, from one consumer of the stream.

use super::NatsQueue;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_trait::async_trait;
use futures::future;
use futures::stream::{BoxStream, StreamExt};
use storage::queue::{EventBounds, EventLog, LoggedEvent, QueueError, Result};
use types::event::EventType;

/// Events that the reader has in memory before it takes them. An event has up to 4 MiB; most have less than 1 KiB.
const EVENTS_AHEAD: i64 = 256;

#[async_trait]
impl EventLog for NatsQueue {
    async fn event_bounds(&self) -> Result<EventBounds> {
        let stream = self.context.get_stream(&self.names.out).await.map_err(QueueError::unavailable)?;
        let state = &stream.cached_info().state;
        Ok(EventBounds { first: state.first_sequence.max(1), last: state.last_sequence })
    }

    async fn all_events(&self, after: u64) -> Result<BoxStream<'static, Result<LoggedEvent>>> {
        let stream = self.context.get_stream_no_info(&self.names.out).await.map_err(QueueError::unavailable)?;
        let config = pull::OrderedConfig {
            filter_subject: self.names.event("*", "*", "*"),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after.saturating_add(1) },
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
}

/// The event of a message; `None` for a type of a newer version.
fn event(message: &async_nats::jetstream::Message) -> Option<LoggedEvent> {
    let mut tokens = message.subject.rsplit('.');
    let event_type = EventType::from_token(tokens.next()?)?;
    let (session_id, channel) = (tokens.next()?.to_owned(), tokens.next()?.to_owned());
    let seq = message.info().ok()?.stream_sequence;
    Some(LoggedEvent { seq, channel, session_id, event_type, payload: message.payload.clone() })
}
