//! Agents: list, show, check and apply, with their versions.

use super::caller::Caller;
use super::documents::{ETag, NoteParam, VersionList, etag};
use super::input::{Condition, FileBody, Filter, OptionalBody, Params};
use super::operation::Operation;
use super::roles::{ADMINS, READERS, Reach};
use super::sessions::{PageParams, WidePageParams};
use super::{GatewayState, Reject, models};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::agents::{AgentSummary, applied};
use commands::documents::apply::{self as documents, AppliedChange, Change};
use commands::documents::check::{CheckedDocument, check};
use commands::documents::draft::{self, StoredDraft};
use commands::documents::versions::{self, AgentDetails, AgentVersion};
use commands::error::CommandError;
use commands::paging::{Listing, fit, part_of};
use definitions::document::Finding;
use serde::Serialize;
use types::authoring::Artifact;
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

impl Applied {
    fn new(agent_id: String, applied: AppliedChange) -> Self {
        let AppliedChange { hash, changed, warnings } = applied;
        Self { agent_id, hash, changed, warnings }
    }
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
    .etag("The hash between quotes, for `If-Match` of a change")
    .ok::<AgentDetails>("The agent");
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(agent_id): Params<String>,
) -> Result<(ETag, Json<AgentDetails>), Reject> {
    ids::check("agent_id", &agent_id)?;
    let store = state.store.as_ref();
    let agent = store.agent(&agent_id).await?.ok_or_else(|| CommandError::unknown_agent(&agent_id))?;
    let label = versions::label(store, Artifact::Agent, &agent_id, &agent.hash).await?;
    Ok((etag(&agent.hash), Json(AgentDetails { agent: agent.to_stored(), label })))
}

pub(super) const VALIDATE: Operation = Operation::post("/api/v1/agents/validate", "agents", "validate_agent")
    .roles(READERS)
    .audited(false)
    .summary("Checks an agent file without storing it.")
    .details("The body is the file as JSON or YAML, or `{\"source\": \"<text>\"}`. Findings of a text have its lines.")
    .file_body("An agent file, see docs/agents.md, or `{\"source\": \"<its text>\"}`")
    .ok::<CheckedDocument>("The problems");
pub(super) async fn validate(
    State(state): State<GatewayState>,
    FileBody(submitted): FileBody,
) -> Result<Json<CheckedDocument>, Reject> {
    Ok(Json(check(&state.desk(), Artifact::Agent, &submitted).await?))
}

pub(super) const APPLY: Operation = Operation::put("/api/v1/agents/{agent_id}", "agents", "apply_agent")
    .roles(ADMINS)
    .summary("Applies an agent: checks and stores it.")
    .details("The body is an agent file as JSON or YAML. Every turn that starts after the response uses it.")
    .query::<NoteParam>()
    .conditional()
    .file_body("An agent file, see docs/agents.md, or `{\"source\": \"<its text>\"}`")
    .ok::<Applied>("The agent is stored");
pub(super) async fn apply(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(agent_id): Params<String>,
    Filter(NoteParam { note }): Filter<NoteParam>,
    Condition(over): Condition,
    FileBody(submitted): FileBody,
) -> Result<Json<Applied>, Reject> {
    let change = Change { over, by: caller.speaks_as(None), note };
    let applied = documents::apply(&state.desk(), (Artifact::Agent, &agent_id), submitted, change).await?;
    Ok(Json(Applied::new(agent_id, applied)))
}

pub(super) const VERSIONS: Operation =
    Operation::get("/api/v1/agents/{agent_id}/versions", "agents", "list_agent_versions")
        .roles(READERS)
        .summary("Lists the versions of an agent, the newest first.")
        .details("With the drafts. A version that nothing uses is kept for `retention.versions`.")
        .query::<PageParams>()
        .ok::<VersionList>("The versions");
pub(super) async fn versions(
    State(state): State<GatewayState>,
    Params(agent_id): Params<String>,
    Filter(page): Filter<PageParams>,
) -> Result<Json<VersionList>, Reject> {
    let listing = versions::list(state.store.as_ref(), Artifact::Agent, &agent_id, &page.bounds()?).await?;
    Ok(Json(listing.into()))
}

pub(super) const VERSION: Operation =
    Operation::get("/api/v1/agents/{agent_id}/versions/{hash}", "agents", "show_agent_version")
        .roles(READERS)
        .summary("Shows a version of an agent with its configuration and text.")
        .ok::<AgentVersion>("The version");
pub(super) async fn version(
    State(state): State<GatewayState>,
    Params((agent_id, hash)): Params<(String, String)>,
) -> Result<Json<AgentVersion>, Reject> {
    let (version, config, source) = versions::show(state.store.as_ref(), Artifact::Agent, &agent_id, &hash).await?;
    Ok(Json(AgentVersion { version, config, source }))
}

pub(super) const STORE: Operation =
    Operation::post("/api/v1/agents/{agent_id}/versions", "agents", "store_agent_version")
        .roles(ADMINS)
        .summary("Stores a draft of an agent: a version that is not applied.")
        .details("Messages with its hash as `agent_version` are answered by it.")
        .query::<NoteParam>()
        .file_body("An agent file, see docs/agents.md, or `{\"source\": \"<its text>\"}`")
        .created::<StoredDraft>("The draft is stored");
pub(super) async fn store(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(agent_id): Params<String>,
    Filter(NoteParam { note }): Filter<NoteParam>,
    FileBody(submitted): FileBody,
) -> Result<(StatusCode, Json<StoredDraft>), Reject> {
    let by_and_note = (caller.speaks_as(None), note);
    let stored = draft::store(&state.desk(), (Artifact::Agent, &agent_id), submitted, by_and_note).await?;
    Ok((StatusCode::CREATED, Json(stored)))
}

pub(super) const APPLY_VERSION: Operation =
    Operation::post("/api/v1/agents/{agent_id}/versions/{hash}/apply", "agents", "apply_agent_version")
        .roles(ADMINS)
        .summary("Applies a stored version: a draft, or an earlier one to go back to.")
        .details("Checks it again. Every turn that starts after the response uses it.")
        .conditional()
        .optional_body::<NoteParam>()
        .ok::<Applied>("The version is applied");
pub(super) async fn apply_version(
    State(state): State<GatewayState>,
    caller: Caller,
    Params((agent_id, hash)): Params<(String, String)>,
    Condition(over): Condition,
    OptionalBody(NoteParam { note }): OptionalBody<NoteParam>,
) -> Result<Json<Applied>, Reject> {
    let change = Change { over, by: caller.speaks_as(None), note };
    let applied = documents::apply_version(&state.desk(), (Artifact::Agent, &agent_id), &hash, change).await?;
    Ok(Json(Applied::new(agent_id, applied)))
}
