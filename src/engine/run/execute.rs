//! Execution of a workflow, for a run in its own lane and for a run within a turn.

use super::event_publisher::{self, EventAddress, PublishedEvents};
use super::output_chunks::OutputChunks;
use super::start_record::LoadedRun;
use crate::action::call_values::SessionFacts;
use crate::execution::{Services, TurnError};
use crate::journal::{Guard, Journal};
use crate::model::Models;
use crate::workflow::asking::Asking;
use crate::workflow::orchestration::graph::progress::GraphProgress;
use crate::workflow::orchestration::pauses::Pauses;
use crate::workflow::orchestration::{
    Limits, RunEnd, RunEnvironment, RunError, RunServices, RunStart, TimeoutOf, execute,
};
use futures::FutureExt;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use types::run_outcome::RunUsage;

/// Input of [`execute_workflow`], apart from the definitions.
pub(super) struct RunContext<'w> {
    pub(super) run_id: &'w str,
    pub(super) journal: Journal,
    pub(super) models: Models,
    pub(super) guard: &'w Guard,
    /// Events that are already on the stream.
    pub(super) published: PublishedEvents,
    /// For a run within a turn: publishes the output as chunks to the user.
    pub(super) chunks: Option<OutputChunks>,
    /// The longest execution time that the caller allows.
    pub(super) longest: Option<(Duration, TimeoutOf)>,
    /// Execution time that the run has already used.
    pub(super) elapsed: Duration,
    pub(super) asking: Arc<Asking>,
    /// The pauses and open questions of the run.
    pub(super) pauses: Arc<Pauses>,
    /// The states of a graph's nodes.
    pub(super) progress: Arc<GraphProgress>,
    /// The inputs of a graph; empty if they are in the query.
    pub(super) params: Map<String, Value>,
    /// The session for which the run calls APIs.
    pub(super) session: SessionFacts,
}

/// Why a workflow has not ended.
pub(super) enum RunInterruption {
    /// The turn cannot continue.
    Turn(TurnError),
    /// The workflow waits for an answer, or for the end of a pause. Carries its published events, as returned by
    /// [`event_publisher::event_digest`], and its usage so far.
    Waits(Vec<String>, RunUsage),
}

/// Executes a workflow. On return its steps are durable, and all its events except the last one are published.
pub(super) async fn execute_workflow(
    services: &Services,
    address: EventAddress,
    loaded: LoadedRun,
    context: RunContext<'_>,
) -> Result<RunEnd, RunInterruption> {
    let LoadedRun { start_record, resolved } = loaded;
    let RunContext { run_id, journal, models, guard, published, chunks, .. } = context;
    let RunContext { longest, elapsed, asking, pauses, progress, params, session, .. } = context;
    let mut limits = Limits::resolve(&services.limits, &resolved.root().workflow.limits);
    if let Some((timeout, of)) = longest {
        limits = limits.within(timeout, of);
    }
    let sink = Arc::new(event_publisher::QueuePublisher::new(services, address, guard.clone(), published, chunks));
    let run_services = RunServices {
        models,
        http: services.http.for_session(session),
        tools: services.tools.clone(),
        sandbox: Arc::clone(&services.sandbox),
        prompts: Arc::clone(&services.prompts),
        decisions: Arc::clone(&services.decisions),
        connectors: Arc::clone(&services.connectors),
    };
    let environment = RunEnvironment { services: run_services, sink: sink.clone(), limits };
    let start = RunStart::new(run_id, resolved, &start_record.input, journal, environment);
    let start = start.with_request(&start_record.request).with_elapsed(elapsed).with_asking(asking);
    let start = start.with_pauses(pauses).with_progress(progress).with_params(params);
    // Boxed so that the execution does not enlarge the futures of all callers.
    match execute(start).boxed().await {
        Ok(end) => Ok(end),
        Err(RunError::Journal(error)) => Err(RunInterruption::Turn(error.into())),
        Err(RunError::Sink(problem)) => Err(RunInterruption::Turn(event_publisher::turn_error(problem))),
        Err(RunError::Waits(usage)) => Err(RunInterruption::Waits(sink.published_digests(), usage)),
    }
}
