//! Operators' commands, and what a human says while a session is `transferred`.

use super::input::{Body, OptionalBody, Params};
use super::intake::{self, Accepted, Spoken};
use super::{GatewayState, Reject};
use crate::queue::Command;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

/// Why, and by whom; for timers also which.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Order {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    by: Option<String>,
}

/// A human's words.
#[derive(Debug, Deserialize)]
pub(super) struct Words {
    text: String,
    #[serde(default)]
    by: Option<String>,
}

type Answer = Result<(StatusCode, Json<Accepted>), Reject>;

/// Gives up what the session is doing.
pub(super) async fn cancel(state: State<GatewayState>, id: Params<String>, order: OptionalBody<Order>) -> Answer {
    publish(state, id, order, Command::Cancel).await
}

/// Takes the conversation back from the human.
pub(super) async fn release(state: State<GatewayState>, id: Params<String>, order: OptionalBody<Order>) -> Answer {
    publish(state, id, order, Command::Release).await
}

/// Closes the conversation.
pub(super) async fn close(state: State<GatewayState>, id: Params<String>, order: OptionalBody<Order>) -> Answer {
    publish(state, id, order, Command::Close).await
}

/// Cancels pending timers: those of a name, or all.
pub(super) async fn cancel_timers(
    state: State<GatewayState>,
    id: Params<String>,
    order: OptionalBody<Order>,
) -> Answer {
    publish(state, id, order, Command::CancelTimers).await
}

async fn publish(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    OptionalBody(order): OptionalBody<Order>,
    command: Command,
) -> Answer {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let Order { name, reason, by } = order;
    let name = name.filter(|_| command == Command::CancelTimers);
    let order = intake::Order { command, name, reason, by };
    let accepted = intake::command(queue, store, &session_id, order).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Sends a human's text to the user.
pub(super) async fn reply(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Body(words): Body<Words>,
) -> Result<(StatusCode, Json<Spoken>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let spoken = intake::speak(queue, store, &session_id, words.text, words.by).await?;
    Ok((StatusCode::ACCEPTED, Json(spoken)))
}
