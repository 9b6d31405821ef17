//! Pending timers of all sessions or of one.

use super::input::Filter;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::sessions::bounded;
use commands::timers::{PendingTimer, pending};
use serde::{Deserialize, Serialize};
use types::ids::Id;

/// Pending timers, next due first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct TimerList {
    timers: Vec<PendingTimer>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TimerFilter {
    /// Only timers of this session.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    session_id: Option<String>,
    /// The highest number of timers.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    #[serde(default)]
    limit: Option<usize>,
}

/// Lists pending timers, next due first.
#[utoipa::path(get, path = "/api/v1/timers", operation_id = "list_timers", tag = "sessions", params(TimerFilter),
    responses((status = 200, description = "The timers", body = TimerList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<TimerFilter>,
) -> Result<Json<TimerList>, Reject> {
    let timers = pending(state.store.as_ref(), which.session_id.as_deref(), bounded(which.limit)?).await?;
    Ok(Json(TimerList { timers }))
}
