//! What agents answer from: listing, storing, removing, searching.

use super::input::{Body, Filter, Params};
use super::openapi::Id;
use super::{GatewayState, Reject};
use crate::base::clock;
use crate::definitions::knowledge::source::{Origin, Source, SourceEntry, SourceError};
use crate::engine::knowledge::{Hit, Library};
use crate::storage::store::Store;
use crate::types::ids;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

/// How many hits a search answers unless told otherwise.
const DEFAULT_HITS: usize = 4;
/// The most hits of a search.
const MAX_HITS: usize = 50;

/// A text that an agent is to answer from.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NewText {
    /// Markdown where the source's name ends in `.md` or `.markdown`, else plain text; 1 MiB at most.
    #[schema(min_length = 1)]
    pub text: String,
    /// `added` unless given; an `agent_file` source goes when the agent's file is applied and names it no more.
    #[serde(default)]
    pub origin: Origin,
}

/// A source that is stored.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StoredSource {
    /// What it is.
    pub source: SourceEntry,
    /// False when it was there already.
    pub changed: bool,
}

/// A source that is not there any more.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RemovedSource {
    /// The agent.
    pub agent_id: String,
    /// Its name.
    pub source: String,
}

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

/// Sources of an agent or of all, by agent and name.
pub async fn sources(store: &dyn Store, agent_id: Option<&str>) -> Result<Vec<SourceEntry>, Reject> {
    if let Some(agent_id) = agent_id {
        known_agent(store, agent_id).await?;
    }
    Ok(store.knowledge_entries(agent_id).await?)
}

/// Stores a text as the source `name` of an agent.
pub async fn put(store: &dyn Store, agent_id: &str, name: &str, new: &NewText) -> Result<StoredSource, Reject> {
    known_agent(store, agent_id).await?;
    let source = Source::new(agent_id, (name, &new.text), new.origin, clock::now())?;
    let entry = source.entry.clone();
    let changed = store.put_knowledge(source).await?;
    Ok(StoredSource { source: entry, changed })
}

/// Removes a source.
pub async fn remove(store: &dyn Store, agent_id: &str, name: &str) -> Result<RemovedSource, Reject> {
    known_agent(store, agent_id).await?;
    if !store.remove_knowledge(agent_id, name).await? {
        let message = format!("agent `{agent_id}` has no source `{name}`");
        let hint = format!("`turnwheel knowledge list --agent {agent_id}` shows those it has");
        return Err(Reject::new(StatusCode::NOT_FOUND, "unknown_source", message, hint));
    }
    Ok(RemovedSource { agent_id: agent_id.to_owned(), source: name.to_owned() })
}

/// The passages that a question finds, the best first: what a reply to it would be written from.
pub async fn search(
    (store, library): (&dyn Store, &Library),
    agent_id: &str,
    query: &str,
    limit: Option<usize>,
) -> Result<Vec<Hit>, Reject> {
    let limit = limit.unwrap_or(DEFAULT_HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        let message = format!("limit: {limit} is not between 1 and {MAX_HITS}");
        return Err(Reject::invalid("invalid_query", message, format!("{DEFAULT_HITS} is what holds without a limit")));
    }
    known_agent(store, agent_id).await?;
    Ok(library.ask(agent_id, query, limit).await?)
}

async fn known_agent(store: &dyn Store, agent_id: &str) -> Result<(), Reject> {
    ids::check("agent_id", agent_id)?;
    match store.agent(agent_id).await? {
        Some(_) => Ok(()),
        None => Err(Reject::unknown_agent(agent_id)),
    }
}

impl From<SourceError> for Reject {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::TooLarge(_) | SourceError::TooMany(_) => Self::too_large(error.to_string()),
            SourceError::Name => Self::invalid("invalid_source", error.to_string(), "name it like `kb/returns.md`"),
            SourceError::Empty | SourceError::Kind | SourceError::Encoding(_) | SourceError::Read(_) => {
                Self::invalid("invalid_source", format!("text: {error}"), "send Markdown or plain text")
            }
        }
    }
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
