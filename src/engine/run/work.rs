//! Executing a workflow, in a lane of its own or within a turn.

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

/// What a workflow is executed with.
pub(super) struct Working<'w> {
    pub(super) run_id: &'w str,
    pub(super) journal: Journal,
    pub(super) models: Models,
    pub(super) guard: &'w Guard,
    /// What is on the stream already.
    pub(super) published: Published,
    /// Within a turn, what its user is told.
    pub(super) said: Option<Output>,
    /// How much of its time is used up.
    pub(super) elapsed: Duration,
    pub(super) asking: Arc<Asking>,
}

/// Why a workflow has not come to its end.
pub(super) enum Unended {
    Turn(TurnError),
    /// It waits for an answer. What it has told so far, as [`sink::brief`] has it, and used.
    Waits(Vec<String>, RunUsage),
}

impl Unended {
    /// Of a run in a lane of its own, which has nobody to ask.
    pub(super) fn of_own(self) -> TurnError {
        match self {
            Self::Turn(error) => error,
            Self::Waits(..) => TurnError::Failed("it waits for an answer that nobody can give".to_owned()),
        }
    }
}

/// Executes a workflow. On return all events but the last one are published.
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
    // Of no type that whoever waits for it would have in its own.
    match execute(start).boxed().await {
        Ok(end) => Ok(end),
        Err(RunError::Journal(error)) => Err(Unended::Turn(error.into())),
        Err(RunError::Sink(problem)) => Err(Unended::Turn(sink.why(problem))),
        Err(RunError::Waits(usage)) => Err(Unended::Waits(sink.told(), usage)),
    }
}
