//! Runs of workflows: list, show, cancel, resume and restart.

use super::access::session_in_scope;
use super::caller::Caller;
use super::input::{Body, Filter, OptionalBody, Params};
use super::operation::Operation;
use super::roles::{OPERATORS, READERS, Reach};
use super::sessions::as_of;
use super::{GatewayState, Reject};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use commands::paging::{DEFAULT_LIMIT, Listing, MAX_LIMIT, bounds, fit};
use commands::run_answers::{AnsweredRun, NewAnswer, answer_run};
use commands::run_details::{self, RunDetails, RunDiagram, RunSummary, details};
use commands::runs::{StartedRun, rerun_from};
use serde::{Deserialize, Serialize};
use types::ids::{self, Id};
use types::page::Bounds;
use types::run::{RunQuery, RunStatus};

/// Runs, newest first.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct RunList {
    runs: Vec<RunSummary>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The last sequence of the stream of events when the listing was read: `GET /api/v1/events?after=` continues from
    /// it. Missing if the queue does not respond within 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
}

/// Filter of the listing.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct RunFilter {
    /// Only runs of this workflow.
    #[schemars(with = "Option<Id>")]
    workflow_id: Option<String>,
    /// Only runs in this status.
    status: Option<RunStatus>,
    /// Only runs that belong to this session.
    #[schemars(with = "Option<Id>")]
    session_id: Option<String>,
    /// The highest number of runs.
    #[schemars(range(min = 1, max = MAX_LIMIT), extend("default" = DEFAULT_LIMIT))]
    limit: Option<usize>,
    /// The `next` of the previous page: this page has the entries behind it.
    after: Option<String>,
}

/// Details of a cancellation. All fields are optional.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub(super) struct Cancellation {
    /// Why the run is cancelled.
    reason: Option<String>,
    /// Who cancels it.
    by: Option<String>,
}

/// The stage or node from which a run is repeated.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct Restart {
    /// The stage's path, such as `plan` or `outer_loop[2]/parallel_result`, or the id of a graph's node. Stages before
    /// it keep their recorded output, and so do the nodes that are not behind it. Also read as `from_stage`.
    #[serde(alias = "from_stage")]
    #[schemars(length(min = 1))]
    from: String,
}

/// An answer to an open question of a run.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(super) struct AnswerRequest {
    /// The answer, not empty. A text that equals a choice, apart from case and punctuation, is that choice.
    text: String,
    /// The place of the node that asked. By default the question that was asked first is answered.
    #[serde(default)]
    node: Option<String>,
    /// Who answers.
    #[serde(default)]
    by: Option<String>,
}

pub(super) const LIST: Operation = Operation::get("/api/v1/runs", "workflows", "list_runs")
    .roles(READERS)
    .shows(Reach::Selected)
    .summary("Lists runs, newest first.")
    .query::<RunFilter>()
    .ok::<RunList>("The runs");
pub(super) async fn list(
    State(state): State<GatewayState>,
    caller: Caller,
    Filter(which): Filter<RunFilter>,
) -> Result<Json<RunList>, Reject> {
    if !caller.scope().is_everything() {
        let Some(session_id) = &which.session_id else { return Err(caller.is_limited("give `session_id`")) };
        session_in_scope(&state, caller.scope(), session_id).await?;
    }
    for (field, id) in [("workflow_id", &which.workflow_id), ("session_id", &which.session_id)] {
        id.iter().try_for_each(|id| ids::check(field, id))?;
    }
    let RunFilter { workflow_id, status, session_id: origin_session, limit, after } = which;
    let Bounds { after, limit, max_bytes } = bounds(after, limit)?;
    let query = RunQuery { workflow_id, status, origin_session, limit, after, max_bytes, ..RunQuery::default() };
    let as_of = as_of(&state).await;
    let page = state.store.runs_page(query).await?.map(RunSummary::from);
    let Listing { items: runs, next } = fit(page, |run| (run.created_at, run.run_id.clone()));
    Ok(Json(RunList { runs, next, as_of }))
}

pub(super) const SHOW: Operation = Operation::get("/api/v1/runs/{run_id}", "workflows", "show_run")
    .roles(READERS)
    .summary("Shows a run with its timeline: each stage with its times, input, output and tokens.")
    .ok::<RunDetails>("The run");
pub(super) async fn show(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
) -> Result<Json<RunDetails>, Reject> {
    Ok(Json(details(&state.store, &state.flows, &run_id).await?))
}

pub(super) const DIAGRAM: Operation = Operation::get("/api/v1/runs/{run_id}/diagram", "workflows", "show_run_diagram")
    .roles(READERS)
    .summary("Draws a run as a Mermaid flowchart, the nodes of a graph coloured by their states.")
    .ok::<RunDiagram>("The flowchart");
pub(super) async fn diagram(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
) -> Result<Json<RunDiagram>, Reject> {
    Ok(Json(run_details::diagram(&state.store, &state.flows, &run_id).await?))
}

pub(super) const CANCEL: Operation = Operation::post("/api/v1/runs/{run_id}/cancel", "workflows", "cancel_run")
    .roles(OPERATORS)
    .summary("Cancels a run.")
    .details("For a run within a session's turn it cancels that turn.")
    .optional_body::<Cancellation>()
    .accepted::<StartedRun>("The queue has stored the command");
pub(super) async fn cancel(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(run_id): Params<String>,
    OptionalBody(why): OptionalBody<Cancellation>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let cancelled = commands::runs::cancel_run(queue, store, &run_id, why.reason, caller.speaks_as(why.by)).await?;
    Ok((StatusCode::ACCEPTED, Json(cancelled)))
}

pub(super) const RESUME: Operation = Operation::post("/api/v1/runs/{run_id}/resume", "workflows", "resume_run")
    .roles(OPERATORS)
    .summary("Continues a failed or cancelled run.")
    .details("Recorded stages keep their output, failed stages run again.")
    .accepted::<StartedRun>("The queue has stored the command");
pub(super) async fn resume(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    Ok((StatusCode::ACCEPTED, Json(commands::runs::resume_run(queue, store, &run_id).await?)))
}

pub(super) const RESTART: Operation = Operation::post("/api/v1/runs/{run_id}/restart", "workflows", "restart_run")
    .roles(OPERATORS)
    .summary("Repeats a run from a stage or a node, as a new run.")
    .body::<Restart>()
    .accepted::<StartedRun>("The queue has stored the new run");
pub(super) async fn restart(
    State(state): State<GatewayState>,
    Params(run_id): Params<String>,
    Body(restart): Body<Restart>,
) -> Result<(StatusCode, Json<StartedRun>), Reject> {
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let started = rerun_from(queue, store, &run_id, restart.from).await?;
    Ok((StatusCode::ACCEPTED, Json(started)))
}

pub(super) const ANSWER: Operation = Operation::post("/api/v1/runs/{run_id}/answer", "workflows", "answer_run")
    .roles(OPERATORS)
    .summary("Answers a question of a run.")
    .details(
        "Of several open questions, the one that was asked first is answered; the response names it. The same answer \
         twice is one answer. For a run within a session's turn, send a message to that session.",
    )
    .body::<AnswerRequest>()
    .accepted::<AnsweredRun>("The queue has stored the answer");
pub(super) async fn answer(
    State(state): State<GatewayState>,
    caller: Caller,
    Params(run_id): Params<String>,
    Body(request): Body<AnswerRequest>,
) -> Result<(StatusCode, Json<AnsweredRun>), Reject> {
    let AnswerRequest { text, node, by } = request;
    let (queue, store) = (state.queue.as_ref(), state.store.as_ref());
    let answered = answer_run(queue, store, &run_id, NewAnswer { text, node, by: caller.speaks_as(by) }).await?;
    Ok((StatusCode::ACCEPTED, Json(answered)))
}
