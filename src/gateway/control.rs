//! Commands to a session, and a human's replies while the session is `transferred`.

use super::input::{Body, OptionalBody, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::enqueue::Accepted;
use commands::operator::{self, PostedReply};
use serde::Deserialize;
use types::ids::Id;
use types::job::Command;

/// Details of a command to a session. All fields are optional.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(super) struct CommandDetails {
    /// Name of the timers to cancel; all timers by default. Other commands ignore it.
    #[serde(default)]
    name: Option<String>,
    /// Why the command is given; recorded with the session.
    #[serde(default)]
    reason: Option<String>,
    /// Who gives the command.
    #[serde(default)]
    by: Option<String>,
}

/// A human's reply to the user.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(super) struct HumanReply {
    /// The text that the user reads. Not blank.
    #[schema(min_length = 1, pattern = r"\S")]
    text: String,
    /// Who writes it.
    #[serde(default)]
    by: Option<String>,
}

type Answer = Result<(StatusCode, Json<Accepted>), Reject>;

/// Cancels the session's current work.
///
/// The running turn ends immediately, as does every turn before the command in the lane. The session becomes
/// `cancelled`; its timers are cancelled, a handoff ends, and the session leaves a waiting flow.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/cancel", operation_id = "cancel_session", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<CommandDetails>), responses((status = 202, description = "The queue has stored the command", body = Accepted)))]
pub(super) async fn cancel(
    state: State<GatewayState>,
    id: Params<String>,
    order: OptionalBody<CommandDetails>,
) -> Answer {
    publish(state, id, order, Command::Cancel).await
}

/// Releases a conversation from a human, or from a flow that waits for an answer.
///
/// The session becomes `ready`, and the agent handles the user's next message.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/release", operation_id = "release_session", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<CommandDetails>), responses((status = 202, description = "The queue has stored the command", body = Accepted)))]
pub(super) async fn release(
    state: State<GatewayState>,
    id: Params<String>,
    order: OptionalBody<CommandDetails>,
) -> Answer {
    publish(state, id, order, Command::Release).await
}

/// Closes the conversation.
///
/// Its timers are cancelled, a handoff ends, and the session leaves a waiting flow. The user's next message opens the
/// conversation again.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/close", operation_id = "close_session", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<CommandDetails>), responses((status = 202, description = "The queue has stored the command", body = Accepted)))]
pub(super) async fn close(
    state: State<GatewayState>,
    id: Params<String>,
    order: OptionalBody<CommandDetails>,
) -> Answer {
    publish(state, id, order, Command::Close).await
}

/// Cancels pending timers: those with the given `name`, or all.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/timers/cancel", operation_id = "cancel_timers", tag = "sessions", params(("session_id" = Id, Path)),
    request_body(content = Option<CommandDetails>), responses((status = 202, description = "The queue has stored the command", body = Accepted)))]
pub(super) async fn cancel_timers(
    state: State<GatewayState>,
    id: Params<String>,
    order: OptionalBody<CommandDetails>,
) -> Answer {
    publish(state, id, order, Command::CancelTimers).await
}

async fn publish(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    OptionalBody(order): OptionalBody<CommandDetails>,
    command: Command,
) -> Answer {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let CommandDetails { name, reason, by } = order;
    let name = name.filter(|_| command == Command::CancelTimers);
    let order = operator::OperatorCommand { command, name, reason, by };
    let accepted = operator::command(queue, store, &session_id, order).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Sends a human's reply to the user while the session is `transferred`.
///
/// Sessions in another status get 409 `not_transferred`.
#[utoipa::path(post, path = "/api/v1/sessions/{session_id}/reply", operation_id = "reply_to_user", tag = "sessions", params(("session_id" = Id, Path)),
    request_body = HumanReply, responses((status = 202, description = "The queue has stored the reply", body = PostedReply)))]
pub(super) async fn reply(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Body(words): Body<HumanReply>,
) -> Result<(StatusCode, Json<PostedReply>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let spoken = operator::post_reply(queue, store, &session_id, words.text, words.by).await?;
    Ok((StatusCode::ACCEPTED, Json(spoken)))
}
