//! Sessions and their turns, to be read.

use super::input::{Filter, Params};
use super::openapi::{DottedId, Id};
use super::{GatewayState, Reject};
use crate::storage::queue::{self, Queue};
use crate::storage::store::Store;
use crate::storage::store::records::SessionQuery;
use crate::types::ids;
use crate::types::session::{Kind, Session, Status, Waiting};
use crate::types::step::StepRecord;
use crate::types::timestamp::Timestamp;
use crate::types::turn::TurnRecord;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most that a listing answers, and what it answers unless told.
const MAX_LIMIT: usize = 1_000;
const DEFAULT_LIMIT: usize = 50;
/// How long a session that is shown waits for the queue.
const QUEUE_LIMIT: Duration = Duration::from_secs(1);

/// What a listing shows of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionSummary {
    /// Key of the session.
    pub session_id: String,
    /// The agent that answers.
    pub agent_id: String,
    /// The user.
    pub user_id: String,
    /// The channel.
    pub channel: String,
    /// What it is for.
    pub kind: Kind,
    /// Where it stands.
    pub status: Status,
    /// Why it is `cancelled`.
    pub status_reason: Option<String>,
    /// How many timers are pending.
    pub timers: usize,
    /// The flow that waits for the user's answer, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// When it was closed, if it is.
    pub closed_at: Option<Timestamp>,
    /// When its first message came.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl From<Session> for SessionSummary {
    fn from(session: Session) -> Self {
        Self {
            session_id: session.session_id,
            agent_id: session.agent_id,
            user_id: session.user_id,
            channel: session.channel,
            kind: session.kind,
            status: session.workflow_state.status,
            status_reason: session.status_reason,
            timers: session.timers.len(),
            waiting: session.waiting.map(|waiting| *waiting),
            closed_at: session.closed_at,
            created_at: session.created_at,
            updated_at: session.updated_at,
        }
    }
}

/// The session document as others may read it: without its lease, the turn in hand and what is to be published.
fn shown(session: Session) -> Session {
    Session { lease: None, turn: None, outbox: Vec::new(), ..session }
}

/// A session, and whether jobs wait in its lane.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionDetails {
    /// The session, without its lease.
    #[serde(flatten)]
    pub session: Session,
    /// True when its lane has a job that waits or is in work. Left out while the queue does not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_jobs: Option<bool>,
}

/// True when the session's lane has a job that waits or is in work.
pub async fn has_jobs(queue: &dyn Queue, session: &Session) -> queue::Result<bool> {
    let Session { session_id, stream, last_seq, .. } = session;
    let Some(first) = queue.next_in_lane(session_id, 0, 0).await? else { return Ok(false) };
    // In a stream that was made again the session's sequence says nothing.
    let is_new = stream.is_some_and(|stream| stream != first.stream) || first.seq > *last_seq;
    // The first one may be handled, and its acknowledgement on the way.
    Ok(is_new || queue.next_in_lane(session_id, *last_seq, 0).await?.is_some())
}

/// Sessions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SessionList {
    sessions: Vec<SessionSummary>,
}

/// Turns.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct TurnList {
    turns: Vec<TurnRecord>,
}

/// A turn with its steps.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TurnDetails {
    /// The turn.
    #[serde(flatten)]
    pub turn: TurnRecord,
    /// Its journal, in the order of the keys.
    pub steps: Vec<StepRecord>,
}

/// The last turns of a session with their steps, oldest first.
pub async fn turns_of(store: &dyn Store, session_id: &str, limit: usize) -> Result<Vec<TurnDetails>, Reject> {
    let mut found = Vec::new();
    for turn in store.turns(session_id, limit).await?.into_iter().rev() {
        let steps = store.steps(session_id, &turn.turn_id).await?;
        found.push(TurnDetails { turn, steps });
    }
    Ok(found)
}

/// Which sessions, and how many.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only those in this status.
    #[serde(default)]
    status: Option<Status>,
    /// Only those of this agent.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    agent_id: Option<String>,
    /// 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default)]
    limit: Option<usize>,
}

pub(super) fn bounded(limit: Option<usize>) -> Result<usize, Reject> {
    match limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        other => {
            let message = format!("limit: {other} is not between 1 and {MAX_LIMIT}");
            Err(Reject::invalid("invalid_query", message, format!("{DEFAULT_LIMIT} is what holds without a limit")))
        }
    }
}

/// Sessions, last changed first.
#[utoipa::path(get, path = "/api/v1/sessions", operation_id = "list_sessions", tag = "sessions", params(Which),
    responses((status = 200, description = "Sessions", body = SessionList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<Which>,
) -> Result<Json<SessionList>, Reject> {
    if let Some(agent_id) = &which.agent_id {
        ids::check("agent_id", agent_id)?;
    }
    let query = SessionQuery { status: which.status, agent_id: which.agent_id, limit: bounded(which.limit)? };
    let sessions = state.store.sessions(query).await?;
    Ok(Json(SessionList { sessions: sessions.into_iter().map(SessionSummary::from).collect() }))
}

/// One session.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}", operation_id = "show_session", tag = "sessions", params(("session_id" = Id, Path)),
    responses((status = 200, description = "The session, without its lease", body = SessionDetails)))]
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
) -> Result<Json<SessionDetails>, Reject> {
    let session = load(&state, &session_id).await?;
    let asked = tokio::time::timeout(QUEUE_LIMIT, has_jobs(state.queue.as_ref(), &session)).await;
    let has_jobs = asked.ok().and_then(Result::ok);
    Ok(Json(SessionDetails { session: shown(session), has_jobs }))
}

/// How many.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct HowMany {
    /// 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default)]
    pub(super) limit: Option<usize>,
}

/// A session's turns, newest first.
#[utoipa::path(get, path = "/api/v1/sessions/{session_id}/turns", operation_id = "list_turns", tag = "sessions",
    params(("session_id" = Id, Path), HowMany), responses((status = 200, description = "Turns", body = TurnList)))]
pub(super) async fn turns(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
    Filter(many): Filter<HowMany>,
) -> Result<Json<TurnList>, Reject> {
    let limit = bounded(many.limit)?;
    load(&state, &session_id).await?;
    Ok(Json(TurnList { turns: state.store.turns(&session_id, limit).await? }))
}

/// One turn with its steps.
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
    let turn = found.ok_or_else(|| Reject::unknown_turn(&session_id, &turn_id))?;
    Ok(Json(TurnDetails { turn, steps: state.store.steps(&session_id, &turn_id).await? }))
}

async fn load(state: &GatewayState, session_id: &str) -> Result<Session, Reject> {
    ids::check("session_id", session_id)?;
    let session = state.store.session(session_id).await?.filter(|session| session.kind != Kind::Run);
    session.ok_or_else(|| Reject::unknown_session(session_id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::event::{EventType, OutEvent};
    use crate::types::session::{Lease, OpenTurn};

    #[test]
    fn lease_open_turn_and_outbox_are_not_shown() {
        let at = Timestamp::from_millis(0);
        let mut session = Session::new("s1", at);
        session.lease = Some(Lease { owner: "w1".into(), until: at, token: "t".into() });
        session.turn =
            Some(OpenTurn { seq: 1, agent_id: "a".into(), hash: "h".into(), status: Status::Ready, at, attempt: 1 });
        session.outbox = vec![OutEvent {
            channel: "web".into(),
            session_id: "s1".into(),
            event_type: EventType::Status,
            msg_id: None,
            payload: "{}".into(),
        }];
        let document = serde_json::to_value(shown(session)).unwrap();
        assert!(["lease", "turn", "outbox"].iter().all(|field| document.get(field).is_none()));
        assert_eq!(document["session_id"], "s1");
        assert_eq!(document["workflow_state"]["status"], "ready");
        let read: Session = serde_json::from_value(document).unwrap();
        assert_eq!(read.session_id, "s1");
    }

    #[test]
    fn limits_are_bounded() {
        assert_eq!(bounded(None).unwrap(), DEFAULT_LIMIT);
        assert!(bounded(Some(0)).is_err() && bounded(Some(MAX_LIMIT + 1)).is_err());
    }
}
