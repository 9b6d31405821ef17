//! Runs of workflows: list, show, cancel, resume and restart.

use super::input::{Body, Filter, OptionalBody, Params};
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::run_details::{RunDetails, RunSummary, details};
use commands::runs::StartedRun;
use commands::runs::rerun_from;
use commands::sessions::bounded;
use serde::{Deserialize, Serialize};
use types::ids::{self, Id};
use types::run::{RunQuery, RunStatus};

/// Runs, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct RunList {
    runs: Vec<RunSummary>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunFilter {
    /// Only runs of this workflow.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    workflow_id: Option<String>,
    /// Only runs in this status.
    #[serde(default)]
    status: Option<RunStatus>,
    /// Only runs that belong to this session.
    #[param(value_type = Option<Id>)]
    #[serde(default)]
    session_id: Option<String>,
    /// The highest number of runs.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    #[serde(default)]
    limit: Option<usize>,
}

/// Details of a cancellation. All fields are optional.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(super) struct Cancellation {
    /// Why the run is cancelled.
    #[serde(default)]
    reason: Option<String>,
    /// Who cancels it.
    #[serde(default)]
    by: Option<String>,
}

/// The stage from which a run is repeated.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(super) struct Restart {
    /// The stage's path, such as `plan` or `outer_loop[2]/parallel_result`. Earlier stages keep their recorded output.
    #[schema(min_length = 1)]
    from_stage: String,
}

/// Lists runs, newest first.
#[utoipa::path(get, path = "/api/v1/runs", operation_id = "list_runs", tag = "workflows", params(RunFilter),
    responses((status = 200, description = "The runs", body = RunList)))]
pub(super) async fn list(
    State(state): State<GatewayState>,
    Filter(which): Filter<RunFilter>,
) -> Result<Json<RunList>, Reject> {
    for (field, id) in [("workflow_id", &which.workflow_id), ("session_id", &which.session_id)] {
        id.iter().try_for_each(|id| ids::check(field, id))?;
    }
    let RunFilter { workflow_id, status, session_id: origin_session, limit } = which;
    let query = RunQuery { workflow_id, status, origin_session, limit: bounded(limit)?, ..RunQuery::default() };
    let runs = state.store.runs(query).await?;
    Ok(Json(RunList { runs: runs.into_iter().map(RunSummary::from).collect() }))
}

/// Shows a run with its timeline: each stage with its times, input, output and tokens.
#[utoipa::path(get, path = "/api/v1/runs/{run_id}", operation_id = "show_run", tag = "workflows", params(("run_id" = Id, Path)),
    responses((status = 200, description = "The run", body = RunDetails)))]
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
) -> Result<Json<RunDetails>, Reject> {
    Ok(Json(details(&state.store, &state.flows, &run_id).await?))
}

/// Cancels a run.
///
/// For a run within a session's turn it cancels that turn.
#[utoipa::path(post, path = "/api/v1/runs/{run_id}/cancel", operation_id = "cancel_run", tag = "workflows", params(("run_id" = Id, Path)),
    request_body(content = Option<Cancellation>), responses((status = 202, description = "The queue has stored the command", body = StartedRun)))]
pub(super) async fn cancel(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
    OptionalBody(why): OptionalBody<Cancellation>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let cancelled = commands::runs::cancel_run(queue, store, &run_id, why.reason, why.by).await?;
    Ok((StatusCode::ACCEPTED, Json(cancelled)))
}

/// Continues a failed or cancelled run.
///
/// Recorded stages keep their output, failed stages run again.
#[utoipa::path(post, path = "/api/v1/runs/{run_id}/resume", operation_id = "resume_run", tag = "workflows", params(("run_id" = Id, Path)),
    responses((status = 202, description = "The queue has stored the command", body = StartedRun)))]
pub(super) async fn resume(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    Ok((StatusCode::ACCEPTED, Json(commands::runs::resume_run(queue, store, &run_id).await?)))
}

/// Repeats a run from a stage, as a new run.
#[utoipa::path(post, path = "/api/v1/runs/{run_id}/restart", operation_id = "restart_run", tag = "workflows", params(("run_id" = Id, Path)),
    request_body = Restart, responses((status = 202, description = "The queue has stored the new run", body = StartedRun)))]
pub(super) async fn restart(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
    Body(restart): Body<Restart>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let started = rerun_from(queue, store, &run_id, restart.from_stage).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}
