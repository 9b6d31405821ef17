//! Sessions and their turns: list and show.

use super::input::{Filter, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::error::CommandError;
use commands::sessions::{SessionDetails, SessionSummary, TurnDetails, bounded, has_jobs, public_view};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use storage::store::records::SessionQuery;
use types::ids::{self, DottedId, Id};
use types::session::{Kind, Session, Status};
use types::turn::TurnRecord;

/// How long `show` waits for the queue before it omits `has_jobs`.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sessions, last changed first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SessionList {
    sessions: Vec<SessionSummary>,
}

/// Turns, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct TurnList {
    turns: Vec<TurnRecord>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionFilter {
    /// Only sessions in this status.
    #[serde(default)]
    status: Option<Status>,
    /// Only sessions of this agent.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    agent_id: Option<String>,
    /// The highest number of sessions.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    #[serde(default)]
    limit: Option<usize>,
}

/// Lists sessions, last changed first.
#[utoipa::path(get, path = "/api/v1/sessions", operation_id = "list_sessions", tag = "sessions", params(SessionFilter),
    responses((status = 200, description = "The sessions", body = SessionList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<SessionFilter>,
) -> Result<Json<SessionList>, Reject> {
    if let Some(agent_id) = &which.agent_id {
        ids::check("agent_id", agent_id)?;
    }
    let query = SessionQuery { status: which.status, agent_id: which.agent_id, limit: bounded(which.limit)? };
    let sessions = state.store.sessions(query).await?;
    Ok(Json(SessionList { sessions: sessions.into_iter().map(SessionSummary::from).collect() }))
}

/// Shows a session: its status, history, profile and timers.
///
/// `has_jobs` is missing if the queue does not respond within 1 s.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}", operation_id = "show_session", tag = "sessions", params(("session_id" = Id, Path)),
    responses((status = 200, description = "The session, without its lease", body = SessionDetails)))]
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
) -> Result<Json<SessionDetails>, Reject> {
    let session = load(&state, &session_id).await?;
    let asked = tokio::time::timeout(QUEUE_TIMEOUT, has_jobs(state.queue.as_ref(), &session)).await;
    let has_jobs = asked.ok().and_then(Result::ok);
    let session = match state.internals {
        true => Session { outbox: Vec::new(), ..session },
        false => public_view(session),
    };
    Ok(Json(SessionDetails { session, has_jobs }))
}

/// Length of a listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LimitParam {
    /// The highest number of entries.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    #[serde(default)]
    pub(super) limit: Option<usize>,
}

/// Lists a session's turns, newest first.
///
/// A turn is listed after its commit.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}/turns", operation_id = "list_turns", tag = "sessions",
    params(("session_id" = Id, Path), LimitParam), responses((status = 200, description = "The turns", body = TurnList)))]
pub(super) async fn turns(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Filter(many): Filter<LimitParam>,
) -> Result<Json<TurnList>, Reject> {
    let limit = bounded(many.limit)?;
    load(&state, &session_id).await?;
    Ok(Json(TurnList { turns: state.store.turns(&session_id, limit).await? }))
}

/// Shows a turn with its steps.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}/turns/{turn_id}", operation_id = "show_turn", tag = "sessions",
    params(("session_id" = Id, Path), ("turn_id" = DottedId, Path)),
    responses((status = 200, description = "The turn", body = TurnDetails)))]
pub(super) async fn turn(
    State(state): State<GatewayState>,
    Params((session_id, turn_id)): Params<(String, String)>,
) -> Result<Json<TurnDetails>, Reject> {
    ids::check("turn_id", &turn_id)?;
    load(&state, &session_id).await?;
    let found = state.store.turn(&session_id, &turn_id).await?;
    let turn = found.ok_or_else(|| CommandError::unknown_turn(&session_id, &turn_id))?;
    Ok(Json(TurnDetails { turn, steps: state.store.steps(&session_id, &turn_id).await? }))
}

async fn load(state: &GatewayState, session_id: &str) -> Result<Session, Reject> {
    ids::check("session_id", session_id)?;
    let session = state.store.session(session_id).await?.filter(|session| state.internals || session.kind != Kind::Run);
    Ok(session.ok_or_else(|| CommandError::unknown_session(session_id))?)
}
