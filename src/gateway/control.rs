//! Commands to a session, and a human's replies while the session is `transferred`.

use super::caller::Caller;
use super::input::{Body, OptionalBody, Params};
use super::operation::Operation;
use super::roles::{AGENTS, OPERATORS};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::enqueue::Accepted;
use commands::handoffs;
use commands::operator::{self, PostedReply};
use serde::Deserialize;
use types::access::Role;
use types::job::{Command, Control};

/// Details of a command to a session. All fields are optional.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub(super) struct CommandDetails {
    /// Name of the timers to cancel; all timers by default. Other commands ignore it.
    name: Option<String>,
    /// Why the command is given; recorded with the session.
    reason: Option<String>,
    /// Who gives the command.
    by: Option<String>,
}

/// Details of a hand-back. All fields are optional.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub(super) struct ReleaseDetails {
    /// A note for the agent's model, at most 4 KiB. The user does not get it.
    note: Option<String>,
    /// Why the command is given; recorded with the session.
    reason: Option<String>,
    /// Who gives the command.
    by: Option<String>,
}

/// A human's reply to the user.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct HumanReply {
    /// The text that the user reads. Not blank.
    #[schemars(length(min = 1), regex(pattern = r"\S"))]
    text: String,
    /// Who writes it.
    by: Option<String>,
}

type Answer = Result<(StatusCode, Json<Accepted>), Reject>;

/// The description of a command.
const fn command(path: &'static str, id: &'static str) -> Operation {
    Operation::post(path, "sessions", id)
        .optional_body::<CommandDetails>()
        .accepted::<Accepted>("The queue has stored the command")
}

pub(super) const CANCEL: Operation = command("/api/v1/sessions/{session_id}/cancel", "cancel_session")
    .roles(OPERATORS)
    .summary("Cancels the session's current work.")
    .details(
        "The running turn ends immediately, as does every turn before the command in the lane. The session becomes \
         `cancelled`; its timers are cancelled, a handoff ends, and the session leaves a waiting flow.",
    );
pub(super) async fn cancel(
    state: State<GatewayState>,
    caller: Caller,
    id: Params<String>,
    order: OptionalBody<CommandDetails>,
) -> Answer {
    publish(state, caller, id, order, Command::Cancel).await
}

pub(super) const RELEASE: Operation = command("/api/v1/sessions/{session_id}/release", "release_session")
    .optional_body::<ReleaseDetails>()
    .roles(AGENTS)
    .summary("Releases a conversation from a human, or from a flow that waits for an answer.")
    .details(
        "The session becomes `ready`, and the agent handles the user's next message. Callers with the role `agent` cannot \
         release a conversation that another person has claimed.",
    );
pub(super) async fn release(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    OptionalBody(details): OptionalBody<ReleaseDetails>,
) -> Answer {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let ReleaseDetails { note, reason, by } = details;
    let by = caller.speaks_as(by);
    note.as_deref().map_or(Ok(()), handoffs::check_note)?;
    if caller.role() == Role::Agent {
        let session = operator::require_transferred(store, &session_id).await?;
        operator::require_no_other_claim(&session, &caller.acts_as(by.clone()))?;
    }
    let order = Control { note, reason, by, ..Control::new(Command::Release) };
    Ok((StatusCode::ACCEPTED, Json(operator::control(queue, store, &session_id, order).await?)))
}

pub(super) const CLOSE: Operation = command("/api/v1/sessions/{session_id}/close", "close_session")
    .roles(OPERATORS)
    .summary("Closes the conversation.")
    .details(
        "Its timers are cancelled, a handoff ends, and the session leaves a waiting flow. The user's next message \
         opens the conversation again.",
    );
pub(super) async fn close(
    state: State<GatewayState>,
    caller: Caller,
    id: Params<String>,
    order: OptionalBody<CommandDetails>,
) -> Answer {
    publish(state, caller, id, order, Command::Close).await
}

pub(super) const CANCEL_TIMERS: Operation = command("/api/v1/sessions/{session_id}/timers/cancel", "cancel_timers")
    .roles(OPERATORS)
    .summary("Cancels pending timers: those with the given `name`, or all.");
pub(super) async fn cancel_timers(
    state: State<GatewayState>,
    caller: Caller,
    id: Params<String>,
    order: OptionalBody<CommandDetails>,
) -> Answer {
    publish(state, caller, id, order, Command::CancelTimers).await
}

async fn publish(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    OptionalBody(order): OptionalBody<CommandDetails>,
    command: Command,
) -> Answer {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let CommandDetails { name, reason, by } = order;
    let name = name.filter(|_| command == Command::CancelTimers);
    let order = operator::OperatorCommand { command, name, reason, by: caller.speaks_as(by) };
    let accepted = operator::command(queue, store, &session_id, order).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

pub(super) const REPLY: Operation = Operation::post("/api/v1/sessions/{session_id}/reply", "sessions", "reply_to_user")
    .roles(AGENTS)
    .summary("Sends a human's reply to the user while the session is `transferred`.")
    .details(
        "Sessions in another status get 409 `not_transferred`. If another person has the claim, 409 `claimed`; a reply \
         that loses this race in the lane is not sent, and a `handoff` event says so.",
    )
    .body::<HumanReply>()
    .accepted::<PostedReply>("The queue has stored the reply");
pub(super) async fn reply(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Body(words): Body<HumanReply>,
) -> Result<(StatusCode, Json<PostedReply>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let spoken = operator::post_reply(queue, store, &session_id, words.text, caller.speaks_as(words.by)).await?;
    Ok((StatusCode::ACCEPTED, Json(spoken)))
}
