//! Knowledge texts: list, search, store and remove.

use super::input::{Body, Filter, Params};
use super::operation::Operation;
use super::roles::{ADMINS, READERS};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::knowledge::{DEFAULT_HITS, MAX_HITS, NewText, RemovedSource, StoredSource, put, remove, search, sources};
use commands::paging::{Listing, MAX_LIMIT, fit, part_of, wide_bounds};
use definitions::knowledge::source::SourceEntry;
use engine::knowledge::Hit;
use serde::{Deserialize, Serialize};
use types::ids::Id;

/// The stored texts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct SourceList {
    sources: Vec<SourceEntry>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The passages that a search found.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct HitList {
    hits: Vec<Hit>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct AgentFilter {
    /// Only texts of this agent.
    #[schemars(with = "Option<Id>")]
    agent_id: Option<String>,
    /// The highest number of entries.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = MAX_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

/// A search.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct SearchParams {
    /// The agent whose texts are searched.
    #[schemars(with = "Id")]
    agent_id: String,
    /// The question, in the user's words.
    query: String,
    /// The highest number of passages.
    #[schemars(range(min = 1, max = MAX_HITS), extend("default" = DEFAULT_HITS))]
    limit: Option<usize>,
}

/// When a change takes effect.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct Effect {
    /// `true`: the response waits until the replies of this process use the change. `false`: they use it one to two
    /// seconds later, as those of other processes do in any case. Each refresh indexes all of the agent's texts again:
    /// when you change many texts, refresh only with the last change.
    #[schemars(extend("default" = true))]
    refresh: Option<bool>,
}

impl Effect {
    async fn take(self, state: &GatewayState, agent_id: &str) -> Result<(), Reject> {
        if self.refresh == Some(false) { Ok(()) } else { Ok(state.knowledge.refresh(agent_id).await?) }
    }
}

pub(super) const LIST: Operation = Operation::get("/api/v1/knowledge", "agents", "list_knowledge")
    .roles(READERS)
    .summary("Lists the stored texts, ordered by agent and name.")
    .query::<AgentFilter>()
    .ok::<SourceList>("The texts, without their content");
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(whose): Filter<AgentFilter>,
) -> Result<Json<SourceList>, Reject> {
    let bounds = wide_bounds(whose.after, whose.limit)?;
    let place = |entry: &SourceEntry| (entry.agent_id.clone(), entry.source.clone());
    let sources = sources(state.store.as_ref(), whose.agent_id.as_deref()).await?;
    let page = part_of(sources, &bounds, |entry, after| place(entry) > *after);
    let Listing { items: sources, next } = fit(page, place);
    Ok(Json(SourceList { sources, next }))
}

pub(super) const FIND: Operation = Operation::get("/api/v1/knowledge/search", "agents", "search_knowledge")
    .roles(READERS)
    .summary("Searches an agent's texts in the same way as a reply does.")
    .query::<SearchParams>()
    .ok::<HitList>("The passages, best first");
pub(super) async fn find(
    State(state): State<GatewayState>,
    Filter(asked): Filter<SearchParams>,
) -> Result<Json<HitList>, Reject> {
    let (store, library) = (state.store.as_ref(), &state.knowledge);
    Ok(Json(HitList { hits: search(store, library, &asked.agent_id, &asked.query, asked.limit).await? }))
}

pub(super) const STORE: Operation = Operation::put("/api/v1/knowledge/{agent_id}/{source}", "agents", "put_knowledge")
    .roles(ADMINS)
    .summary("Stores a text under a name; replaces the text of the same name.")
    .details("The name is percent-encoded in the path: `kb%2Freturns.md`.")
    .query::<Effect>()
    .body::<NewText>()
    .ok::<StoredSource>("The text is stored");
pub(super) async fn store(
    State(state): State<GatewayState>,
    Params((agent_id, source)): Params<(String, String)>,
    Filter(effect): Filter<Effect>,
    Body(new): Body<NewText>,
) -> Result<Json<StoredSource>, Reject> {
    let stored = put(state.store.as_ref(), &state.settings.quotas, &agent_id, &source, &new).await?;
    effect.take(&state, &agent_id).await?;
    Ok(Json(stored))
}

pub(super) const DELETE: Operation =
    Operation::delete("/api/v1/knowledge/{agent_id}/{source}", "agents", "remove_knowledge")
        .roles(ADMINS)
        .summary("Removes a text.")
        .query::<Effect>()
        .ok::<RemovedSource>("The text is removed");
pub(super) async fn delete(
    State(state): State<GatewayState>,
    Params((agent_id, source)): Params<(String, String)>,
    Filter(effect): Filter<Effect>,
) -> Result<Json<RemovedSource>, Reject> {
    let removed = remove(state.store.as_ref(), &agent_id, &source).await?;
    effect.take(&state, &agent_id).await?;
    Ok(Json(removed))
}
