//! Pending timers of all sessions or of one.

use super::input::Filter;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::sessions::bounded;
use commands::timers::{PendingTimer, pending};
use serde::{Deserialize, Serialize};
use types::ids::Id;

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
