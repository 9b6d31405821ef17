//! Execution of a workflow run, from its input to its output.

use super::event::{QueuedEvent, RunEvent, RunEventType};
use super::event_buffer::EventBuffer;
use super::failure::Failure;
use super::graph::RevisedGraph;
use super::graph::progress::GraphProgress;
use super::pauses::Pauses;
use super::resolved::ResolvedDefinitions;
use super::stage_context::{EventPayload, Run, StageContext};
use super::timeline::Notes;
use super::usage::{Limits, UsageCounters};
use super::workflow;
use crate::action::http::HttpCaller;
use crate::action::tool::Tools;
use crate::journal::{Journal, JournalError};
use crate::model::Models;
use crate::prompt::Prompts;
use crate::workflow::asking::Asking;
use async_trait::async_trait;
use connectors::Connectors;
use definitions::coordinator::DecisionLimits;
use definitions::workflow::scope::Scope;
use sandbox::Sandbox;
use serde_json::{Map, Value};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tracing::debug;
use types::run_outcome::{RunFailure, RunUsage};

/// The error of a sink.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// Publishes a run's events.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Publishes events in order. All of them are durable on return. Drops an event that was published before.
    async fn publish(&self, events: Vec<QueuedEvent>) -> Result<(), SinkError>;
}

/// Services that the steps of a run use. Cheap to clone.
#[derive(Clone)]
pub struct RunServices {
    /// Models by name.
    pub models: Models,
    /// HTTP client for tools.
    pub http: HttpCaller,
    /// Rust functions registered as tools.
    pub tools: Tools,
    /// Runs the scripts of PYTHON nodes.
    pub sandbox: Arc<Sandbox>,
    /// Prompt templates by name, for the questions to a graph's coordinator.
    pub prompts: Arc<Prompts>,
    /// The limits of the settings on a coordinator's decisions.
    pub decisions: Arc<DecisionLimits>,
    /// The databases of DATABASE nodes.
    pub connectors: Arc<Connectors>,
}

/// Input of [`execute`].
pub struct RunStart {
    /// Id of the run.
    pub run_id: String,
    /// The definitions that the run can reach. Their root is the workflow to execute.
    pub resolved: ResolvedDefinitions,
    /// Value of `{query}` in stages.
    pub input: String,
    /// Value of `{query}` in the conditions of the outermost workflow.
    pub request: String,
    /// The inputs of a graph; without them those in the input text, if that is a JSON object.
    pub params: Map<String, Value>,
    /// The journal of the turn, or the run's part of it.
    pub journal: Journal,
    /// Services that the steps use.
    pub services: RunServices,
    /// Publishes the run's events.
    pub sink: Arc<dyn EventSink>,
    /// Upper bounds for the run.
    pub limits: Limits,
    /// Part of `limits.timeout` that earlier attempts have used.
    pub elapsed: Duration,
    /// The questions that the run puts to the user.
    pub asking: Arc<Asking>,
    /// The pauses and open questions of the run.
    pub(crate) pauses: Arc<Pauses>,
    /// The states of the nodes, if the outermost workflow is a graph.
    pub(crate) progress: Arc<GraphProgress>,
    /// Collects the stages, for a timeline. A run with notes only replays recorded steps.
    pub(super) notes: Option<Arc<Notes>>,
}

impl RunStart {
    /// Creates the start of a run that belongs to no conversation, with `input` as its request and no time used.
    pub fn new(
        run_id: &str,
        resolved: ResolvedDefinitions,
        input: &str,
        journal: Journal,
        environment: RunEnvironment,
    ) -> Self {
        let RunEnvironment { services, sink, limits } = environment;
        let (run_id, input) = (run_id.to_owned(), input.to_owned());
        let (request, elapsed) = (input.clone(), Duration::ZERO);
        let (asking, params, notes) = (Arc::new(Asking::without_user()), Map::new(), None);
        let (pauses, progress) = (Arc::default(), Arc::default());
        Self {
            run_id,
            resolved,
            input,
            request,
            params,
            journal,
            services,
            sink,
            limits,
            elapsed,
            asking,
            pauses,
            progress,
            notes,
        }
    }

    /// Sets the value of `{query}` in the conditions of the outermost workflow.
    pub(crate) fn with_request(self, request: &str) -> Self {
        Self { request: request.to_owned(), ..self }
    }

    /// Allows the run to ask the user of its session.
    pub fn with_asking(self, asking: Arc<Asking>) -> Self {
        Self { asking, ..self }
    }

    /// Sets the receiver of the run's pauses and open questions. A run in a lane of its own can end its turn meanwhile.
    pub(crate) fn with_pauses(self, pauses: Arc<Pauses>) -> Self {
        Self { pauses, ..self }
    }

    /// Sets the receiver of the states of a graph's nodes.
    pub(crate) fn with_progress(self, progress: Arc<GraphProgress>) -> Self {
        Self { progress, ..self }
    }

    /// Sets the inputs of a graph.
    pub(crate) fn with_params(self, params: Map<String, Value>) -> Self {
        Self { params, ..self }
    }

    /// Sets the execution time that earlier attempts have used.
    pub(crate) fn with_elapsed(self, elapsed: Duration) -> Self {
        Self { elapsed, ..self }
    }
}

/// Services, event sink and limits of a run.
pub struct RunEnvironment {
    /// Services that the steps use.
    pub services: RunServices,
    /// Publishes the run's events.
    pub sink: Arc<dyn EventSink>,
    /// Upper bounds for the run.
    pub limits: Limits,
}

/// End of a run.
#[derive(Debug)]
pub struct RunEnd {
    /// The output, or the failure.
    pub outcome: Result<String, RunFailure>,
    /// Stages, model calls and tokens that the run has used.
    pub usage: RunUsage,
    /// The last event, `run_completed` or `run_failed`. The caller publishes it once the end is durable.
    pub event: RunEvent,
    /// The last revision of the graph that the run executes; `None` without a replan, and for other workflows.
    pub revised: Option<RevisedGraph>,
}

/// Why a run has not ended. Its turn is repeated, cancelled or abandoned.
#[derive(Debug, Error)]
pub enum RunError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Events could not be published.
    #[error("{0}")]
    Sink(#[source] SinkError),
    /// The run waits for the user's answer to the question in its [`Asking`], or for the end of a pause. Carries the usage
    /// so far.
    #[error("the run waits for an answer or for the end of a pause")]
    Waits(RunUsage),
}

/// Executes a workflow. On return its steps are durable, and all its events except the last one are published.
pub async fn execute(start: RunStart) -> Result<RunEnd, RunError> {
    let RunStart { run_id, resolved, input, request, params, journal, services, .. } = start;
    let RunStart { sink, limits, elapsed, asking, pauses, progress, notes, .. } = start;
    let root = Arc::clone(resolved.root());
    let run = Arc::new(Run {
        id: run_id,
        params,
        resolved,
        services,
        journal: journal.clone(),
        event_buffer: EventBuffer::default(),
        counters: UsageCounters::new(limits),
        asking: Arc::clone(&asking),
        pauses: Arc::clone(&pauses),
        progress,
        max_parallel: limits.max_parallel,
        notes,
        revised: Mutex::default(),
    });
    let context = StageContext::root(Arc::clone(&run));
    context.emit(RunEventType::RunStarted, EventPayload::default());
    let scope = Scope::root(input, Some(request.into()));
    let work = workflow::stages(&context, &root.workflow, scope);
    let outer = journal.running_steps();
    let work = journal.clock().timeout(limits.timeout.saturating_sub(elapsed), work);
    let mut work = pin!(work);
    let mut work = pin!(async {
        tokio::select! {
            biased;
            worked = pauses.watch(work.as_mut()) => Some(worked),
            () = asking.wait_until_suspended(&journal, outer) => None,
            () = pauses.wait_until_quiet(&journal, &run.event_buffer, outer) => None,
            // Steps check for a cancellation themselves. A stage that pauses before a retry, or a flow that waits
            // outside of a step, does not, so it is stopped here.
            () = journal.wait_cancelled(outer) => Some(Some(Err(Failure::Journal(JournalError::Cancelled)))),
        }
    });
    let mut writing = pin!(run.event_buffer.drain(&journal, sink.as_ref()));
    let worked = tokio::select! {
        biased;
        worked = &mut work => worked,
        // While the run is active, publication ends only with an error.
        written = &mut writing => {
            let error = written.err().unwrap_or_else(|| RunError::Sink("the run's event buffer was closed".into()));
            if matches!(error, RunError::Sink(_) | RunError::Journal(JournalError::Store(_))) {
                // Lets the steps in flight finish and starts no others. A dropped call would be repeated, and could
                // still be in flight when the next attempt makes the same call.
                run.event_buffer.close();
                journal.halt();
                let _ = work.await;
            }
            if let RunError::Sink(_) = error {
                journal.settle().await?;
            }
            return Err(error);
        }
    };
    let outcome = match worked {
        Some(Some(Err(Failure::Journal(JournalError::Cancelled)))) => {
            // Watchers see how far the run came before they see its end. An event that is on its way must not arrive
            // after the end either.
            run.event_buffer.close();
            if let Err(error) = writing.await {
                debug!(run_id = run.id, "the last events of a cancelled run are not published: {error}");
            }
            return Err(JournalError::Cancelled.into());
        }
        Some(Some(Err(Failure::Journal(error)))) => return Err(pauses.cause_of(error).into()),
        // A pause may have kept the work from ending with the error.
        None if pauses.due().is_some() && journal.is_halted() => {
            return Err(pauses.cause_of(JournalError::Halted).into());
        }
        Some(Some(Ok(output))) => Some(Ok(output)),
        Some(Some(Err(Failure::Failed { failure, .. }))) => Some(Err(failure)),
        Some(None) => Some(Err(RunFailure { path: String::new(), cause: run.counters.timeout_message(), attempts: 1 })),
        None => None,
    };
    run.event_buffer.close();
    writing.await?;
    if !matches!(outcome, Some(Err(_))) {
        asking.check_answered(&journal)?;
    }
    let Some(outcome) = outcome else { return Err(RunError::Waits(run.counters.usage())) };
    let event = match &outcome {
        Ok(output) => context.event(RunEventType::RunCompleted, output.payload(&root.workflow.shape)),
        Err(failure) => context
            .failed_at(&root.workflow, failure)
            .event(RunEventType::RunFailed, EventPayload::error(failure.to_string())),
    };
    let revised = run.revised.lock().unwrap_or_else(PoisonError::into_inner).take();
    let outcome = outcome.map(|output| output.text.to_string());
    Ok(RunEnd { outcome, usage: run.counters.usage(), event, revised })
}

/// Builds the last event of a run that the engine or an operator has ended for `reason`.
pub fn failed_event(run_id: &str, reason: &str) -> RunEvent {
    RunEvent {
        kind: RunEventType::RunFailed,
        run_id: run_id.to_owned(),
        root_run_id: run_id.to_owned(),
        event_id: format!("{run_id}/{}", RunEventType::RunFailed.as_str()),
        step_id: None,
        stage_id: None,
        branch_id: None,
        iteration: None,
        depth: 0,
        path: String::new(),
        delta: None,
        snapshot: None,
        data: None,
        error: Some(reason.to_owned()),
    }
}
