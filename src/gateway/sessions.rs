//! Sessions and their turns: list and show.

use super::caller::Caller;
use super::input::{Filter, Params};
use super::operation::Operation;
use super::roles::{FRONT_ENDS_AND_READERS, READERS, Reach};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::error::CommandError;
use commands::sessions::{
    DEFAULT_LIMIT, MAX_LIMIT, SessionDetails, SessionSummary, TurnDetails, bounded, has_jobs, public_view,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use storage::store::records::SessionQuery;
use types::ids::{self, Id};
use types::session::{Kind, Session, Status};
use types::turn::TurnRecord;

/// How long `show` waits for the queue before it omits `has_jobs`.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Sessions, last changed first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct SessionList {
    sessions: Vec<SessionSummary>,
}

/// Turns, newest first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct TurnList {
    turns: Vec<TurnRecord>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct SessionFilter {
    /// Only sessions in this status.
    status: Option<Status>,
    /// Only sessions of this agent.
    #[schemars(with = "Option<Id>")]
    agent_id: Option<String>,
    /// The highest number of sessions.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/sessions", "sessions", "list_sessions")
    .roles(READERS)
    .shows(Reach::Selected)
    .summary("Lists sessions, last changed first.")
    .query::<SessionFilter>()
    .ok::<SessionList>("The sessions");
pub(super) async fn list(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(which): Filter<SessionFilter>,
) -> Result<Json<SessionList>, Reject> {
    if let Some(agent_id) = &which.agent_id {
        ids::check("agent_id", agent_id)?;
    }
    let query = SessionQuery {
        status: which.status,
        agent_id: which.agent_id,
        scope: caller.scope().clone(),
        limit: bounded(which.limit)?,
    };
    let sessions = state.store.sessions(query).await?;
    Ok(Json(SessionList { sessions: sessions.into_iter().map(SessionSummary::from).collect() }))
}

pub(super) const SHOW: Operation = Operation::get("/api/v1/sessions/{session_id}", "sessions", "show_session")
    .roles(FRONT_ENDS_AND_READERS)
    .summary("Shows a session: its status, history, profile and timers.")
    .details("`has_jobs` is missing if the queue does not respond within 1 s.")
    .ok::<SessionDetails>("The session, without its lease");
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
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct LimitParam {
    /// The highest number of entries.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    pub(super) limit: Option<usize>,
}

pub(super) const TURNS: Operation = Operation::get("/api/v1/sessions/{session_id}/turns", "sessions", "list_turns")
    .roles(READERS)
    .summary("Lists a session's turns, newest first.")
    .details("A turn is listed after its commit.")
    .query::<LimitParam>()
    .ok::<TurnList>("The turns");
pub(super) async fn turns(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Filter(many): Filter<LimitParam>,
) -> Result<Json<TurnList>, Reject> {
    let limit = bounded(many.limit)?;
    load(&state, &session_id).await?;
    Ok(Json(TurnList { turns: state.store.turns(&session_id, limit).await? }))
}

pub(super) const TURN: Operation =
    Operation::get("/api/v1/sessions/{session_id}/turns/{turn_id}", "sessions", "show_turn")
        .roles(READERS)
        .summary("Shows a turn with its steps.")
        .ok::<TurnDetails>("The turn");
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
