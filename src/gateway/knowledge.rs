//! Knowledge texts: list, search, store and remove.

use super::input::{Body, Filter, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::knowledge::{NewText, RemovedSource, StoredSource, put, remove, search, sources};
use definitions::knowledge::source::SourceEntry;
use engine::knowledge::Hit;
use serde::{Deserialize, Serialize};
use types::ids::Id;

/// The stored texts.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SourceList {
    sources: Vec<SourceEntry>,
}

/// The passages that a search found.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct HitList {
    hits: Vec<Hit>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AgentFilter {
    /// Only texts of this agent.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    agent_id: Option<String>,
}

/// A search.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SearchParams {
    /// The agent whose texts are searched.
    #[param(value_type = Id)]
    agent_id: String,
    /// The question, in the user's words.
    query: String,
    /// The highest number of passages.
    #[param(minimum = 1, maximum = 50, default = 4)]
    #[serde(default)]
    limit: Option<usize>,
}

/// When a change takes effect.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Effect {
    /// `true`: the response waits until the replies of this process use the change. `false`: they use it one to two
    /// seconds later, as those of other processes do in any case. Each refresh indexes all of the agent's texts again:
    /// when you change many texts, refresh only with the last change.
    #[param(default = true)]
    #[serde(default)]
    refresh: Option<bool>,
}

impl Effect {
    async fn take(self, state: &GatewayState, agent_id: &str) -> Result<(), Reject> {
        if self.refresh == Some(false) { Ok(()) } else { Ok(state.knowledge.refresh(agent_id).await?) }
    }
}

/// Lists the stored texts, ordered by agent and name.
#[utoipa::path(get, path = "/api/v1/knowledge", operation_id = "list_knowledge", tag = "agents", params(AgentFilter),
    responses((status = 200, description = "The texts, without their content", body = SourceList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(whose): Filter<AgentFilter>,
) -> Result<Json<SourceList>, Reject> {
    Ok(Json(SourceList { sources: sources(state.store.as_ref(), whose.agent_id.as_deref()).await? }))
}

/// Searches an agent's texts in the same way as a reply does.
#[utoipa::path(get, path = "/api/v1/knowledge/search", operation_id = "search_knowledge", tag = "agents", params(SearchParams),
    responses((status = 200, description = "The passages, best first", body = HitList)))]
pub(super) async fn find(
    State(state): State<GatewayState>,
    Filter(asked): Filter<SearchParams>,
) -> Result<Json<HitList>, Reject> {
    let (store, library) = (state.store.as_ref(), &state.knowledge);
    Ok(Json(HitList { hits: search(store, library, &asked.agent_id, &asked.query, asked.limit).await? }))
}

/// Stores a text under a name; replaces the text of the same name.
///
/// The name is percent-encoded in the path: `kb%2Freturns.md`.
#[utoipa::path(put, path = "/api/v1/knowledge/{agent_id}/{source}", operation_id = "put_knowledge", tag = "agents",
    params(("agent_id" = Id, Path), ("source" = String, Path, min_length = 1, max_length = 512), Effect),
    request_body = NewText,
    responses((status = 200, description = "The text is stored", body = StoredSource)))]
pub(super) async fn store(
    State(state): State<GatewayState>,
    Params((agent_id, source)): Params<(String, String)>,
    Filter(effect): Filter<Effect>,
    Body(new): Body<NewText>,
) -> Result<Json<StoredSource>, Reject> {
    let stored = put(state.store.as_ref(), &agent_id, &source, &new).await?;
    effect.take(&state, &agent_id).await?;
    Ok(Json(stored))
}

/// Removes a text.
#[utoipa::path(delete, path = "/api/v1/knowledge/{agent_id}/{source}", operation_id = "remove_knowledge", tag = "agents",
    params(("agent_id" = Id, Path), ("source" = String, Path, min_length = 1, max_length = 512), Effect),
    responses((status = 200, description = "The text is removed", body = RemovedSource)))]
pub(super) async fn delete(
    State(state): State<GatewayState>,
    Params((agent_id, source)): Params<(String, String)>,
    Filter(effect): Filter<Effect>,
) -> Result<Json<RemovedSource>, Reject> {
    let removed = remove(state.store.as_ref(), &agent_id, &source).await?;
    effect.take(&state, &agent_id).await?;
    Ok(Json(removed))
}
