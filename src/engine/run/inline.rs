//! Runs of workflows within a session's turn, for FLOW actions. The run's steps are in the turn's journal, its events
//! go to the session's stream, and its output is the turn's final text.

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

/// Key of the step that records how the run has ended. It is durable before the last event is published.
const END: &str = "end";
/// Limit on the runs that are ended with an abandoned turn, for each status.
const RUNS: usize = 20;

/// A workflow that a FLOW action runs, and the turn in which it runs.
pub(crate) struct Inline<'t> {
    pub(crate) session_id: &'t str,
    /// The turn that started the run.
    pub(crate) turn_id: &'t str,
    pub(crate) channel: &'t str,
    pub(crate) user_id: &'t str,
    pub(crate) epoch: u64,
    /// True if an earlier attempt started the current turn.
    pub(crate) resumed: bool,
    pub(crate) guard: &'t Guard,
    /// The models, limited by the turn's token budget.
    pub(crate) models: Models,
    /// The journal of the turn that started the run.
    pub(crate) journal: Journal,
    /// Key prefix of the run's steps in that journal: `<iteration>/<target>`.
    pub(crate) prefix: String,
    pub(crate) workflow_id: &'t str,
    pub(crate) query: &'t str,
    /// When the run started.
    pub(crate) began_at: Timestamp,
    /// When the current turn started.
    pub(crate) begun_at: Timestamp,
    /// Publishes the output in chunks while the model writes it.
    pub(crate) speech: Arc<Speech>,
    /// The questions that the run puts to the user.
    pub(crate) asking: Arc<Asking>,
    /// State from before the run waited for the answer that it now continues with.
    pub(crate) before: Suspended,
}

/// State of a waiting run that it needs to continue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suspended {
    /// The events published so far, as returned by [`sink::brief`]. The stream may no longer have them when the
    /// answer arrives.
    pub(crate) told: Vec<String>,
    /// Execution time so far in milliseconds, without the time spent waiting.
    pub(crate) active_ms: u64,
}

/// How a call of a run within a turn ends.
pub(crate) enum InlineEnd {
    /// The run has completed with this output.
    Said(String),
    /// The run has failed. The model reads this error.
    Failed(String),
    /// The run waits for the user's answer.
    Waits(Suspended),
}

/// Output of the step that records how the run has ended.
#[derive(Serialize, Deserialize)]
struct End {
    output: Option<String>,
    failure: Option<RunFailure>,
    usage: RunUsage,
    event: RunEvent,
}

impl Inline<'_> {
    /// The run's id. It is the same in every attempt of the turn.
    pub(crate) fn run_id(&self) -> String {
        let digest = md5::compute(format!("{}/{}/{}", self.session_id, self.turn_id, self.prefix));
        format!("r{digest:x}")
    }

    /// Execution time of the run, in this turn and in earlier ones.
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

    /// Executes the run until it completes, fails or asks the user. On return its record is stored and its events are
    /// published.
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

    /// Executes the workflow as one step, so that a run with a recorded end is not executed again.
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

    /// Publishes an event of the run. Durable on return.
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

/// Ends the runs within an abandoned turn. Returns their last events, to be published after the turn's commit. A run
/// whose end is recorded ends as recorded.
pub(crate) async fn break_off(
    services: &Services,
    (session_id, turn_id, epoch): (&str, &str, u64),
    reason: &CancelReason,
) -> Result<Vec<OutEvent>, TurnError> {
    let mut told = Vec::new();
    for status in [RunStatus::Running, RunStatus::Waiting] {
        let origin_session = Some(session_id.to_owned());
        // Selects the runs within the session's turns. The session's other runs have their own lanes.
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

/// Ends the run of an abandoned waiting flow. Returns its last event, to be published after the commit.
pub(crate) async fn abandon(
    services: &Services,
    run_id: &str,
    (epoch, reason): (u64, &CancelReason),
) -> Result<Vec<OutEvent>, TurnError> {
    match services.store.run(run_id).await? {
        // If an earlier attempt of this turn has ended the run, its event is published again with the same id.
        Some(run) => Ok(vec![end_of(services, run, (epoch, reason)).await?]),
        None => Ok(Vec::new()),
    }
}

/// Stores the final record of a run as recorded, else as ended for `reason`, and returns its last event.
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
