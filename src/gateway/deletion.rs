//! Deletion of sessions, of a user's data, of agents, workflows and dead letters.

use super::input::{Filter, Params};
use super::operation::Operation;
use super::roles::ADMINS;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use commands::definition_deletion::{self, DeletedAgent, DeletedWorkflow};
use commands::deletion::{DeletedLetter, DeletedSession, DeletedUser, Deletion};
use serde::Deserialize;

/// Whether a definition in use is deleted, too.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct Force {
    /// `true`: deletes a definition that is still used.
    #[schemars(extend("default" = false))]
    force: Option<bool>,
}

fn deletion(state: &GatewayState) -> Deletion<'_> {
    Deletion::new(state.queue.as_ref(), state.store.as_ref(), state.settings.worker.ack_wait.0)
}

pub(super) const SESSION: Operation = Operation::delete("/api/v1/sessions/{session_id}", "sessions", "delete_session")
    .roles(ADMINS)
    .summary("Deletes a session with everything that belongs to it.")
    .details(
        "Turns, steps, runs, plans, timers, waiting jobs, events and dead letters. A running turn ends and leaves nothing; \
         the response then takes up to `worker.ack_wait` longer. A later message of the same id begins a new session. \
         The id may be that of a run.",
    )
    .ok::<DeletedSession>("The session is deleted");
pub(super) async fn session(
    State(state): State<GatewayState>,
    Params(session_id): Params<String>,
) -> Result<Json<DeletedSession>, Reject> {
    state.replays.forget_session(&session_id);
    Ok(Json(deletion(&state).session(&session_id).await?))
}

pub(super) const USER: Operation = Operation::delete("/api/v1/users/{user_id}", "sessions", "delete_user")
    .roles(ADMINS)
    .summary("Deletes all data of a user.")
    .details(
        "All sessions and runs whose `user_id` it is, each with everything that belongs to it, and dead letters of the \
         user's messages. One request deletes up to 100 sessions: repeat it until `complete` is true.",
    )
    .ok::<DeletedUser>("The data is deleted");
pub(super) async fn user(
    State(state): State<GatewayState>,
    Params(user_id): Params<String>,
) -> Result<Json<DeletedUser>, Reject> {
    state.replays.forget_user(&user_id);
    Ok(Json(deletion(&state).user(&user_id).await?))
}

pub(super) const AGENT: Operation = Operation::delete("/api/v1/agents/{agent_id}", "agents", "delete_agent")
    .roles(ADMINS)
    .summary("Deletes an agent with its versions, plans and knowledge.")
    .details(
        "Refused while open sessions, unfinished runs or workflows use it, unless `force` is true. Their next messages \
         then become dead letters.",
    )
    .query::<Force>()
    .ok::<DeletedAgent>("The agent is deleted");
pub(super) async fn agent(
    State(state): State<GatewayState>,
    Params(agent_id): Params<String>,
    Filter(how): Filter<Force>,
) -> Result<Json<DeletedAgent>, Reject> {
    let deleted = definition_deletion::agent(state.store.as_ref(), &agent_id, how.force == Some(true)).await?;
    state.knowledge.refresh(&agent_id).await?;
    Ok(Json(deleted))
}

pub(super) const WORKFLOW: Operation =
    Operation::delete("/api/v1/workflows/{workflow_id}", "workflows", "delete_workflow")
        .roles(ADMINS)
        .summary("Deletes a workflow, or the plan of a session, with its versions.")
        .details("Refused while unfinished runs, agents or other workflows use it, unless `force` is true.")
        .query::<Force>()
        .ok::<DeletedWorkflow>("The workflow is deleted");
pub(super) async fn workflow(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
    Filter(how): Filter<Force>,
) -> Result<Json<DeletedWorkflow>, Reject> {
    let force = how.force == Some(true);
    Ok(Json(definition_deletion::workflow(state.store.as_ref(), &workflow_id, force).await?))
}

pub(super) const LETTER: Operation = Operation::delete("/api/v1/dead/{which}", "operation", "delete_letter")
    .roles(ADMINS)
    .summary("Deletes a dead letter, by number or job id.")
    .ok::<DeletedLetter>("The dead letter is deleted");
pub(super) async fn letter(
    State(state): State<GatewayState>,
    Params(which): Params<String>,
) -> Result<Json<DeletedLetter>, Reject> {
    Ok(Json(deletion(&state).letter(&which).await?))
}
