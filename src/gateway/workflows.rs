//! Workflows: list, show, check and register, with their versions.

use super::caller::Caller;
use super::documents::{ETag, NoteParam, VersionList, etag};
use super::input::{Condition, FileBody, Filter, OptionalBody, Params};
use super::operation::Operation;
use super::roles::{ADMINS, READERS};
use super::sessions::PageParams;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::documents::apply::{self as documents, AppliedChange, Change};
use commands::documents::check::{CheckedDocument, check};
use commands::documents::draft::{self, StoredDraft};
use commands::documents::versions::{self, WorkflowDetails, WorkflowVersion};
use commands::paging::{Listing, MAX_LIMIT, fit, part_of, wide_bounds};
use commands::workflows::{WorkflowSummary, load, plans, summaries};
use definitions::document::Finding;
use definitions::workflow::structure;
use engine::run;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use types::authoring::Artifact;

/// The registered workflows, and the built-in ones.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct WorkflowList {
    workflows: Vec<WorkflowSummary>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The result of registering a workflow.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Registered {
    /// The id of the workflow.
    workflow_id: String,
    /// The md5 hash of the definition.
    hash: String,
    /// False when the same definition was already registered.
    changed: bool,
    /// Findings that are probably mistakes.
    warnings: Vec<Finding>,
}

impl Registered {
    fn new(workflow_id: String, applied: AppliedChange) -> Self {
        let AppliedChange { hash, changed, warnings } = applied;
        Self { workflow_id, hash, changed, warnings }
    }
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
    .etag("The hash between quotes, for `If-Match` of a change")
    .ok::<WorkflowDetails>("The workflow");
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
) -> Result<(ETag, Json<WorkflowDetails>), Reject> {
    let store = state.store.as_ref();
    let workflow = commands::workflows::show(store, &workflow_id).await?;
    let label = versions::label(store, Artifact::Workflow, &workflow_id, &workflow.hash).await?;
    Ok((etag(&workflow.hash), Json(WorkflowDetails { workflow, label })))
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

pub(super) const VALIDATE: Operation = Operation::post("/api/v1/workflows/validate", "workflows", "validate_workflow")
    .roles(READERS)
    .audited(false)
    .summary("Checks a workflow file without storing it.")
    .details("The body is the file as JSON or YAML, or `{\"source\": \"<text>\"}`. Findings of a text have its lines.")
    .file_body("A workflow file, see docs/workflows.md, or `{\"source\": \"<its text>\"}`")
    .ok::<CheckedDocument>("The problems");
pub(super) async fn validate(
    State(state): State<GatewayState>,
    FileBody(submitted): FileBody,
) -> Result<Json<CheckedDocument>, Reject> {
    Ok(Json(check(&state.desk(), Artifact::Workflow, &submitted).await?))
}

pub(super) const PUT: Operation = Operation::put("/api/v1/workflows/{workflow_id}", "workflows", "register_workflow")
    .roles(ADMINS)
    .summary("Registers a workflow: checks and stores it.")
    .details("The body is a workflow file as JSON or YAML. Every run that starts after the response uses it.")
    .query::<NoteParam>()
    .conditional()
    .file_body("A workflow file, see docs/workflows.md, or `{\"source\": \"<its text>\"}`")
    .ok::<Registered>("The workflow is stored");
pub(super) async fn put(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(workflow_id): Params<String>,
    Filter(NoteParam { note }): Filter<NoteParam>,
    Condition(over): Condition,
    FileBody(submitted): FileBody,
) -> Result<Json<Registered>, Reject> {
    let change = Change { over, by: caller.speaks_as(None), note };
    let applied = documents::apply(&state.desk(), (Artifact::Workflow, &workflow_id), submitted, change).await?;
    Ok(Json(Registered::new(workflow_id, applied)))
}

pub(super) const VERSIONS: Operation =
    Operation::get("/api/v1/workflows/{workflow_id}/versions", "workflows", "list_workflow_versions")
        .roles(READERS)
        .summary("Lists the versions of a workflow, the newest first.")
        .details("With the drafts. A version that nothing uses is kept for `retention.versions`.")
        .query::<PageParams>()
        .ok::<VersionList>("The versions");
pub(super) async fn versions(
    State(state): State<GatewayState>,
    Params(workflow_id): Params<String>,
    Filter(page): Filter<PageParams>,
) -> Result<Json<VersionList>, Reject> {
    let listing = versions::list(state.store.as_ref(), Artifact::Workflow, &workflow_id, &page.bounds()?).await?;
    Ok(Json(listing.into()))
}

pub(super) const VERSION: Operation =
    Operation::get("/api/v1/workflows/{workflow_id}/versions/{hash}", "workflows", "show_workflow_version")
        .roles(READERS)
        .summary("Shows a version of a workflow with its definition and text.")
        .ok::<WorkflowVersion>("The version");
pub(super) async fn version(
    State(state): State<GatewayState>,
    Params((workflow_id, hash)): Params<(String, String)>,
) -> Result<Json<WorkflowVersion>, Reject> {
    let (version, definition, source) =
        versions::show(state.store.as_ref(), Artifact::Workflow, &workflow_id, &hash).await?;
    Ok(Json(WorkflowVersion { version, definition, source }))
}

pub(super) const STORE: Operation =
    Operation::post("/api/v1/workflows/{workflow_id}/versions", "workflows", "store_workflow_version")
        .roles(ADMINS)
        .summary("Stores a draft of a workflow: a version that is not applied.")
        .query::<NoteParam>()
        .file_body("A workflow file, see docs/workflows.md, or `{\"source\": \"<its text>\"}`")
        .created::<StoredDraft>("The draft is stored");
pub(super) async fn store(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(workflow_id): Params<String>,
    Filter(NoteParam { note }): Filter<NoteParam>,
    FileBody(submitted): FileBody,
) -> Result<(StatusCode, Json<StoredDraft>), Reject> {
    let by_and_note = (caller.speaks_as(None), note);
    let stored = draft::store(&state.desk(), (Artifact::Workflow, &workflow_id), submitted, by_and_note).await?;
    Ok((StatusCode::CREATED, Json(stored)))
}

pub(super) const APPLY_VERSION: Operation =
    Operation::post("/api/v1/workflows/{workflow_id}/versions/{hash}/apply", "workflows", "apply_workflow_version")
        .roles(ADMINS)
        .summary("Applies a stored version: a draft, or an earlier one to go back to.")
        .details("Checks it again. Every run that starts after the response uses it.")
        .conditional()
        .optional_body::<NoteParam>()
        .ok::<Registered>("The version is applied");
pub(super) async fn apply_version(
    State(state): State<GatewayState>,
    caller: Caller,
    Params((workflow_id, hash)): Params<(String, String)>,
    Condition(over): Condition,
    OptionalBody(NoteParam { note }): OptionalBody<NoteParam>,
) -> Result<Json<Registered>, Reject> {
    let change = Change { over, by: caller.speaks_as(None), note };
    let applied = documents::apply_version(&state.desk(), (Artifact::Workflow, &workflow_id), &hash, change).await?;
    Ok(Json(Registered::new(workflow_id, applied)))
}
