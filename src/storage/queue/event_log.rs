//! The events of all sessions together, for one reader in a process that shows them to many.

use super::Result;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use types::event::EventType;

/// An event of any session or run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// The event's sequence in the stream, which is also its id.
    pub seq: u64,
    /// The channel under which it was published.
    pub channel: String,
    /// The id of the session, or of a run without one.
    pub session_id: String,
    /// The event's type.
    pub event_type: EventType,
    /// The payload as published.
    pub payload: Bytes,
}

/// The part of the stream of events that is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventBounds {
    /// The sequence of the oldest retained event; `last + 1` if none is retained.
    pub first: u64,
    /// The highest sequence that the stream has assigned, also when that event is already deleted; 0 when there never
    /// was one.
    pub last: u64,
}

/// Reads the events of all sessions.
///
/// The sequences of deleted sessions are missing.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Returns the bounds of the stream of events, from the server that leads the stream: every event that was durable
    /// before the call is within them.
    async fn event_bounds(&self) -> Result<EventBounds>;

    /// Returns the events with sequences above `after` in stream order, as far as they are retained. The stream does
    /// not end: it waits for further events. An item is an error when reading fails. `after` is not above the last
    /// sequence.
    async fn all_events(&self, after: u64) -> Result<BoxStream<'static, Result<LoggedEvent>>>;
}
