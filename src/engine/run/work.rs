//! Execution of a workflow, for a run in its own lane and for a run within a turn.

use super::beginning::Begun;
use super::sink::{self, Outlet, Published};
use super::speech::Output;
use crate::execution::{Services, TurnError};
use crate::journal::{Guard, Journal};
use crate::model::Models;
use crate::workflow::asking::Asking;
use crate::workflow::orchestration::{Limits, RunEnd, RunError, RunServices, RunStart, execute};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use types::run_outcome::RunUsage;

/// Input of [`work`], apart from the definitions.
pub(super) struct Working<'w> {
    pub(super) run_id: &'w str,
    pub(super) journal: Journal,
    pub(super) models: Models,
    pub(super) guard: &'w Guard,
    /// Events that are already on the stream.
    pub(super) published: Published,
    /// For a run within a turn: publishes the output as chunks to the user.
    pub(super) said: Option<Output>,
    /// Execution time that the run has already used.
    pub(super) elapsed: Duration,
    pub(super) asking: Arc<Asking>,
}

/// Why a workflow has not ended.
pub(super) enum Unended {
    /// The turn cannot continue.
    Turn(TurnError),
    /// The workflow waits for an answer. Carries its published events, as returned by [`sink::brief`], and its usage
    /// so far.
    Waits(Vec<String>, RunUsage),
}

impl Unended {
    /// The turn's error, for a run in its own lane. Such a run cannot ask a user, so it never waits.
    pub(super) fn of_own(self) -> TurnError {
        match self {
            Self::Turn(error) => error,
            Self::Waits(..) => TurnError::Failed("the run waits for an answer, but it belongs to no turn".to_owned()),
        }
    }
}

/// Executes a workflow. On return its steps are durable, and all its events except the last one are published.
pub(super) async fn work(
    services: &Services,
    outlet: Outlet,
    begun: Begun,
    working: Working<'_>,
) -> Result<RunEnd, Unended> {
    let Begun { beginning, pinned } = begun;
    let Working { run_id, journal, models, guard, published, said, elapsed, asking } = working;
    let limits = Limits::of(&services.limits, &pinned.root().workflow.limits);
    let sink = Arc::new(sink::QueueSink::new(services, outlet, guard.clone(), (published, said)));
    let means = RunServices { models, http: services.http.clone(), tools: services.tools.clone() };
    let start = RunStart::new(run_id, pinned, &beginning.input, journal, (means, sink.clone(), limits));
    let start = start.asked(&beginning.request).since(elapsed).asking(asking);
    // Boxed so that the execution does not enlarge the futures of all callers.
    match execute(start).boxed().await {
        Ok(end) => Ok(end),
        Err(RunError::Journal(error)) => Err(Unended::Turn(error.into())),
        Err(RunError::Sink(problem)) => Err(Unended::Turn(sink.why(problem))),
        Err(RunError::Waits(usage)) => Err(Unended::Waits(sink.told(), usage)),
    }
}
