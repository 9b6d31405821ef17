//! Runs of workflows: listed, looked at, and what operators do with them.

use super::input::{Body, Filter, OptionalBody, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::run_details::{RunDetails, RunSummary, again, details};
use commands::runs::StartedRun;
use commands::sessions::bounded;
use serde::{Deserialize, Serialize};
use types::ids::{self, Id};
use types::run::{RunQuery, RunStatus};

/// Runs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct RunList {
    runs: Vec<RunSummary>,
}

/// Which runs, and how many.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Only those of this workflow.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    workflow_id: Option<String>,
    /// Only those in this status.
    #[serde(default)]
    status: Option<RunStatus>,
    /// Only those that this session asked for.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    session_id: Option<String>,
    /// 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default)]
    limit: Option<usize>,
}

/// Why, and by whom.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(super) struct Cancellation {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    by: Option<String>,
}

/// From where a run is repeated.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(super) struct Restart {
    /// The stage, such as `plan` or `outer_loop[2]/parallel_result`; what comes before it counts as it was.
    #[schema(min_length = 1)]
    from_stage: String,
}

/// Runs, newest first.
#[utoipa::path(get, path = "/api/v1/runs", operation_id = "list_runs", tag = "workflows", params(Which),
    responses((status = 200, description = "Runs", body = RunList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<Which>,
) -> Result<Json<RunList>, Reject> {
    for (field, id) in [("workflow_id", &which.workflow_id), ("session_id", &which.session_id)] {
        id.iter().try_for_each(|id| ids::check(field, id))?;
    }
    let Which { workflow_id, status, session_id: origin_session, limit } = which;
    let query = RunQuery { workflow_id, status, origin_session, limit: bounded(limit)?, ..RunQuery::default() };
    let runs = state.store.runs(query).await?;
    Ok(Json(RunList { runs: runs.into_iter().map(RunSummary::from).collect() }))
}

/// One run with its timeline: each stage, when it ran, what it was given and what it took.
#[utoipa::path(get, path = "/api/v1/runs/{run_id}", operation_id = "show_run", tag = "workflows", params(("run_id" = Id, Path)),
    responses((status = 200, description = "The run", body = RunDetails)))]
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
) -> Result<Json<RunDetails>, Reject> {
    Ok(Json(details(&state.store, &state.flows, &run_id).await?))
}

/// Ends a run.
#[utoipa::path(post, path = "/api/v1/runs/{run_id}/cancel", operation_id = "cancel_run", tag = "workflows", params(("run_id" = Id, Path)),
    request_body(content = Option<Cancellation>), responses((status = 202, description = "The queue holds it", body = StartedRun)))]
pub(super) async fn cancel(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
    OptionalBody(why): OptionalBody<Cancellation>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let cancelled = commands::runs::cancel_run(queue, store, &run_id, why.reason, why.by).await?;
    Ok((StatusCode::ACCEPTED, Json(cancelled)))
}

/// Lets a failed or cancelled run go on: what is recorded counts, what failed is tried again.
#[utoipa::path(post, path = "/api/v1/runs/{run_id}/resume", operation_id = "resume_run", tag = "workflows", params(("run_id" = Id, Path)),
    responses((status = 202, description = "The queue holds it", body = StartedRun)))]
pub(super) async fn resume(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    Ok((StatusCode::ACCEPTED, Json(commands::runs::resume_run(queue, store, &run_id).await?)))
}

/// Repeats a run from a stage on, as a new run.
#[utoipa::path(post, path = "/api/v1/runs/{run_id}/restart", operation_id = "restart_run", tag = "workflows", params(("run_id" = Id, Path)),
    request_body = Restart, responses((status = 202, description = "The queue holds the new run", body = StartedRun)))]
pub(super) async fn restart(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
    Body(restart): Body<Restart>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let started = again(queue, store, &run_id, restart.from_stage).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}
