//! Server-sent events: a stream of events that resumes when the queue was unreachable, and its response.

use super::{GatewayState, Reject};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base::metrics::{GaugeGuard, metrics};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{From, Queue, Result as QueueResult, StreamEvent};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{Span, warn};

/// Interval of the comments that show a client that the connection is alive.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Proxies that buffer would delay the events.
const UNBUFFERED: [(HeaderName, &str); 1] = [(HeaderName::from_static("x-accel-buffering"), "no")];
/// First pause between attempts to reopen a lost stream; each further pause is twice as long.
const MIN_REOPEN_DELAY: Duration = Duration::from_millis(200);
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(5);

/// The position to resume from, for clients that cannot send headers.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct Position {
    /// Same as the header `Last-Event-ID`. The header wins.
    #[schemars(extend("example" = "1042"))]
    pub(super) last_event_id: Option<String>,
}

/// The id of the last event that the client has seen: from the header, else from the query.
pub(super) fn last_event_id(headers: &HeaderMap, query: Option<&str>) -> Result<Option<String>, Reject> {
    let header = match headers.get("last-event-id") {
        Some(value) => Some(value.to_str().map_err(|_| invalid_event_id("(not ASCII)"))?),
        None => None,
    };
    Ok(header.or(query).map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned))
}

/// 400 for a text that is not an event id.
pub(super) fn invalid_event_id(found: &str) -> Reject {
    let message = format!("Last-Event-ID: found `{found}`, which is not an event id");
    Reject::invalid("invalid_event_id", message, "send the last `id:` that you received, or 0 for all stored events")
}

/// Responds with `frames` until they end, the client leaves or the gateway stops. Then the slot is free again.
pub(super) fn answer(
    state: &GatewayState,
    slot: OwnedSemaphorePermit,
    frames: impl Stream<Item = Event> + Send + 'static,
) -> Response {
    let sse = Sse::new(bounded(state, slot, frames)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    (UNBUFFERED, sse).into_response()
}

/// Responds like [`answer`] with frames that are encoded already. They include the comments that keep the connection
/// alive.
pub(super) fn answer_bytes(
    state: &GatewayState,
    slot: OwnedSemaphorePermit,
    frames: impl Stream<Item = Bytes> + Send + 'static,
) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (UNBUFFERED, headers, Body::from_stream(bounded(state, slot, frames))).into_response()
}

/// Ends the frames when the gateway stops, and holds the slot as long as they last.
fn bounded<F>(
    state: &GatewayState,
    slot: OwnedSemaphorePermit,
    frames: impl Stream<Item = F> + Send + 'static,
) -> impl Stream<Item = Result<F, Infallible>> + Send + 'static {
    let held = (slot, GaugeGuard::increment(&metrics().event_streams));
    let frames = frames.map(move |frame| {
        let _held = &held;
        Ok(frame)
    });
    frames.take_until(state.stop.clone().cancelled_owned())
}

/// Formats a payload as the `data` of a server-sent event.
pub(super) fn data(payload: &[u8]) -> String {
    // A raw carriage return would end the line. In JSON it can only be white space.
    String::from_utf8_lossy(payload).replace('\r', " ")
}

/// The events of a session or run. If the queue becomes unreachable, the feed resumes after the last event.
pub(super) struct EventStream {
    queue: Arc<dyn Queue>,
    session_id: String,
    from: From,
    opened: Option<BoxStream<'static, QueueResult<StreamEvent>>>,
    pause: Duration,
    /// The request's span: the stream outlives its handler.
    span: Span,
}

impl EventStream {
    /// Opens the events of a session, or of a run with its own lane. `From::Now` includes all events that are published
    /// after this function returns.
    pub(super) async fn open(queue: Arc<dyn Queue>, session_id: String, from: From) -> Result<Self, Reject> {
        let opened = queue.events(&session_id, from).await?;
        Ok(Self { queue, session_id, from, opened: Some(opened), pause: MIN_REOPEN_DELAY, span: Span::current() })
    }

    /// Turns the feed into a stream that never ends.
    pub(super) fn into_stream(self) -> impl Stream<Item = StreamEvent> + Send + 'static {
        stream::unfold(self, |mut feed| async move {
            let event = feed.next().await;
            Some((event, feed))
        })
    }

    async fn next(&mut self) -> StreamEvent {
        loop {
            let problem = match &mut self.opened {
                None => match self.queue.events(&self.session_id, self.from).await {
                    Ok(opened) => {
                        self.opened = Some(opened);
                        continue;
                    }
                    Err(problem) => problem.to_string(),
                },
                Some(opened) => match opened.next().await {
                    Some(Ok(event)) => {
                        self.from = From::After(event.seq);
                        self.pause = MIN_REOPEN_DELAY;
                        return event;
                    }
                    Some(Err(problem)) => problem.to_string(),
                    None => "the stream of events ended".to_owned(),
                },
            };
            let session_id = &self.session_id;
            warn!(parent: &self.span, session_id, "event stream interrupted, reopening it: {problem}");
            self.opened = None;
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(MAX_REOPEN_DELAY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_wins_over_the_query_and_blank_is_none() {
        let named = |id: &str| HeaderMap::from_iter([(HeaderName::from_static("last-event-id"), id.parse().unwrap())]);
        let found = |headers: &HeaderMap, query| last_event_id(headers, query).unwrap();
        assert_eq!(found(&named("7"), Some("3")).as_deref(), Some("7"));
        assert_eq!(found(&HeaderMap::new(), Some(" 0 ")).as_deref(), Some("0"));
        assert_eq!(found(&HeaderMap::new(), None), None);
        assert_eq!(found(&named(""), None), None);
    }
}
