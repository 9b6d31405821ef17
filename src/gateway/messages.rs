//! `POST /api/v1/messages`.

use super::caller::Caller;
use super::input::Body;
use super::operation::Operation;
use super::roles::{FRONT_ENDS, Reach};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::access::{SessionAddress, address_of};
use commands::enqueue::Accepted;
use commands::error::CommandError;
use commands::messages::{self, NewMessage};
use serde_json::{Map, Value};
use types::ids;
use types::job::DEFAULT_CHANNEL;

pub(super) const POST_MESSAGE: Operation = Operation::post("/api/v1/messages", "messages", "post_message")
    .roles(FRONT_ENDS)
    .shows(Reach::Selected)
    .audited(false)
    .summary("Publishes a user's message.")
    .details(
        "202 means that the queue has stored it. `job_id` names the turn: a repeat with the same `job_id` also gets \
         202, and there is one turn.",
    )
    .body::<NewMessage>()
    .accepted::<Accepted>("The queue has stored the message");
pub(super) async fn post_message(
    State(state): State<GatewayState>,
    caller: Caller,
    Body(document): Body<Map<String, Value>>,
) -> Result<(StatusCode, Json<Accepted>), Reject> {
    messages::log_unknown_fields(&document);
    let mut message: NewMessage = serde_path_to_error::deserialize(Value::Object(document)).map_err(|error| {
        let place = Some(error.path().to_string()).filter(|path| path != ".").map(|path| format!("{path}: "));
        let message = format!("{}{}", place.unwrap_or_default(), error.inner());
        Reject::invalid(
            "invalid_message",
            message,
            "send {session_id, agent_id, text, job_id?, user_id?, channel?, metadata?}",
        )
    })?;
    let limited = !caller.scope().is_everything();
    let known = match limited || (state.agent_rates.is_limited() && message.agent_id.is_none()) {
        true => {
            ids::check("session_id", &message.session_id)?;
            address_of(state.queue.as_ref(), state.store.as_ref(), &message.session_id).await?
        }
        false => None,
    };
    if limited {
        address(&caller, &mut message, known.as_ref())?;
    }
    let agent_id = message.agent_id.as_deref().or(known.as_ref().map(|known| known.agent_id.as_str()));
    state.agent_rates.count(agent_id.unwrap_or_default())?;
    let accepted = messages::submit(state.queue.as_ref(), state.store.as_ref(), message).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Checks that a limited caller may send this message, and fills in the channel if the caller has only one. `known` is the
/// session if it exists.
fn address(caller: &Caller, message: &mut NewMessage, known: Option<&SessionAddress>) -> Result<(), Reject> {
    let scope = caller.scope();
    if let (None, [only]) = (&message.channel, scope.channels.as_slice()) {
        message.channel = Some(only.clone());
    }
    let channel = message.channel.as_deref().unwrap_or(DEFAULT_CHANNEL);
    if !scope.covers_channel(channel) {
        return Err(caller.is_limited(&format!("`{channel}` is not one of its channels")));
    }
    if let Some(agent_id) = message.agent_id.as_deref().filter(|agent_id| !scope.covers_agent(agent_id)) {
        return Err(caller.is_limited(&format!("`{agent_id}` is not one of its agents")));
    }
    // A session that exists must be the caller's; an unknown id begins a new one.
    let covered = known.is_none_or(|known| scope.covers(&message.session_id, &known.channel, &known.agent_id));
    if covered && scope.covers_id(&message.session_id) {
        return Ok(());
    }
    Err(CommandError::unknown_session(&message.session_id).into())
}
