//! What agents answer from: listing, storing, removing, searching.

use super::input::{Body, Filter, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::knowledge::{NewText, RemovedSource, StoredSource, put, remove, search, sources};
use definitions::knowledge::source::SourceEntry;
use engine::knowledge::Hit;
use serde::{Deserialize, Serialize};
use types::ids::Id;

/// Sources.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SourceList {
    sources: Vec<SourceEntry>,
}

/// What a search found.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct HitList {
    hits: Vec<Hit>,
}

/// Whose.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Only those of this agent.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    agent_id: Option<String>,
}

/// What is searched for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Asked {
    /// The agent.
    #[param(value_type = Id)]
    agent_id: String,
    /// The question, in the user's words.
    query: String,
    /// 4 unless given.
    #[param(minimum = 1, maximum = 50)]
    #[serde(default)]
    limit: Option<usize>,
}

/// How a change takes effect.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Effect {
    /// True unless given: replies of this process use the change from the answer on. With `false` they do a second or two
    /// later, as those of other processes. Each such refresh indexes all of the agent's texts, so that who changes many asks
    /// for it with the last one.
    #[serde(default)]
    refresh: Option<bool>,
}

impl Effect {
    async fn take(self, state: &GatewayState, agent_id: &str) -> Result<(), Reject> {
        if self.refresh == Some(false) { Ok(()) } else { Ok(state.knowledge.refresh(agent_id).await?) }
    }
}

/// Sources, by agent and name.
#[utoipa::path(get, path = "/api/v1/knowledge", operation_id = "list_knowledge", tag = "agents", params(Whose),
    responses((status = 200, description = "Sources", body = SourceList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(whose): Filter<Whose>,
) -> Result<Json<SourceList>, Reject> {
    Ok(Json(SourceList { sources: sources(state.store.as_ref(), whose.agent_id.as_deref()).await? }))
}

/// Searches as a reply would.
#[utoipa::path(get, path = "/api/v1/knowledge/search", operation_id = "search_knowledge", tag = "agents", params(Asked),
    responses((status = 200, description = "Passages, the best first", body = HitList)))]
pub(super) async fn find(
    State(state): State<GatewayState>,
    Filter(asked): Filter<Asked>,
) -> Result<Json<HitList>, Reject> {
    let places = (state.store.as_ref(), &state.knowledge);
    Ok(Json(HitList { hits: search(places, &asked.agent_id, &asked.query, asked.limit).await? }))
}

/// Stores a text, in place of one of the same name. The name is percent-encoded: `kb%2Freturns.md`.
#[utoipa::path(put, path = "/api/v1/knowledge/{agent_id}/{source}", operation_id = "put_knowledge", tag = "agents",
    params(("agent_id" = Id, Path), ("source" = String, Path, min_length = 1, max_length = 512), Effect),
    request_body = NewText,
    responses((status = 200, description = "It is stored", body = StoredSource)))]
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

/// Removes a source.
#[utoipa::path(delete, path = "/api/v1/knowledge/{agent_id}/{source}", operation_id = "remove_knowledge", tag = "agents",
    params(("agent_id" = Id, Path), ("source" = String, Path, min_length = 1, max_length = 512), Effect),
    responses((status = 200, description = "It is removed", body = RemovedSource)))]
pub(super) async fn delete(
    State(state): State<GatewayState>,
    Params((agent_id, source)): Params<(String, String)>,
    Filter(effect): Filter<Effect>,
) -> Result<Json<RemovedSource>, Reject> {
    let removed = remove(state.store.as_ref(), &agent_id, &source).await?;
    effect.take(&state, &agent_id).await?;
    Ok(Json(removed))
}
