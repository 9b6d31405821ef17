//! The listing of conversations that are handed off.

use super::caller::Caller;
use super::input::Filter;
use super::operation::Operation;
use super::roles::{READERS, Reach};
use super::sessions::as_of;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::handoffs::{self, HandoffSummary};
use commands::paging::{DEFAULT_LIMIT, Listing, MAX_LIMIT, bounds};
use serde::{Deserialize, Serialize};
use storage::store::records::{HandoffCounts, HandoffQuery, HandoffState};
use types::ids::{self, Id};

/// Conversations that are handed off: first the ones that wait for an answer, the longest waiting first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct HandoffList {
    handoffs: Vec<HandoffSummary>,
    /// The numbers of handoffs that the caller may see, of the given agent and channel.
    counts: HandoffCounts,
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
pub(super) struct HandoffFilter {
    /// `waiting`, the default: no one has the claim. `mine`: the caller has it. `all`: all handoffs.
    #[serde(default)]
    state: HandoffState,
    /// Only conversations of this agent.
    #[schemars(with = "Option<Id>")]
    agent_id: Option<String>,
    /// Only conversations of this channel.
    #[schemars(with = "Option<Id>")]
    channel: Option<String>,
    /// Whose claims are `mine`; by default the caller's.
    by: Option<String>,
    /// The highest number of handoffs.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/handoffs", "sessions", "list_handoffs")
    .roles(READERS)
    .shows(Reach::Selected)
    .summary("Lists conversations that humans have or shall get, the longest waiting first.")
    .query::<HandoffFilter>()
    .ok::<HandoffList>("The handoffs");
pub(super) async fn list(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(which): Filter<HandoffFilter>,
) -> Result<Json<HandoffList>, Reject> {
    let HandoffFilter { state: listed, agent_id, channel, by, limit, after } = which;
    for (field, id) in [("agent_id", &agent_id), ("channel", &channel)] {
        id.iter().try_for_each(|id| ids::check(field, id))?;
    }
    let query = HandoffQuery {
        scope: caller.scope().clone(),
        agent_id,
        channel,
        by: Some(caller.acts_as(by)),
        state: listed,
        bounds: bounds(after, limit)?,
    };
    let as_of = as_of(&state).await;
    let (Listing { items: handoffs, next }, counts) =
        handoffs::list(state.store.as_ref(), &state.settings, query).await?;
    Ok(Json(HandoffList { handoffs, counts, next, as_of }))
}
