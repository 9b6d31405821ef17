//! The events of one turn of an authoring dialogue, filtered from the stream of its session. The stream ends with the
//! turn's last event. If that event can no longer arrive, the stream ends with an error event.

use super::chat::frame;
use crate::Reject;
use crate::event_stream::EventStream;
use axum::response::sse::Event as Frame;
use base::clock;
use commands::authoring::chat::{self, CheckedMessage};
use decisions::authoring::words;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{From, Queue, StreamEvent};
use storage::store::Store;
use tokio::time::{Instant, sleep, timeout_at};
use types::authoring::message::ErrorContent;
use types::authoring::{Body, ErrorCode, Event, Language};
use types::event::EventType;

/// How long a turn may publish nothing before the stream checks the store.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for the next event that is already stored.
const STORED_EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The fields of an event that the stream reads.
#[derive(Debug, Deserialize)]
struct EventHead {
    turn_id: String,
    seq: u64,
    is_final: bool,
}

/// Parses these fields. Returns `None` for an event of another turn.
fn head(event: &StreamEvent, turn_id: &str) -> Option<EventHead> {
    if event.event_type != EventType::Authoring {
        return None;
    }
    let head: EventHead = serde_json::from_slice(&event.payload).ok()?;
    (head.turn_id == turn_id).then_some(head)
}

/// The stored events of a turn.
#[derive(Default)]
pub(super) struct StoredEvents {
    /// The events, up to the last one.
    pub(super) events: Vec<StreamEvent>,
    /// True if the turn's last event is among them.
    pub(super) has_last: bool,
}

/// Reads the stored events of a turn.
pub(super) async fn stored_events(queue: &dyn Queue, session_id: &str, turn_id: &str) -> Result<StoredEvents, Reject> {
    let mut events = queue.events(session_id, From::After(0)).await?;
    let mut found = StoredEvents::default();
    // Stored events arrive immediately. If none arrives before the deadline, the stream has no further event.
    let mut deadline = Instant::now() + STORED_EVENT_TIMEOUT;
    while let Ok(Some(event)) = timeout_at(deadline, events.next()).await {
        let event = event?;
        deadline = Instant::now() + STORED_EVENT_TIMEOUT;
        let Some(EventHead { is_final, .. }) = head(&event, turn_id) else { continue };
        found.events.push(event);
        found.has_last = is_final;
        if is_final {
            break;
        }
    }
    Ok(found)
}

/// Streams the events of the turn of this message until the turn ends.
pub(super) fn follow(
    feed: EventStream,
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    message: &CheckedMessage,
) -> impl Stream<Item = Frame> + Send + 'static {
    let ticks = stream::unfold((), |()| async { Some((None, sleep(PATIENCE).await)) });
    let follower = TurnFollower {
        source: stream::select(feed.into_stream().map(Some), ticks).boxed(),
        queue,
        store,
        session_id: message.dialogue.session.session_id.clone(),
        turn_id: message.turn_id.clone(),
        language: message.dialogue.state.config.language,
        heard_at: Instant::now(),
        next_seq: 0,
        begun: false,
        over: false,
    };
    stream::unfold(follower, |mut follower| async move { follower.next().await.map(|event| (event, follower)) })
}

struct TurnFollower {
    source: BoxStream<'static, Option<StreamEvent>>,
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    session_id: String,
    turn_id: String,
    language: Language,
    /// When the session's last event arrived, even if it was one of another turn.
    heard_at: Instant,
    next_seq: u64,
    begun: bool,
    over: bool,
}

impl TurnFollower {
    async fn next(&mut self) -> Option<Frame> {
        while !self.over {
            let Some(event) = self.source.next().await? else {
                if let Some((code, details)) = self.fault().await {
                    self.over = true;
                    return Some(self.failure(code, details));
                }
                continue;
            };
            self.heard_at = Instant::now();
            let Some(EventHead { seq, is_final, .. }) = head(&event, &self.turn_id) else { continue };
            (self.begun, self.over, self.next_seq) = (true, is_final, seq + 1);
            return Some(frame(&event));
        }
        None
    }

    /// Returns the reason why the turn's last event will not arrive, if there is a reason.
    async fn fault(&mut self) -> Option<(ErrorCode, &'static str)> {
        if self.heard_at.elapsed() < PATIENCE {
            return None;
        }
        // If the store is unreachable, the next check asks again.
        let ended = self.store.turn(&self.session_id, &self.turn_id).await.ok()?.is_some();
        let session = self.store.session(&self.session_id).await.ok()?;
        match session {
            None => Some((ErrorCode::UnknownSession, "the session was deleted")),
            Some(_) if ended => self
                .is_lost()
                .await
                .then_some((ErrorCode::Internal, "the turn has ended, and its last event is not stored")),
            // While another turn is open, this one may begin later.
            Some(session) if !self.begun && session.turn.is_none() => Some((
                ErrorCode::Unavailable,
                "no worker has taken the message within 30 s; it stays queued, and the same `message_id` gets its events",
            )),
            Some(_) => None,
        }
    }

    /// Returns whether the last event of a turn that has ended will never arrive: its lane has published everything,
    /// and the event is not stored. Without a reply of the queue or the store it returns false; the next check asks
    /// again.
    async fn is_lost(&mut self) -> bool {
        let (queue, session_id) = (self.queue.as_ref(), &self.session_id);
        chat::is_told(queue, self.store.as_ref(), session_id).await.unwrap_or(false)
            && stored_events(queue, session_id, &self.turn_id).await.is_ok_and(|stored| !stored.has_last)
    }

    /// Creates an event of the gateway. It is not stored.
    fn failure(&self, code: ErrorCode, details: &str) -> Frame {
        let content = ErrorContent {
            error_code: code,
            message: words::error(code, self.language).to_owned(),
            details: details.to_owned(),
            is_recoverable: code.is_recoverable(),
        };
        let event = Event {
            body: Body::Error { content },
            session_id: self.session_id.clone(),
            turn_id: self.turn_id.clone(),
            seq: self.next_seq,
            timestamp: clock::now().as_millis(),
            is_final: true,
        };
        // An event can always be serialised.
        Frame::default().data(serde_json::to_string(&event).unwrap_or_default())
    }
}
