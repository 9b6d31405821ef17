//! Pending timers of all sessions or of one.

use super::input::Filter;
use super::openapi::Id;
use super::sessions::bounded;
use super::{GatewayState, Reject};
use crate::storage::store::Store;
use crate::storage::store::records::DueTimer;
use crate::types::ids;
use crate::types::timer::Timer;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Further ahead than any timer is due.
const EVER: Duration = Duration::from_secs(200 * 365 * 86_400);

/// A timer with its session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PendingTimer {
    /// The session.
    pub session_id: String,
    /// The timer.
    #[serde(flatten)]
    pub timer: Timer,
}

impl From<DueTimer> for PendingTimer {
    fn from(DueTimer { session_id, timer }: DueTimer) -> Self {
        Self { session_id, timer }
    }
}

/// Timers that have not fired, those due first at the top: of one session, or of all.
pub async fn pending(store: &dyn Store, session_id: Option<&str>, limit: usize) -> Result<Vec<PendingTimer>, Reject> {
    let Some(session_id) = session_id else {
        return Ok(store.due_timers(EVER, limit).await?.timers.into_iter().map(PendingTimer::from).collect());
    };
    ids::check("session_id", session_id)?;
    let session = store.session(session_id).await?.ok_or_else(|| Reject::unknown_session(session_id))?;
    let of_session = |timer| PendingTimer { session_id: session_id.to_owned(), timer };
    let mut timers: Vec<_> = session.timers.into_iter().map(of_session).collect();
    timers.sort_by_key(|pending| pending.timer.due_at);
    timers.truncate(limit);
    Ok(timers)
}

/// Timers, those due first at the top.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct TimerList {
    timers: Vec<PendingTimer>,
}

/// Whose, and how many.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only those of this session.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    session_id: Option<String>,
    /// 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default)]
    limit: Option<usize>,
}

/// Timers that have not fired.
#[utoipa::path(get, path = "/api/v1/timers", operation_id = "list_timers", tag = "sessions", params(Which),
    responses((status = 200, description = "Timers", body = TimerList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<Which>,
) -> Result<Json<TimerList>, Reject> {
    let timers = pending(state.store.as_ref(), which.session_id.as_deref(), bounded(which.limit)?).await?;
    Ok(Json(TimerList { timers }))
}
