//! A run of a workflow, from its input to its output.

use super::event::{RunEvent, RunEventType};
use super::failure::Failure;
use super::outlet::Outlet;
use super::part::{Part, Run, Told};
use super::pinned::Pinned;
use super::spent::{Limits, Spent};
use super::timeline::Notes;
use super::workflow;
use crate::action::http::HttpCaller;
use crate::action::tool::Tools;
use crate::journal::{Journal, JournalError};
use crate::model::Models;
use crate::workflow::asking::Asking;
use async_trait::async_trait;
use definitions::workflow::scope::Scope;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use types::run_outcome::{RunFailure, RunUsage};

/// Where a run's events go.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Publishes events in order. All durable on return; one that was published before is dropped by its `event_id`.
    async fn publish(&self, events: Vec<RunEvent>) -> Result<(), String>;
}

/// What the steps of a run work with. Cheap to clone.
#[derive(Clone)]
pub struct RunServices {
    /// Models by name.
    pub models: Models,
    /// Calls tools over HTTP.
    pub http: HttpCaller,
    /// Functions registered as tools.
    pub tools: Tools,
}

/// What a run begins with.
pub struct RunStart {
    /// Its id.
    pub run_id: String,
    /// What it may run; its root runs.
    pub pinned: Pinned,
    /// What its stages see as `{query}`.
    pub input: String,
    /// What the conditions of the outermost workflow see as `{query}` (OP-O20).
    pub request: String,
    /// The turn's journal, or the run's part of it.
    pub journal: Journal,
    /// See [`RunServices`].
    pub services: RunServices,
    /// Where its events go.
    pub sink: Arc<dyn EventSink>,
    /// The most that it may take.
    pub limits: Limits,
    /// How much of `limits.timeout` earlier workers have used.
    pub elapsed: Duration,
    /// Whom it may ask.
    pub asking: Arc<Asking>,
    /// For a run that is only looked at.
    pub(super) notes: Option<Arc<Notes>>,
}

impl RunStart {
    /// A run of `pinned` on `input`, with events to `sink`, within the limits; nothing of its time is used up.
    pub fn new(run_id: &str, pinned: Pinned, input: &str, journal: Journal, (services, sink, limits): Means) -> Self {
        let (run_id, input) = (run_id.to_owned(), input.to_owned());
        let (request, elapsed) = (input.clone(), Duration::ZERO);
        let asking = Arc::new(Asking::nobody());
        Self { run_id, pinned, input, request, journal, services, sink, limits, elapsed, asking, notes: None }
    }

    /// The same, whose outermost conditions see `request` as `{query}` (OP-O20).
    pub fn asked(self, request: &str) -> Self {
        Self { request: request.to_owned(), ..self }
    }

    /// The same, which may ask the user of its session.
    pub fn asking(self, asking: Arc<Asking>) -> Self {
        Self { asking, ..self }
    }

    /// The same, of whose time so much is used up.
    pub fn since(self, elapsed: Duration) -> Self {
        Self { elapsed, ..self }
    }
}

/// What a run works with, where its events go, and the most that it may take.
pub type Means = (RunServices, Arc<dyn EventSink>, Limits);

/// How a run has ended.
#[derive(Debug)]
pub struct RunEnd {
    /// Its output, or why there is none.
    pub outcome: Result<String, RunFailure>,
    /// What it has used.
    pub usage: RunUsage,
    /// Its last event, `run_completed` or `run_failed`: to be published once the end is durable, and no other after it.
    pub event: RunEvent,
}

/// Why a run has not come to an end. It is repeated, cancelled or given up as a turn is.
#[derive(Debug, Error)]
pub enum RunError {
    /// The journal's fault.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The events cannot be published.
    #[error("{0}")]
    Sink(String),
    /// It has asked the user, and goes on with the answer: [`Asking`] has the question.
    #[error("it waits for an answer")]
    Waits(RunUsage),
}

/// Runs a workflow. On return its steps are durable and its events published, but for the last one.
pub async fn execute(start: RunStart) -> Result<RunEnd, RunError> {
    let RunStart { run_id, pinned, input, request, journal, services, sink, limits, elapsed, asking, notes } = start;
    let root = Arc::clone(pinned.root());
    let run = Arc::new(Run {
        id: run_id,
        pinned,
        services,
        journal: journal.clone(),
        outlet: Outlet::default(),
        spent: Spent::new(limits),
        asking: Arc::clone(&asking),
        max_parallel: limits.max_parallel,
        notes,
    });
    let part = Part::root(Arc::clone(&run));
    part.tell(RunEventType::RunStarted, Told::default());
    let scope = Scope::root(input, Some(request.into()));
    let work = workflow::stages(&part, &root.workflow, scope);
    let outer = journal.under_way();
    let work = journal.clock().within(limits.timeout.saturating_sub(elapsed), work);
    let mut work = pin!(async {
        tokio::select! {
            biased;
            worked = work => Some(worked),
            () = asking.left(&journal, outer) => None,
            // A step ends by itself; a stage that pauses, or a flow that waits, does not look.
            () = journal.broken_off(outer) => Some(Some(Err(Failure::Journal(JournalError::Cancelled)))),
        }
    });
    let mut writing = pin!(run.outlet.drain(&journal, sink.as_ref()));
    let worked = tokio::select! {
        biased;
        worked = &mut work => worked,
        // While the run goes on it ends only when it cannot.
        written = &mut writing => {
            let error = written.err().unwrap_or_else(|| RunError::Sink("the outlet is closed".into()));
            if matches!(error, RunError::Sink(_) | RunError::Journal(JournalError::Store(_))) {
                // What is under way is not to be asked again, nor still to be asked when the next attempt has asked it.
                run.outlet.close();
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
        Some(Some(Err(Failure::Journal(error)))) => return Err(error.into()),
        Some(Some(Ok(output))) => Some(Ok(output)),
        Some(Some(Err(Failure::Failed { failure, .. }))) => Some(Err(failure)),
        Some(None) => Some(Err(RunFailure { path: String::new(), cause: run.spent.too_long(), attempts: 1 })),
        None => None,
    };
    run.outlet.close();
    writing.await?;
    if !matches!(outcome, Some(Err(_))) {
        asking.check(&journal)?;
    }
    let Some(outcome) = outcome else { return Err(RunError::Waits(run.spent.usage())) };
    let event = match &outcome {
        Ok(output) => part.event(RunEventType::RunCompleted, output.told(&root.workflow.shape)),
        Err(failure) => {
            part.failed_at(&root.workflow, failure).event(RunEventType::RunFailed, Told::error(failure.to_string()))
        }
    };
    Ok(RunEnd { outcome: outcome.map(|output| output.text.to_string()), usage: run.spent.usage(), event })
}

/// The last event of a run that an operator, or the engine, has ended.
pub fn broken_off(run_id: &str, reason: &str) -> RunEvent {
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
