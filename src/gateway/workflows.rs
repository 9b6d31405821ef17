//! Workflows: list, show and register.

use super::input::{Body, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use base::clock;
use commands::workflows::{Registered, WorkflowSummary, load, register, summaries};
use definitions::workflow::definition::{StoredWorkflow, WorkflowRecord};
use definitions::workflow::structure;
use engine::run;
use serde::Serialize;
use serde_json::Value;
use types::ids::{self, Id};

/// The registered workflows, and the built-in ones.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct WorkflowList {
    workflows: Vec<WorkflowSummary>,
}

/// Lists all workflows, ordered by id.
#[utoipa::path(get, path = "/api/v1/workflows", operation_id = "list_workflows", tag = "workflows",
    responses((status = 200, description = "The workflows", body = WorkflowList)))]
pub(super) async fn list(State(state): State<GatewayState>) -> Result<Json<WorkflowList>, Reject> {
    Ok(Json(WorkflowList { workflows: summaries(state.store.as_ref()).await? }))
}

/// Shows a workflow as registered.
#[utoipa::path(get, path = "/api/v1/workflows/{workflow_id}", operation_id = "show_workflow", tag = "workflows",
    params(("workflow_id" = Id, Path)), responses((status = 200, description = "The workflow", body = StoredWorkflow)))]
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
) -> Result<Json<StoredWorkflow>, Reject> {
    Ok(Json(load(state.store.as_ref(), &workflow_id).await?.to_stored()))
}

/// Shows a workflow's structure for display.
///
/// Nested: types, ids, stages, branches and routes, inputs, conditions and limits.
#[utoipa::path(get, path = "/api/v1/workflows/{workflow_id}/structure", operation_id = "show_workflow_structure",
    tag = "workflows", params(("workflow_id" = Id, Path)),
    responses((status = 200, description = "The structure", body = Value)))]
pub(super) async fn structure(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
) -> Result<Json<Value>, Reject> {
    let workflow = load(state.store.as_ref(), &workflow_id).await?;
    let known = run::runnables(state.store.as_ref(), state.flows.ids()).await?;
    Ok(Json(structure::describe_known(&workflow.workflow, &known)))
}

/// Registers a workflow: checks and stores it.
///
/// The body is a workflow file as JSON. Every run that starts after the response uses it.
#[utoipa::path(put, path = "/api/v1/workflows/{workflow_id}", operation_id = "register_workflow", tag = "workflows",
    params(("workflow_id" = Id, Path)),
    request_body(content = HashMap<String, Value>, description = "A workflow file as JSON, see docs/workflows.md"),
    responses((status = 200, description = "The workflow is stored", body = Registered)))]
pub(super) async fn put(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
    Body(document): Body<Value>,
) -> Result<Json<Registered>, Reject> {
    ids::check("workflow_id", &workflow_id)?;
    let workflow = WorkflowRecord::from_document(document, clock::now())?;
    if workflow.id() != workflow_id {
        let message = format!("id: the document has `{}`, the path `{workflow_id}`", workflow.id());
        return Err(Reject::invalid("other_workflow", message, "use the same id in both"));
    }
    Ok(Json(register(state.store.as_ref(), state.flows.ids(), state.known.as_ref(), workflow).await?))
}
