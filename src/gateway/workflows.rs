//! Workflows: list, show and register.

use super::input::{Body, Filter, Params};
use super::operation::Operation;
use super::roles::{ADMINS, READERS};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use base::clock;
use commands::paging::{Listing, MAX_LIMIT, fit, part_of, wide_bounds};
use commands::quotas::check_workflow;
use commands::workflows::{Registered, WorkflowSummary, load, plans, register, summaries};
use definitions::workflow::definition::{StoredWorkflow, WorkflowRecord};
use definitions::workflow::structure;
use engine::run;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use types::ids;

/// The registered workflows, and the built-in ones.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct WorkflowList {
    workflows: Vec<WorkflowSummary>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which workflows to list.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct WorkflowFilter {
    /// Lists the plans that coordinator agents have made in this session, the last used first.
    #[serde(default)]
    owner_session: Option<String>,
    /// The highest number of entries.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = MAX_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/workflows", "workflows", "list_workflows")
    .roles(READERS)
    .summary("Lists all workflows, ordered by id, or the plans of a session.")
    .details("Without `owner_session` the list has no plans of sessions.")
    .query::<WorkflowFilter>()
    .ok::<WorkflowList>("The workflows");
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<WorkflowFilter>,
) -> Result<Json<WorkflowList>, Reject> {
    let WorkflowFilter { owner_session, limit, after } = which;
    let Listing { items: workflows, next } = match owner_session {
        Some(session_id) => {
            let bounds = wide_bounds(after, limit)?;
            let used = |plan: &WorkflowSummary| (plan.used_at.unwrap_or_default(), plan.workflow_id.clone());
            let mut plans = plans(state.store.as_ref(), &session_id).await?;
            plans.sort_by_key(|plan| Reverse(used(plan)));
            fit(part_of(plans, &bounds, |plan, after| used(plan) < *after), used)
        }
        None => {
            let bounds = wide_bounds::<String>(after, limit)?;
            let workflows = summaries(state.store.as_ref()).await?;
            let page = part_of(workflows, &bounds, |workflow, after| workflow.workflow_id > *after);
            fit(page, |workflow| workflow.workflow_id.clone())
        }
    };
    Ok(Json(WorkflowList { workflows, next }))
}

pub(super) const SHOW: Operation = Operation::get("/api/v1/workflows/{workflow_id}", "workflows", "show_workflow")
    .roles(READERS)
    .summary("Shows a workflow as registered.")
    .ok::<StoredWorkflow>("The workflow");
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
) -> Result<Json<StoredWorkflow>, Reject> {
    Ok(Json(commands::workflows::show(state.store.as_ref(), &workflow_id).await?))
}

pub(super) const STRUCTURE: Operation =
    Operation::get("/api/v1/workflows/{workflow_id}/structure", "workflows", "show_workflow_structure")
        .roles(READERS)
        .summary("Shows a workflow's structure for display.")
        .details("Nested: types, ids, stages, branches and routes, inputs, conditions and limits.")
        .ok::<Value>("The structure");
pub(super) async fn structure(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
) -> Result<Json<Value>, Reject> {
    let workflow = load(state.store.as_ref(), &workflow_id).await?;
    let known = run::runnables(state.store.as_ref(), state.flows.ids()).await?;
    Ok(Json(structure::describe_known(&workflow.workflow, &known)))
}

pub(super) const PUT: Operation = Operation::put("/api/v1/workflows/{workflow_id}", "workflows", "register_workflow")
    .roles(ADMINS)
    .summary("Registers a workflow: checks and stores it.")
    .details("The body is a workflow file as JSON. Every run that starts after the response uses it.")
    .file_body("A workflow file as JSON, see docs/workflows.md")
    .ok::<Registered>("The workflow is stored");
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
    check_workflow(state.store.as_ref(), &state.settings.quotas, &workflow).await?;
    Ok(Json(register(state.store.as_ref(), state.flows.ids(), state.known.as_ref(), workflow).await?))
}
