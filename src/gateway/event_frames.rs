//! The server-sent events of `GET /api/v1/events`.

use super::event_stream;
use axum::response::sse::Event;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use storage::queue::LoggedEvent;

/// The first event of the stream of all events.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct EventsOpened {
    /// The last sequence of the stream.
    as_of: u64,
}

/// Events that a reader of all events has missed.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct EventGap {
    /// The first missed sequence.
    from: u64,
    /// The last missed sequence.
    to: u64,
}

/// An event in the stream of all events.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct LocatedEvent<'e> {
    /// The session; of a run without one, the run.
    session_id: &'e str,
    /// The channel under which it was published.
    channel: &'e str,
    /// The session's agent, if the gateway knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'e str>,
    /// The payload.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    event: Option<&'e RawValue>,
}

/// The first event of a response.
pub(super) fn opened(as_of: u64) -> Event {
    Event::default().event("open").data(json(&EventsOpened { as_of }))
}

/// Tells a reader that it has missed events.
pub(super) fn gap(from: u64, to: u64) -> Event {
    // With an id, a client that reconnects is not told of the same gap again.
    Event::default().id(to.to_string()).event("gap").data(json(&EventGap { from, to }))
}

/// An event for a reader of all events, with its payload as this reader sees it.
pub(super) fn frame(event: &LoggedEvent, payload: &[u8], agent_id: Option<&str>) -> Event {
    // A payload that is no JSON is shown as a text.
    let text = || to_raw_value(&String::from_utf8_lossy(payload)).ok();
    let (payload, other) = match serde_json::from_slice::<&RawValue>(payload) {
        Ok(payload) => (Some(payload), None),
        Err(_) => (None, text()),
    };
    let LoggedEvent { session_id, channel, .. } = event;
    let data = LocatedEvent { session_id, channel, agent_id, event: payload.or(other.as_deref()) };
    Event::default().id(event.seq.to_string()).event(event.event_type.as_str()).data(json(&data))
}

/// Encodes a type that is always JSON.
fn json(data: &impl Serialize) -> String {
    event_stream::data(&serde_json::to_vec(data).unwrap_or_default())
}
