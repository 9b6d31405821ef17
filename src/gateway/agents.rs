//! Agents: list, show and apply.

use super::caller::Caller;
use super::input::{Body, Filter, Params};
use super::operation::Operation;
use super::roles::{ADMINS, READERS, Reach};
use super::sessions::WidePageParams;
use super::{GatewayState, Reject, models};
use axum::Json;
use axum::extract::State;
use base::clock;
use commands::agents::{AgentSummary, applied};
use commands::error::CommandError;
use commands::paging::{Listing, fit, part_of};
use commands::quotas::check_agent;
use definitions::agent::{AgentRecord, StoredAgent};
use definitions::document::Finding;
use engine::admission;
use serde::Serialize;
use serde_json::Value;
use types::ids;

/// The applied agents.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct AgentList {
    agents: Vec<AgentSummary>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The result of applying an agent.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Applied {
    /// Id of the agent.
    agent_id: String,
    /// md5 of the agent's canonical configuration.
    hash: String,
    /// False if the same configuration was applied already.
    changed: bool,
    /// Probable mistakes in the file; they do not prevent that it is applied.
    warnings: Vec<Finding>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/agents", "agents", "list_agents")
    .roles(READERS)
    .shows(Reach::Selected)
    .summary("Lists all agents, ordered by id.")
    .query::<WidePageParams>()
    .ok::<AgentList>("The agents");
pub(super) async fn list(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(page): Filter<WidePageParams>,
) -> Result<Json<AgentList>, Reject> {
    let bounds = page.bounds::<String>()?;
    let mut agents = applied(state.store.as_ref(), &models::known(&state), &state.settings.budget).await?;
    agents.retain(|agent| caller.scope().covers_agent(&agent.agent_id));
    agents.sort_by(|one, other| one.agent_id.cmp(&other.agent_id));
    let page = part_of(agents, &bounds, |agent, after| agent.agent_id > *after);
    let Listing { items: agents, next } = fit(page, |agent| agent.agent_id.clone());
    Ok(Json(AgentList { agents, next }))
}

pub(super) const SHOW: Operation = Operation::get("/api/v1/agents/{agent_id}", "agents", "show_agent")
    .roles(READERS)
    .summary("Shows an agent's configuration as applied.")
    .details("Secrets stay `${NAME}`.")
    .ok::<StoredAgent>("The agent");
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(agent_id): Params<String>,
) -> Result<Json<StoredAgent>, Reject> {
    ids::check("agent_id", &agent_id)?;
    let agent = state.store.agent(&agent_id).await?.ok_or_else(|| CommandError::unknown_agent(&agent_id))?;
    Ok(Json(agent.to_stored()))
}

pub(super) const APPLY: Operation = Operation::put("/api/v1/agents/{agent_id}", "agents", "apply_agent")
    .roles(ADMINS)
    .summary("Applies an agent: checks and stores it.")
    .details("The body is an agent file as JSON. Every turn that starts after the response uses it.")
    .file_body("An agent file as JSON, see docs/agents.md")
    .ok::<Applied>("The agent is stored");
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
    let (agent, warnings) = admission::agent(store, &state.known, agent).await.map_err(CommandError::from)?;
    check_agent(store, &state.settings.quotas, &agent).await?;
    let hash = agent.hash.clone();
    let changed = state.store.put_agent(agent).await?;
    Ok(Json(Applied { agent_id, hash, changed, warnings }))
}
