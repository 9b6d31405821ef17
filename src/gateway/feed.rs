//! Events for clients that stay: a stream that survives losses of the backend, and how it becomes server-sent events.

use super::{GatewayState, Reject};
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base::metrics::{Counted, metrics};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{From, Queue, Result as QueueResult, StreamEvent};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{Span, warn};

/// How often a quiet stream says that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Pauses between attempts to get a lost stream back.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// For clients that cannot send the header.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Position {
    /// As the header `Last-Event-ID`, which wins.
    #[serde(default)]
    pub(super) last_event_id: Option<String>,
}

/// The last event's id that the client names: in the header, else in the query.
pub(super) fn last_event_id(headers: &HeaderMap, query: Option<&str>) -> Result<Option<String>, Reject> {
    let header = match headers.get("last-event-id") {
        Some(value) => Some(value.to_str().map_err(|_| no_event_id("(not ASCII)"))?),
        None => None,
    };
    Ok(header.or(query).map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned))
}

/// 400 for what is no id of an event.
pub(super) fn no_event_id(found: &str) -> Reject {
    let message = format!("Last-Event-ID: found `{found}`, which is no event id");
    Reject::invalid("invalid_event_id", message, "send the last `id:` that you saw, or 0 for all that is retained")
}

/// Sends frames until they end, the client leaves or the gateway stops. The slot goes with them.
pub(super) fn answer(
    state: &GatewayState,
    slot: OwnedSemaphorePermit,
    frames: impl Stream<Item = Event> + Send + 'static,
) -> Response {
    let held = (slot, Counted::on(&metrics().event_streams));
    let frames = frames.map(move |frame| {
        let _held = &held;
        Ok::<_, Infallible>(frame)
    });
    let frames = frames.take_until(state.stop.clone().cancelled_owned());
    let sse = Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Proxies that buffer would hold the events back.
    ([(HeaderName::from_static("x-accel-buffering"), "no")], sse).into_response()
}

/// A payload as the `data` of a frame.
pub(super) fn data(payload: &[u8]) -> String {
    // A raw carriage return would end the line; in JSON it can only be white space.
    String::from_utf8_lossy(payload).replace('\r', " ")
}

/// Events that go on after the last one seen when the backend was away.
pub(super) struct Feed {
    queue: Arc<dyn Queue>,
    session_id: String,
    from: From,
    opened: Option<BoxStream<'static, QueueResult<StreamEvent>>>,
    pause: Duration,
    /// The request's: the stream outlives its handler.
    span: Span,
}

impl Feed {
    /// Events of a session, or of a run in a lane of its own. "From now" counts from before this returns.
    pub(super) async fn open(queue: Arc<dyn Queue>, session_id: String, from: From) -> Result<Self, Reject> {
        let opened = queue.events(&session_id, from).await?;
        Ok(Self { queue, session_id, from, opened: Some(opened), pause: FIRST_PAUSE, span: Span::current() })
    }

    /// Without end.
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
                        self.pause = FIRST_PAUSE;
                        return event;
                    }
                    Some(Err(problem)) => problem.to_string(),
                    None => "the stream has ended".to_owned(),
                },
            };
            let session_id = &self.session_id;
            warn!(parent: &self.span, session_id, "events are interrupted and will be resumed: {problem}");
            self.opened = None;
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
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
