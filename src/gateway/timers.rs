//! Pending timers of all sessions or of one.

use super::access::session_in_scope;
use super::caller::Caller;
use super::input::Filter;
use super::operation::Operation;
use super::roles::{READERS, Reach};
use super::sessions::as_of;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::paging::{DEFAULT_LIMIT, Listing, MAX_LIMIT, bounds};
use commands::timers::{PendingTimer, pending};
use serde::{Deserialize, Serialize};
use types::ids::Id;

/// Pending timers, next due first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct TimerList {
    timers: Vec<PendingTimer>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The last sequence of the stream of events when the listing was read: `GET /api/v1/events?after=` continues from
    /// it. Missing if the queue does not respond within 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct TimerFilter {
    /// Only timers of this session.
    #[schemars(with = "Option<Id>")]
    session_id: Option<String>,
    /// The highest number of timers.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/timers", "sessions", "list_timers")
    .roles(READERS)
    .shows(Reach::Selected)
    .summary("Lists pending timers, next due first.")
    .query::<TimerFilter>()
    .ok::<TimerList>("The timers");
pub(super) async fn list(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(which): Filter<TimerFilter>,
) -> Result<Json<TimerList>, Reject> {
    if !caller.scope().is_everything() {
        let Some(session_id) = &which.session_id else { return Err(caller.is_limited("give `session_id`")) };
        session_in_scope(&state, caller.scope(), session_id).await?;
    }
    let bounds = bounds(which.after, which.limit)?;
    let as_of = as_of(&state).await;
    let Listing { items: timers, next } = pending(state.store.as_ref(), which.session_id.as_deref(), bounds).await?;
    Ok(Json(TimerList { timers, next, as_of }))
}
