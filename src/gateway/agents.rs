//! Agents: listings, and applying a document.

use super::input::{Body, Params};
use super::openapi::Id;
use super::{GatewayState, Reject, models};
use crate::base::{clock, config};
use crate::commands::crew::Crew;
use crate::definitions::agent::{AgentRecord, StoredAgent};
use crate::definitions::document::Finding;
use crate::engine::model::registry::ModelInfo;
use crate::storage::store::{Damaged, Listed, Store};
use crate::types::budget::Limits;
use crate::types::ids;
use crate::types::timestamp::Timestamp;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a listing shows of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AgentSummary {
    /// Key of the agent.
    pub agent_id: String,
    /// The name it goes by.
    pub name: String,
    /// The model that it asks first.
    pub model: String,
    /// All that it asks: the next where the one before does not answer.
    #[serde(default)]
    pub models: Vec<String>,
    /// What speaks for the first: `openai`, `offline`, or `unknown` where the settings do not have it.
    pub provider: String,
    /// It serves workflows and takes no chat sessions.
    pub task: bool,
    /// The tokens that it may use; what is not there is not limited.
    #[serde(default)]
    pub budget: Limits,
    /// What it has used today (UTC), where a day has a limit.
    #[serde(default)]
    pub day_tokens: Option<u64>,
    /// md5 of its configuration.
    pub hash: String,
    /// When it was applied.
    pub updated_at: Timestamp,
    /// Why it cannot be read: another version wrote it, or a hand did. Applying it again is the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AgentSummary {
    /// Of an agent that cannot be read.
    fn damaged(Damaged { id, problem }: Damaged) -> Self {
        Self {
            agent_id: id,
            name: String::new(),
            model: String::new(),
            models: Vec::new(),
            provider: String::new(),
            task: false,
            budget: Limits::default(),
            day_tokens: None,
            hash: String::new(),
            updated_at: Timestamp::from_millis(0),
            error: Some(problem),
        }
    }

    /// Of an agent whose models are among `models`; what it has used today is not in it.
    pub fn new(agent: &AgentRecord, models: &[ModelInfo], defaults: &config::Budget) -> Self {
        let names = &agent.config.model;
        let model = models.iter().find(|model| model.name == names.first());
        Self {
            agent_id: agent.config.id.clone(),
            name: agent.config.name.clone(),
            model: names.first().to_owned(),
            models: names.iter().map(str::to_owned).collect(),
            provider: model.map_or_else(|| "unknown".to_owned(), |model| model.provider.clone()),
            task: agent.config.is_task_agent(),
            budget: defaults.limits(agent.config.budget),
            day_tokens: None,
            hash: agent.hash.clone(),
            updated_at: agent.updated_at,
            error: None,
        }
    }
}

/// All agents that are applied, by id, with what they have used today; `models` are those of the settings, and so are the
/// budgets' defaults.
pub async fn applied(
    store: &dyn Store,
    models: &[ModelInfo],
    defaults: &config::Budget,
) -> Result<Vec<AgentSummary>, Reject> {
    summaries(store, store.agents().await?, models, defaults).await
}

/// The same of these agents.
pub(super) async fn summaries(
    store: &dyn Store,
    agents: Listed<AgentRecord>,
    models: &[ModelInfo],
    defaults: &config::Budget,
) -> Result<Vec<AgentSummary>, Reject> {
    let Listed { good, damaged } = agents;
    let mut agents: Vec<_> = good.iter().map(|agent| AgentSummary::new(agent, models, defaults)).collect();
    let limited = agents.iter().filter(|agent| agent.budget.day.is_some());
    let limited: Vec<String> = limited.map(|agent| agent.agent_id.clone()).collect();
    if !limited.is_empty() {
        let used = store.tokens_of_day(&clock::now().day(), limited).await?;
        for agent in agents.iter_mut().filter(|agent| agent.budget.day.is_some()) {
            agent.day_tokens = Some(used.get(&agent.agent_id).copied().unwrap_or(0));
        }
    }
    agents.extend(damaged.into_iter().map(AgentSummary::damaged));
    Ok(agents)
}

/// Agents.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct AgentList {
    agents: Vec<AgentSummary>,
}

/// An agent that is stored.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Applied {
    /// Key of the agent.
    agent_id: String,
    /// md5 of its configuration.
    hash: String,
    /// False when it was there already.
    changed: bool,
    /// What is probably a mistake.
    warnings: Vec<Finding>,
}

/// All agents, by id.
#[utoipa::path(get, path = "/api/v1/agents", operation_id = "list_agents", tag = "agents",
    responses((status = 200, description = "Agents", body = AgentList)))]
pub(super) async fn list(State(state): State<GatewayState>) -> Result<Json<AgentList>, Reject> {
    let agents = applied(state.store.as_ref(), &models::known(&state), &state.settings.budget).await?;
    Ok(Json(AgentList { agents }))
}

/// One agent as applied, secrets as `${NAME}`.
#[utoipa::path(get, path = "/api/v1/agents/{agent_id}", operation_id = "show_agent", tag = "agents", params(("agent_id" = Id, Path)),
    responses((status = 200, description = "The agent", body = StoredAgent)))]
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(agent_id): Params<String>,
) -> Result<Json<StoredAgent>, Reject> {
    ids::check("agent_id", &agent_id)?;
    let agent = state.store.agent(&agent_id).await?.ok_or_else(|| Reject::unknown_agent(&agent_id))?;
    Ok(Json(agent.to_stored()))
}

/// Applies a document: an agent file as JSON. Every turn that starts after the answer uses it.
#[utoipa::path(put, path = "/api/v1/agents/{agent_id}", operation_id = "apply_agent", tag = "agents", params(("agent_id" = Id, Path)),
    request_body(content = HashMap<String, Value>, description = "See docs/agents.md"),
    responses((status = 200, description = "It is stored", body = Applied)))]
pub(super) async fn apply(
    State(state): State<GatewayState>,
    Params(agent_id): Params<String>,
    Body(document): Body<Value>,
) -> Result<Json<Applied>, Reject> {
    ids::check("agent_id", &agent_id)?;
    let agent = AgentRecord::from_document(document, clock::now())?;
    if agent.id() != agent_id {
        let message = format!("id: the document has `{}`, the path `{agent_id}`", agent.id());
        return Err(Reject::invalid("other_agent", message, "use the same id in both"));
    }
    let store = state.store.as_ref();
    let known = Crew::of(store).await?.check_against(store, &state.known).await?;
    let (agent, warnings) = known.check(agent)?;
    let hash = agent.hash.clone();
    let changed = state.store.put_agent(agent).await?;
    Ok(Json(Applied { agent_id, hash, changed, warnings }))
}
