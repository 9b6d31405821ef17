//! A workflow within a session's turn: what a FLOW action runs that names one. Its steps are the turn's, its events go to
//! the session's stream, and its output is the turn's final text.

use super::beginning::{self, Begun};
use super::ending::{active, completed, failed, status_of, used};
use super::sink::{self, Outlet, Published};
use super::speech::Output;
use super::work::{Unended, Working, work};
use crate::execution::speech::Speech;
use crate::execution::{CancelReason, Services, TurnError};
use crate::journal::{Done, Durability, Guard, Journal, Label, StepError};
use crate::model::Models;
use crate::workflow::asking::Asking;
use crate::workflow::orchestration::event::RunEvent;
use crate::workflow::orchestration::{RunEnd, broken_off};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use types::event::OutEvent;
use types::run::{RunQuery, RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::timestamp::Timestamp;

/// The key of the step that says how the run has ended: it is told only when it is sure.
const END: &str = "end";
/// Runs of one turn that are looked at when it is given up.
const RUNS: usize = 20;

/// What a FLOW action runs, and where.
pub(crate) struct Inline<'t> {
    pub(crate) session_id: &'t str,
    /// The turn that began it.
    pub(crate) turn_id: &'t str,
    pub(crate) channel: &'t str,
    pub(crate) user_id: &'t str,
    pub(crate) epoch: u64,
    /// An earlier holder began the turn in hand.
    pub(crate) resumed: bool,
    pub(crate) guard: &'t Guard,
    /// The turn's, within its budget.
    pub(crate) models: Models,
    /// The journal of the turn that began it.
    pub(crate) journal: Journal,
    /// Where in it the run's steps are: `<iteration>/<target>`.
    pub(crate) prefix: String,
    pub(crate) workflow_id: &'t str,
    pub(crate) query: &'t str,
    /// When it was begun.
    pub(crate) began_at: Timestamp,
    /// When the turn in hand was begun.
    pub(crate) begun_at: Timestamp,
    /// What says its output while it is made.
    pub(crate) speech: Arc<Speech>,
    /// Whom it may ask.
    pub(crate) asking: Arc<Asking>,
    /// What it did before it waited for the answer that is there now.
    pub(crate) before: Suspended,
}

/// What a run that waits has to know when it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suspended {
    /// Its events so far: by then the stream may have lost them.
    pub(crate) told: Vec<String>,
    /// How long it has run, without the time that it waited.
    pub(crate) active_ms: u64,
}

/// How a run within a turn ends, or does not.
pub(crate) enum InlineEnd {
    /// With its output.
    Said(String),
    /// What the model reads in place of an output.
    Failed(String),
    /// It has asked the user.
    Waits(Suspended),
}

/// How a run has ended, as a step's output.
#[derive(Serialize, Deserialize)]
struct End {
    output: Option<String>,
    failure: Option<RunFailure>,
    usage: RunUsage,
    event: RunEvent,
}

impl Inline<'_> {
    /// Its id, the same however often the turn is repeated.
    pub(crate) fn run_id(&self) -> String {
        let digest = md5::compute(format!("{}/{}/{}", self.session_id, self.turn_id, self.prefix));
        format!("r{digest:x}")
    }

    fn elapsed(&self, journal: &Journal) -> Duration {
        Duration::from_millis(self.before.active_ms) + active(journal, self.begun_at, self.resumed)
    }

    fn outlet(&self) -> Outlet {
        Outlet {
            channel: self.channel.to_owned(),
            stream: self.session_id.to_owned(),
            run_id: self.run_id(),
            turn_id: self.turn_id.to_owned(),
        }
    }

    /// Runs it to its output, to what the model reads in place of one, or to a question.
    pub(crate) async fn run(&self, services: &Services) -> Result<InlineEnd, TurnError> {
        let journal = self.journal.scope(&self.prefix);
        let begun = beginning::begin(services, &journal, self.workflow_id, (self.query, None)).await?;
        let Begun { beginning, pinned } = match begun {
            Ok(begun) => begun,
            Err(problem) => return Ok(InlineEnd::Failed(format!("flow `{}`: {problem}", self.workflow_id))),
        };
        let record = self.record(beginning.manifest.hash());
        let again = journal.has(END, END);
        if !again {
            services.store.update_run(record.clone(), self.epoch).await?;
        }
        let outlet = self.outlet();
        let mut published = match self.resumed {
            true => sink::published(services, &outlet, (self.epoch, self.guard)).await?,
            false => Published::default(),
        };
        published.recall(&self.before.told);
        let end = match self.end(services, &journal, Begun { beginning, pinned }, published.clone()).await {
            Ok(end) => end,
            Err(Unended::Turn(error)) => return Err(error),
            Err(Unended::Waits(told, usage)) => {
                let waits = RunRecord { status: RunStatus::Waiting, usage, ..record };
                services.store.update_run(waits, self.epoch).await?;
                let active_ms = u64::try_from(self.elapsed(&journal).as_millis()).unwrap_or(u64::MAX);
                return Ok(InlineEnd::Waits(Suspended { told, active_ms }));
            }
        };
        if !published.has(&end.event) {
            self.tell(services, &end.event).await?;
        }
        let End { output, failure, usage, .. } = end;
        let now = services.clock.now();
        let (record, outcome) = match failure {
            None => {
                let output = output.unwrap_or_default();
                (completed(record, (&output, usage), now), InlineEnd::Said(output))
            }
            Some(failure) => {
                let problem = format!("flow `{}`: {failure}", self.workflow_id);
                (failed(record, (failure, usage), now), InlineEnd::Failed(problem))
            }
        };
        services.store.update_run(record, self.epoch).await?;
        Ok(outcome)
    }

    /// Executes it unless its end is on record.
    async fn end(
        &self,
        services: &Services,
        journal: &Journal,
        begun: Begun,
        published: Published,
    ) -> Result<End, Unended> {
        let run_id = self.run_id();
        let output = Output::new(Arc::clone(&self.speech), begun.pinned.speakers());
        let working = Working {
            run_id: &run_id,
            journal: journal.clone(),
            models: self.models.clone(),
            guard: self.guard,
            published,
            said: Some(output),
            elapsed: self.elapsed(journal),
            asking: Arc::clone(&self.asking),
        };
        let label = Label { kind: "run", target: self.workflow_id };
        let step = journal.step(END, label, Durability::OnReturn, END, |_| async {
            let RunEnd { outcome, usage, event } = work(services, self.outlet(), begun, working).await?;
            let (output, failure) = match outcome {
                Ok(output) => (Some(output), None),
                Err(failure) => (None, Some(failure)),
            };
            let ok = failure.is_none();
            Ok(Done { ok, ..Done::ok(End { output, failure, usage, event }) })
        });
        match Box::pin(step).await {
            Ok(stepped) => Ok(stepped.output),
            Err(StepError::Journal(error)) => Err(Unended::Turn(error.into())),
            Err(StepError::Operation(unended)) => Err(unended),
        }
    }

    async fn tell(&self, services: &Services, event: &RunEvent) -> Result<(), TurnError> {
        if !self.guard.holds().await? {
            return Err(TurnError::Lost);
        }
        let event = self.outlet().publication(event, services.queue.max_payload());
        Ok(services.queue.emit([event].into()).await?)
    }

    fn record(&self, hash: &str) -> RunRecord {
        RunRecord {
            run_id: self.run_id(),
            workflow_id: self.workflow_id.to_owned(),
            hash: hash.to_owned(),
            status: RunStatus::Running,
            query: self.query.to_owned(),
            origin_session: Some(self.session_id.to_owned()),
            user_id: Some(self.user_id.to_owned()).filter(|user_id| !user_id.is_empty()),
            channel: self.channel.to_owned(),
            lane: self.session_id.to_owned(),
            turn_id: self.turn_id.to_owned(),
            prefix: self.prefix.clone(),
            output: None,
            error: None,
            usage: RunUsage::default(),
            from_run: None,
            from_stage: None,
            created_at: self.began_at,
            started_at: Some(self.began_at),
            ended_at: None,
        }
    }
}

/// Ends the runs within a turn that is given up, and answers what is to be told of it once the turn is committed. One whose
/// end is on record has ended so.
pub(crate) async fn break_off(
    services: &Services,
    (session_id, turn_id, epoch): (&str, &str, u64),
    reason: &CancelReason,
) -> Result<Vec<OutEvent>, TurnError> {
    let mut told = Vec::new();
    for status in [RunStatus::Running, RunStatus::Waiting] {
        let origin_session = Some(session_id.to_owned());
        // Runs of their own that belong to the session are in lanes of their own.
        let lane = Some(session_id.to_owned());
        let query = RunQuery { origin_session, lane, status: Some(status), limit: RUNS, ..RunQuery::default() };
        let found = services.store.runs(query).await?;
        let of_turn = found.into_iter().filter(|run| run.turn_id == turn_id);
        for run in of_turn {
            told.push(end_of(services, run, (epoch, reason)).await?);
        }
    }
    Ok(told)
}

/// Ends the run of a flow that waits and is left, and answers what is to be told of it once that is committed.
pub(crate) async fn abandon(
    services: &Services,
    run_id: &str,
    (epoch, reason): (u64, &CancelReason),
) -> Result<Vec<OutEvent>, TurnError> {
    match services.store.run(run_id).await? {
        // One that has ended by this very turn is told again, under the same id.
        Some(run) => Ok(vec![end_of(services, run, (epoch, reason)).await?]),
        None => Ok(Vec::new()),
    }
}

async fn end_of(
    services: &Services,
    run: RunRecord,
    (epoch, reason): (u64, &CancelReason),
) -> Result<OutEvent, TurnError> {
    let outlet = Outlet {
        channel: run.channel.clone(),
        stream: run.lane.clone(),
        run_id: run.run_id.clone(),
        turn_id: run.turn_id.clone(),
    };
    let steps = services.store.steps(&run.lane, &run.turn_id).await?;
    let key = format!("{}/{END}", run.prefix);
    let end = steps.iter().find(|step| step.key == key);
    let end = end.and_then(|step| serde_json::from_value::<End>(step.output.clone()).ok());
    let now = services.clock.now();
    let (run, event) = match end {
        Some(End { output: Some(output), usage, event, .. }) => (completed(run, (&output, usage), now), event),
        Some(End { failure: Some(failure), usage, event, .. }) => (failed(run, (failure, usage), now), event),
        _ => {
            let event = broken_off(&run.run_id, &reason.to_string());
            let own = super::earlier::of_run(steps, &run.prefix);
            let error = RunFailure { path: String::new(), cause: reason.to_string(), attempts: 1 };
            let (status, usage) = (status_of(reason), used(&own));
            (RunRecord { status, error: Some(error), usage, ended_at: Some(now), ..run }, event)
        }
    };
    services.store.update_run(run, epoch).await?;
    Ok(outlet.publication(&event, services.queue.max_payload()))
}
