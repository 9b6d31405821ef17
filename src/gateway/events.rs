//! A session's events as server-sent events, resumable with `Last-Event-ID`.

use super::caller::Caller;
use super::event_stream::{self, EventStream, Position};
use super::front_ends::event_shown_to;
use super::input::{Filter, Params};
use super::operation::Operation;
use super::roles::FRONT_ENDS_AND_READERS;
use super::{GatewayState, Reject};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use commands::messages;
use futures::StreamExt;
use storage::queue::{From, StreamEvent};

pub(super) const FOLLOW: Operation =
    Operation::get("/api/v1/sessions/{session_id}/events", "messages", "follow_events")
        .roles(FRONT_ENDS_AND_READERS)
        .summary("Follows a session's events until the client leaves or the gateway stops.")
        .details(
            "Each server-sent event has as `id` its sequence in the stream of events, as `event` its type (`reply`, \
             `status`, `step`, `run`, `decision`, `authoring`, `turn` or `handoff`), and as `data` a JSON object: `Reply`, `StatusEvent`, \
             `StepEvent`, `RunEvent`, `DecisionEvent`, `AuthoringEvent`, `TurnEvent` or `HandoffEvent`. Callers with the role \
             `channel` get handoffs without notes and held texts. The last event of a turn has the field `turn`.",
        )
        .query::<Position>()
        .last_event_id(
            "The last `id` that the client has seen: the events after it follow. `0`: all stored events. Without it: \
             events from now on.",
        )
        .event_stream("Server-sent events; the response does not end by itself");
pub(super) async fn follow(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Filter(position): Filter<Position>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let from = start_position(&headers, position.last_event_id.as_deref())?;
    messages::require_known(state.queue.as_ref(), state.store.as_ref(), &session_id).await?;
    let slot = state.streams.take()?;
    let feed = EventStream::open(state.queue.clone(), session_id, from).await?;
    let role = caller.role();
    let shown = move |event: StreamEvent| {
        let payload = event_shown_to(role, event.event_type, &event.payload);
        frame(&StreamEvent { payload, ..event })
    };
    Ok(event_stream::answer(&state, slot, feed.into_stream().map(shown)))
}

/// The position to start from: after the id that the client names, or now.
fn start_position(headers: &HeaderMap, query: Option<&str>) -> Result<From, Reject> {
    match event_stream::last_event_id(headers, query)? {
        Some(id) => id.parse().map(From::After).map_err(|_| event_stream::invalid_event_id(&id)),
        None => Ok(From::Now),
    }
}

/// A stream event as a server-sent event: sequence, type and payload.
pub(super) fn frame(event: &StreamEvent) -> Event {
    Event::default().id(event.seq.to_string()).event(event.event_type.as_str()).data(event_stream::data(&event.payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;
    use axum::response::IntoResponse;
    use axum::response::sse::Sse;
    use std::convert::Infallible;
    use types::event::EventType;

    fn headers(id: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static("last-event-id"), id.parse().unwrap())])
    }

    #[test]
    fn none_means_now() {
        assert_eq!(start_position(&headers("7"), Some("3")).unwrap(), From::After(7));
        assert_eq!(start_position(&HeaderMap::new(), Some("0")).unwrap(), From::After(0));
        assert_eq!(start_position(&HeaderMap::new(), None).unwrap(), From::Now);
        assert_eq!(start_position(&headers("run:7"), None).unwrap_err().code, "invalid_event_id");
        assert!(start_position(&headers("-1"), None).is_err());
    }

    #[tokio::test]
    async fn a_frame_has_id_event_and_data() {
        let event =
            StreamEvent { seq: 42, event_type: EventType::Status, payload: "{\"text\":\"你好\",\r\n\"a\":1}".into() };
        let sse = Sse::new(futures::stream::iter([Ok::<_, Infallible>(frame(&event))]));
        let bytes = axum::body::to_bytes(sse.into_response().into_body(), 4096).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text, "id: 42\nevent: status\ndata: {\"text\":\"你好\", \ndata: \"a\":1}\n\n");
    }
}
