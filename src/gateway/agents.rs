//! Agents and models: listings, and applying a document.

use super::input::{Body, Params};
use super::openapi::Id;
use super::{GatewayState, Reject};
use crate::agent::validate::Finding;
use crate::agent::validate::Known;
use crate::agent::{AgentRecord, StoredAgent};
use crate::clock::{self, Timestamp};
use crate::ids;
use crate::model::registry::ModelInfo;
use crate::run;
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
    /// The model that it asks.
    pub model: String,
    /// What speaks for it: `openai`, `offline`, or `unknown` where the settings do not have it.
    pub provider: String,
    /// It serves workflows and takes no chat sessions.
    pub task: bool,
    /// md5 of its configuration.
    pub hash: String,
    /// When it was applied.
    pub updated_at: Timestamp,
}

impl AgentSummary {
    /// Of an agent whose model is one of `models`.
    pub fn new(agent: &AgentRecord, models: &[ModelInfo]) -> Self {
        let model = models.iter().find(|model| model.name == agent.config.model);
        Self {
            agent_id: agent.config.id.clone(),
            name: agent.config.name.clone(),
            model: agent.config.model.clone(),
            provider: model.map_or_else(|| "unknown".to_owned(), |model| model.provider.clone()),
            task: agent.config.is_task_agent(),
            hash: agent.hash.clone(),
            updated_at: agent.updated_at,
        }
    }
}

/// Agents.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct AgentList {
    agents: Vec<AgentSummary>,
}

/// Agents and models.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct ModelList {
    agents: Vec<AgentSummary>,
    models: Vec<ModelInfo>,
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

async fn summaries(state: &GatewayState) -> Result<Vec<AgentSummary>, Reject> {
    let models = model_infos(state);
    Ok(state.store.agents().await?.iter().map(|agent| AgentSummary::new(agent, &models)).collect())
}

/// All agents, by id.
#[utoipa::path(get, path = "/api/v1/agents", operation_id = "list_agents", tag = "agents",
    responses((status = 200, description = "Agents", body = AgentList)))]
pub(super) async fn list(State(state): State<GatewayState>) -> Result<Json<AgentList>, Reject> {
    Ok(Json(AgentList { agents: summaries(&state).await? }))
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
    let workflows = state.store.workflows().await?;
    let of_store = workflows.iter().map(|workflow| workflow.id().to_owned());
    let known = Known::clone(&state.known).with_flows(of_store.chain(run::builtin_workflows()));
    let (agent, warnings) = known.check(agent)?;
    let hash = agent.hash.clone();
    let changed = state.store.put_agent(agent).await?;
    Ok(Json(Applied { agent_id, hash, changed, warnings }))
}

/// Agents and models, without keys.
#[utoipa::path(get, path = "/api/v1/models", operation_id = "list_models", tag = "agents",
    responses((status = 200, description = "Agents and models", body = ModelList)))]
pub(super) async fn models(State(state): State<GatewayState>) -> Result<Json<ModelList>, Reject> {
    Ok(Json(ModelList { agents: summaries(&state).await?, models: model_infos(&state) }))
}

fn model_infos(state: &GatewayState) -> Vec<ModelInfo> {
    state.models.as_ref().map_or_else(|| ModelInfo::of_settings(&state.settings), |listing| listing())
}
