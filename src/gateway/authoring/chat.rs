//! Messages of authoring dialogues, and the events of their turns as server-sent events. An accepted message is a job
//! on the queue, so a client that disconnects does not end its turn.

use super::turn_events::{self, StoredEvents, stored_events};
use crate::access::session_in_scope;
use crate::caller::Caller;
use crate::event_stream::{self, EventStream};
use crate::input::Body;
use crate::operation::Operation;
use crate::roles::{AUTHORS, Reach};
use crate::{GatewayState, Reject};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use commands::authoring::chat::{self, ChatMessage, CheckedMessage};
use futures::{StreamExt, stream};
use storage::queue::{From, StreamEvent};

pub(super) const CHAT: Operation = Operation::post("/api/v1/chat/stream", "authoring", "chat_in_authoring_session")
    .roles(AUTHORS)
    .shows(Reach::Selected)
    .audited(false)
    .summary("Sends a message into an authoring dialogue, and follows its turn until it ends.")
    .details(
        "`data:` is an `AuthoringEvent`; exactly the last one has `is_final: true`. `id:` is the \
         sequence in the stream of events. A repeat with the same `message_id` (or header `Idempotency-Key`) is the \
         same turn and gets its events again, as long as they are retained.",
    )
    .body::<ChatMessage>()
    .last_event_id("The last `id` that the client has seen: the events of the turn after it follow.")
    .event_stream("Server-sent events until the turn ends")
    .no_content("The turn has ended, and the client has seen its last event");
pub(super) async fn chat(
    State(state): State<GatewayState>,
    caller: Caller,
    headers: HeaderMap,
    Body(mut message): Body<ChatMessage>,
) -> Result<Response, Reject> {
    session_in_scope(&state, caller.scope(), &message.session_id).await?;
    if message.message_id.is_none() {
        message.message_id = idempotency_key(&headers)?;
    }
    let is_named = message.message_id.is_some();
    let after = match event_stream::last_event_id(&headers, None)? {
        Some(id) => id.parse().map_err(|_| event_stream::invalid_event_id(&id))?,
        None => 0,
    };
    let message = chat::check(state.store.as_ref(), &caller.author(), message).await?;
    if is_named
        && message.has_ended(state.store.as_ref()).await?
        && let Some(response) = again(&state, &message, after).await?
    {
        return Ok(response);
    }
    let slot = state.streams.take()?;
    let from = match is_named && message.has_begun(state.store.as_ref()).await? {
        true => From::After(after),
        false => From::Now,
    };
    let session_id = message.dialogue.session.session_id.clone();
    // The stream is opened before the message is sent, so that no event is missed.
    let mut feed = EventStream::open(state.queue.clone(), session_id.clone(), from).await?;
    if from == From::Now && message.send(state.queue.as_ref()).await?.duplicate {
        // The turn may have begun after the first look at the store.
        feed = EventStream::open(state.queue.clone(), session_id, From::After(after)).await?;
    }
    let events = turn_events::follow(feed, state.queue.clone(), state.store.clone(), &message);
    Ok(event_stream::answer(&state, slot, events))
}

/// Streams the events of a turn that has ended. Returns `None` if its last events are not published yet.
async fn again(state: &GatewayState, message: &CheckedMessage, after: u64) -> Result<Option<Response>, Reject> {
    let (queue, session_id) = (state.queue.as_ref(), &message.dialogue.session.session_id);
    // Asked first, so that what is published meanwhile is among the events.
    let is_told = chat::is_told(queue, state.store.as_ref(), session_id).await?;
    let StoredEvents { events, has_last } = stored_events(queue, session_id, &message.turn_id).await?;
    if !has_last {
        if !is_told {
            return Ok(None);
        }
        let text = format!("the events of turn `{}` are no longer stored", message.turn_id);
        let hint = format!("/api/v1/chat/history/{session_id} has the messages");
        return Err(Reject::new(StatusCode::GONE, "events_expired", text, hint));
    }
    let missed: Vec<StreamEvent> = events.into_iter().filter(|event| event.seq > after).collect();
    if missed.is_empty() {
        return Ok(Some(StatusCode::NO_CONTENT.into_response()));
    }
    let slot = state.streams.take()?;
    Ok(Some(event_stream::answer(state, slot, stream::iter(missed).map(|event| frame(&event)))))
}

/// Formats an event for the clients of a dialogue: without a name.
pub(super) fn frame(event: &StreamEvent) -> Event {
    Event::default().id(event.seq.to_string()).data(event_stream::data(&event.payload))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Reject> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let refused = |_| Reject::invalid("invalid_id", "Idempotency-Key is not ASCII", "send it as `message_id`");
    let key = value.to_str().map_err(refused)?.trim();
    Ok((!key.is_empty()).then(|| key.to_owned()))
}
