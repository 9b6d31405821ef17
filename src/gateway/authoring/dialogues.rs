//! Authoring dialogues: begin, list, show, delete. [`chat`](super::chat) has their messages.

use crate::access::session_in_scope;
use crate::caller::Caller;
use crate::input::{Body, Filter, Params};
use crate::operation::Operation;
use crate::roles::{AUTHORS, AUTHORS_AND_READERS, Reach};
use crate::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::authoring::create::{self, NewDialogue, NewSession};
use commands::authoring::view::{ChatHistory, DialogueDetails, DialogueSummary};
use commands::authoring::{self, Dialogue};
use commands::deletion::Deletion;
use commands::enqueue::new_id;
use commands::paging::{DEFAULT_LIMIT, Listing, MAX_LIMIT, bounds};
use serde::{Deserialize, Serialize};
use types::authoring::Stage;
use types::ids::DottedId;

/// Dialogues, the last changed first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct DialogueList {
    sessions: Vec<DialogueSummary>,
    /// The cursor of the next page, for `after`. Missing on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct DialogueFilter {
    /// Only dialogues of this user.
    #[schemars(with = "Option<DottedId>")]
    user_id: Option<String>,
    /// Only dialogues in this stage.
    stage: Option<Stage>,
    /// The highest number of dialogues.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page. This page contains the entries after it.
    after: Option<String>,
}

pub(super) const CREATE: Operation = Operation::post("/api/v1/session", "authoring", "create_authoring_session")
    .roles(AUTHORS)
    .shows(Reach::Selected)
    .summary("Begins an authoring dialogue.")
    .details("The dialogue makes a workflow or an agent. `POST /api/v1/chat/stream` takes its messages.")
    .body::<NewDialogue>()
    .ok::<NewSession>("The dialogue");
pub(super) async fn create(
    State(state): State<GatewayState>,
    caller: Caller,
    Body(mut new): Body<NewDialogue>,
) -> Result<Json<NewSession>, Reject> {
    let scope = caller.scope();
    let prefix = scope.session_prefix.as_deref().unwrap_or_default();
    let session_id = new.session_id.take().unwrap_or_else(|| format!("{prefix}{}", new_id()));
    if !scope.covers_id(&session_id) {
        return Err(caller.is_limited(&format!("`{session_id}` is not one of them")));
    }
    let channel = scope.channels.first().cloned();
    new.session_id = Some(session_id);
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    Ok(Json(create::create(queue, store, &caller.author(), new, channel).await?))
}

pub(super) const LIST: Operation = Operation::get("/api/v1/session", "authoring", "list_authoring_sessions")
    .roles(AUTHORS_AND_READERS)
    .shows(Reach::Selected)
    .summary("Lists authoring dialogues, the last changed first. Authors see their own.")
    .query::<DialogueFilter>()
    .ok::<DialogueList>("The dialogues");
pub(super) async fn list(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(which): Filter<DialogueFilter>,
) -> Result<Json<DialogueList>, Reject> {
    let DialogueFilter { user_id, stage, limit, after } = which;
    let bounds = bounds(after, limit)?;
    let Listing { items, next } =
        authoring::list(state.store.as_ref(), &caller.author(), user_id, stage, bounds).await?;
    let mut sessions: Vec<DialogueSummary> = Vec::with_capacity(items.len());
    for summary in items {
        if session_in_scope(&state, caller.scope(), &summary.session_id).await.is_ok() {
            sessions.push(summary);
        }
    }
    Ok(Json(DialogueList { sessions, next }))
}

pub(super) async fn load(state: &GatewayState, caller: &Caller, session_id: &str) -> Result<Dialogue, Reject> {
    Ok(authoring::load(state.store.as_ref(), &caller.author(), session_id).await?)
}

pub(super) const SHOW: Operation =
    Operation::get("/api/v1/session/{session_id}", "authoring", "show_authoring_session")
        .roles(AUTHORS_AND_READERS)
        .summary("Shows the stage of an authoring dialogue, and the actions that it waits for.")
        .ok::<DialogueDetails>("The dialogue");
pub(super) async fn show(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
) -> Result<Json<DialogueDetails>, Reject> {
    Ok(Json(load(&state, &caller, &session_id).await?.into()))
}

pub(super) const HISTORY: Operation =
    Operation::get("/api/v1/chat/history/{session_id}", "authoring", "show_authoring_history")
        .roles(AUTHORS_AND_READERS)
        .summary("Shows the messages of an authoring dialogue.")
        .ok::<ChatHistory>("The last messages, oldest first");
pub(super) async fn history(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
) -> Result<Json<ChatHistory>, Reject> {
    Ok(Json(load(&state, &caller, &session_id).await?.into()))
}

pub(super) const DELETE: Operation =
    Operation::delete("/api/v1/session/{session_id}", "authoring", "delete_authoring_session")
        .roles(AUTHORS)
        .summary("Deletes an authoring dialogue with its drafts.")
        .details("The published document stays. Refused while a turn is in progress.")
        .no_content("The dialogue is deleted");
pub(super) async fn delete(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(session_id): Params<String>,
) -> Result<StatusCode, Reject> {
    if load(&state, &caller, &session_id).await?.is_busy() {
        return Err(authoring::busy(&session_id).into());
    }
    state.replays.forget_session(&session_id);
    let ack_wait = state.settings.worker.ack_wait.0;
    Deletion::new(state.queue.as_ref(), state.store.as_ref(), ack_wait).session(&session_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
