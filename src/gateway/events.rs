//! A session's events as server-sent events, resumable by `Last-Event-ID`.

use super::input::{Filter, Params};
use super::openapi::Id;
use super::{GatewayState, Reject, intake};
use crate::metrics::{Counted, metrics};
use crate::queue::{From, Queue, Result as QueueResult, StreamEvent};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
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
    last_event_id: Option<String>,
}

/// Follows a session until the client leaves or the gateway stops. Each event has as `id` its sequence in the stream, as
/// `event` its type (`reply`, `status`, `step`, `run`), and as `data` JSON: a `Reply`, `StatusEvent` or `StepEvent`.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}/events", operation_id = "follow_events", tag = "messages",
    params(
        ("session_id" = Id, Path),
        Position,
        ("Last-Event-ID" = Option<String>, Header,
         description = "The last `id` seen: what came after it comes again. 0: all that is retained. None: from now on."),
    ),
    responses((status = 200, description = "Server-sent events, without end", body = String,
               content_type = "text/event-stream")))]
pub(super) async fn follow(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Filter(position): Filter<Position>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let from = begin(&headers, position.last_event_id.as_deref())?;
    intake::require_known(state.queue.as_ref(), state.store.as_ref(), &session_id).await?;
    let slot = state.streams.take()?;
    // Opened before the answer begins: "from now" counts from then.
    let opened = state.queue.events(&session_id, from).await?;
    let feed =
        Feed { queue: state.queue, session_id, from, opened: Some(opened), pause: FIRST_PAUSE, span: Span::current() };
    // The slot goes with the stream.
    let held = (slot, Counted::on(&metrics().event_streams));
    let frames = feed.into_stream().map(move |event| {
        let _held = &held;
        Ok::<_, Infallible>(frame(&event))
    });
    let frames = frames.take_until(state.stop.cancelled_owned());
    let sse = Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    // Proxies that buffer would hold the events back.
    Ok(([(HeaderName::from_static("x-accel-buffering"), "no")], sse).into_response())
}

/// Where to begin: after the id in the header, else in the query; from now without one.
fn begin(headers: &HeaderMap, query: Option<&str>) -> Result<From, Reject> {
    let refused = |found: &str| {
        let message = format!("Last-Event-ID: found `{found}`, which is no event id");
        Reject::invalid("invalid_event_id", message, "send the last `id:` that you saw, or 0 for all that is retained")
    };
    let header = match headers.get("last-event-id") {
        Some(value) => Some(value.to_str().map_err(|_| refused("(not ASCII)"))?),
        None => None,
    };
    match header.or(query).map(str::trim).filter(|id| !id.is_empty()) {
        Some(id) => id.parse().map(From::After).map_err(|_| refused(id)),
        None => Ok(From::Now),
    }
}

fn frame(event: &StreamEvent) -> Event {
    // A raw carriage return would end the line; in JSON it can only be white space.
    let data = String::from_utf8_lossy(&event.payload).replace('\r', " ");
    Event::default().id(event.seq.to_string()).event(event.event_type.as_str()).data(data)
}

/// Events that go on after the last one seen when the backend was away.
struct Feed {
    queue: Arc<dyn Queue>,
    session_id: String,
    from: From,
    opened: Option<BoxStream<'static, QueueResult<StreamEvent>>>,
    pause: Duration,
    /// The request's: the stream outlives its handler.
    span: Span,
}

impl Feed {
    fn into_stream(self) -> impl Stream<Item = StreamEvent> {
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
    use crate::queue::EventType;

    fn headers(id: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static("last-event-id"), id.parse().unwrap())])
    }

    #[test]
    fn the_header_wins_over_the_query_and_none_means_now() {
        assert_eq!(begin(&headers("7"), Some("3")).unwrap(), From::After(7));
        assert_eq!(begin(&HeaderMap::new(), Some("0")).unwrap(), From::After(0));
        assert_eq!(begin(&HeaderMap::new(), None).unwrap(), From::Now);
        assert_eq!(begin(&headers(""), None).unwrap(), From::Now);
        assert_eq!(begin(&headers("run:7"), None).unwrap_err().code, "invalid_event_id");
        assert!(begin(&headers("-1"), None).is_err());
    }

    #[tokio::test]
    async fn a_frame_has_id_event_and_data() {
        let event =
            StreamEvent { seq: 42, event_type: EventType::Status, payload: "{\"text\":\"你好\",\r\n\"a\":1}".into() };
        let sse = Sse::new(stream::iter([Ok::<_, Infallible>(frame(&event))]));
        let bytes = axum::body::to_bytes(sse.into_response().into_body(), 4096).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text, "id: 42\nevent: status\ndata: {\"text\":\"你好\", \ndata: \"a\":1}\n\n");
    }
}
