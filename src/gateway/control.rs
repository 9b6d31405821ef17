//! Operators' commands, and what a human says while a session is `transferred`.

use super::input::{Body, OptionalBody, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::enqueue::Accepted;
use commands::operator::{self, Spoken};
use serde::Deserialize;
use types::ids::Id;
use types::job::Command;

/// Why, and by whom; for timers also which.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(super) struct Order {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    by: Option<String>,
}

/// A human's words.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(super) struct Words {
    /// What the user is to read.
    #[schema(min_length = 1, pattern = r"\S")]
    text: String,
    #[serde(default)]
    by: Option<String>,
}

type Answer = Result<(StatusCode, Json<Accepted>), Reject>;

/// Gives up what the session is doing.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/cancel", operation_id = "cancel_session", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<Order>), responses((status = 202, description = "The queue holds it", body = Accepted)))]
pub(super) async fn cancel(state: State<GatewayState>, id: Params<String>, order: OptionalBody<Order>) -> Answer {
    publish(state, id, order, Command::Cancel).await
}

/// Takes the conversation back from the human, or out of a flow that waits for an answer.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/release", operation_id = "release_session", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<Order>), responses((status = 202, description = "The queue holds it", body = Accepted)))]
pub(super) async fn release(state: State<GatewayState>, id: Params<String>, order: OptionalBody<Order>) -> Answer {
    publish(state, id, order, Command::Release).await
}

/// Closes the conversation.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/close", operation_id = "close_session", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<Order>), responses((status = 202, description = "The queue holds it", body = Accepted)))]
pub(super) async fn close(state: State<GatewayState>, id: Params<String>, order: OptionalBody<Order>) -> Answer {
    publish(state, id, order, Command::Close).await
}

/// Cancels pending timers: those of a name, or all.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/timers/cancel", operation_id = "cancel_timers", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<Order>), responses((status = 202, description = "The queue holds it", body = Accepted)))]
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
    let order = operator::Order { command, name, reason, by };
    let accepted = operator::command(queue, store, &session_id, order).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Sends a human's text to the user, while the session is `transferred`.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/reply", operation_id = "reply_to_user", tag = "sessions", params(("session_id" = Id, Path)),
    request_body = Words, responses((status = 202, description = "The queue holds it", body = Spoken)))]
pub(super) async fn reply(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Body(words): Body<Words>,
) -> Result<(StatusCode, Json<Spoken>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let spoken = operator::speak(queue, store, &session_id, words.text, words.by).await?;
    Ok((StatusCode::ACCEPTED, Json(spoken)))
}
