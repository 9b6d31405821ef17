//! Who writes in a conversation that is handed off: claims, takeovers, and notes for colleagues.

use super::caller::Caller;
use super::input::{Body, OptionalBody, Params};
use super::operation::Operation;
use super::roles::{AGENTS, OPERATORS};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::enqueue::Accepted;
use commands::handoffs::{self, ClaimResult};
use serde::{Deserialize, Serialize};
use types::job::{Command, Control};

/// Details of a claim. All fields are optional.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub(super) struct ClaimDetails {
    /// Who gets the claim; by default the caller.
    by: Option<String>,
    /// Also if the agent has the conversation: its running turn ends without another word to the user.
    #[serde(default)]
    take_over: bool,
    /// Why the conversation is taken over; recorded with the turn that ends.
    reason: Option<String>,
}

/// Details of the end of a claim. All fields are optional.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub(super) struct UnclaimDetails {
    /// Who has the claim; by default the caller.
    by: Option<String>,
    /// Also if another person has the claim. Only for the roles `operator` and `admin`.
    #[serde(default)]
    force: bool,
}

/// A claim that is passed on.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct ClaimTransfer {
    /// Who gets the claim.
    #[schemars(length(min = 1), regex(pattern = r"\S"))]
    to: String,
    /// Who passes it on; by default the caller.
    by: Option<String>,
    /// A note for colleagues.
    note: Option<String>,
    /// Also if another person has the claim. Only for the roles `operator` and `admin`.
    #[serde(default)]
    force: bool,
}

/// A note for colleagues.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct NewNote {
    /// The text, at most 4 KiB. Neither the user nor the model reads it.
    #[schemars(length(min = 1), regex(pattern = r"\S"))]
    text: String,
    /// Who writes it; by default the caller.
    by: Option<String>,
}

/// The person who is writing.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub(super) struct TypingDetails {
    /// Who is writing; by default the caller.
    by: Option<String>,
}

/// The session in which the event was published.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct TypingReported {
    /// The session.
    session_id: String,
}

type Answer = Result<(StatusCode, Json<ClaimResult>), Reject>;

/// The description of a change of the claim.
const fn change(path: &'static str, id: &'static str) -> Operation {
    Operation::post(path, "sessions", id)
        .roles(AGENTS)
        .ok::<ClaimResult>("The handoff as it is now")
        .or_accepted("The queue has stored the command, and its turn has not ended within 10 s")
}

pub(super) const CLAIM: Operation = change("/api/v1/sessions/{session_id}/claim", "claim_session")
    .optional_body::<ClaimDetails>()
    .summary("Claims a conversation that is handed off, or takes it over from the agent.")
    .details(
        "While a person has the claim, only that person's replies reach the user. Of two people who claim at the same time, one \
         gets the claim and the other 409 `claimed`. A repeated claim renews it. It ends when a user's message waits for \
         `handoff.claim_timeout` without an answer.",
    );
pub(super) async fn claim(
    state: State<GatewayState>,
    caller: Caller,
    id: Params<String>,
    OptionalBody(details): OptionalBody<ClaimDetails>,
) -> Answer {
    let ClaimDetails { by, take_over, reason } = details;
    let by = Some(caller.acts_as(by));
    send(state, id, Control { by, take_over, reason, ..Control::new(Command::Claim) }).await
}

pub(super) const UNCLAIM: Operation = change("/api/v1/sessions/{session_id}/unclaim", "unclaim_session")
    .optional_body::<UnclaimDetails>()
    .summary("Ends a claim: the conversation waits for another person.");
pub(super) async fn unclaim(
    state: State<GatewayState>,
    caller: Caller,
    id: Params<String>,
    OptionalBody(details): OptionalBody<UnclaimDetails>,
) -> Answer {
    let UnclaimDetails { by, force } = details;
    may_force(&caller, force)?;
    let by = Some(caller.acts_as(by));
    send(state, id, Control { by, force, ..Control::new(Command::Unclaim) }).await
}

pub(super) const TRANSFER: Operation = change("/api/v1/sessions/{session_id}/transfer", "transfer_claim")
    .body::<ClaimTransfer>()
    .summary("Passes a claim on to another person.");
pub(super) async fn transfer(
    state: State<GatewayState>,
    caller: Caller,
    id: Params<String>,
    Body(details): Body<ClaimTransfer>,
) -> Answer {
    let ClaimTransfer { to, by, note, force } = details;
    may_force(&caller, force)?;
    let (to, by) = (Some(to), Some(caller.acts_as(by)));
    send(state, id, Control { to, by, note, force, ..Control::new(Command::Transfer) }).await
}

/// 403 for a caller who may not act against the claim of another person.
fn may_force(caller: &Caller, force: bool) -> Result<(), Reject> {
    if force && !OPERATORS.contains(&caller.role()) { Err(caller.lacks(OPERATORS)) } else { Ok(()) }
}

async fn send(State(state): State<GatewayState>, Params(session_id): Params<String>, order: Control) -> Answer {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let result = handoffs::change_claim(queue, store, &session_id, order).await?;
    let status = if result.handoff.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(result)))
}

pub(super) const NOTE: Operation = Operation::post("/api/v1/sessions/{session_id}/notes", "sessions", "add_note")
    .roles(AGENTS)
    .summary("Adds a note for colleagues to a conversation that is handed off.")
    .details("The session keeps the last 50 notes until the handoff ends.")
    .body::<NewNote>()
    .accepted::<Accepted>("The queue has stored the command");
pub(super) async fn note(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    Body(note): Body<NewNote>,
) -> Result<(StatusCode, Json<Accepted>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let (note, by) = (Some(note.text), Some(caller.acts_as(note.by)));
    let order = Control { note, by, ..Control::new(Command::Note) };
    Ok((StatusCode::ACCEPTED, Json(handoffs::add_note(queue, store, &session_id, order).await?)))
}

pub(super) const TYPING: Operation =
    Operation::post("/api/v1/sessions/{session_id}/typing", "sessions", "report_typing")
        .roles(AGENTS)
        .audited(false)
        .summary("Reports that a person is writing to the user, as a `handoff` event with the change `typing`.")
        .details("At most one event in 3 s for a session and person is published. It goes through no lane.")
        .optional_body::<TypingDetails>()
        .accepted::<TypingReported>("The queue has stored the event, or has had one in the last 3 s");
pub(super) async fn typing(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
    OptionalBody(details): OptionalBody<TypingDetails>,
) -> Result<(StatusCode, Json<TypingReported>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    handoffs::report_typing(queue, store, &session_id, caller.acts_as(details.by)).await?;
    Ok((StatusCode::ACCEPTED, Json(TypingReported { session_id })))
}
