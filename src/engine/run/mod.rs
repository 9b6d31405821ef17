//! Workflow runs: the handling of a run job, from the acquisition of the lease to the [`Change`] that the commit
//! writes, as [`crate::turn`] does it for a session's jobs.
//!
//! A run in its own lane takes this path:
//!
//! - [`run`] handles the job, and [`give_up`] ends a run that cannot continue.
//! - [`earlier`] selects the recorded steps with which a resumed or restarted run continues.
//! - [`beginning`] records the definitions and the input as the first step. It finds the definitions in [`stored`](crate::execution::stored).
//! - [`mod@work`] executes the workflow, and [`sink`] publishes its events.
//! - [`ending`] makes the final record, and [`conversation`] adds the result to the session's history.
//!
//! [`inline`] runs a workflow within a session's turn, for a FLOW action, and [`speech`] publishes its output in
//! chunks. [`timeline`] shows a run's stages from its steps. [`folder`] registers the files of `workflows_dir`.
//!
//! The last event of a run is in the outbox of the commit, so it is published only after the end is durable.

mod beginning;
mod conversation;
mod earlier;
mod ending;
mod folder;
mod inline;
mod sink;
mod speech;
pub mod timeline;
mod work;

pub use beginning::Beginning;
pub use ending::last_event_id;
pub use folder::{Registered, known_ids, register_folder, runnables};

pub(crate) use conversation::is_notice;
pub use earlier::check as check_stage;
pub(crate) use ending::{LEFT, UNANSWERED};
pub(crate) use inline::{Inline, InlineEnd, Suspended, abandon, break_off};

use crate::budget::Purse;
use crate::execution::{CancelReason, Services, TurnError, TurnId};
use crate::journal::{Guard, Journal};
use crate::workflow::asking::Asking;
use crate::workflow::orchestration::event::RunEvent;
use crate::workflow::orchestration::{RunEnd, broken_off};
use beginning::{BEGIN, Begun};
use definitions::workflow::definition::Workflow;
use ending::{active, again, completed, failed, status_of, used};
use sink::{Outlet, Published};
use std::collections::HashMap;
use std::sync::Arc;
use storage::store::records::{Change, Record, TimerChange};
use tracing::{debug, warn};
use types::event::OutEvent;
use types::job::{Job, JobBody};
use types::run::{RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::session::{Session, Status, WorkflowState};
use types::step::StepRecord;
use types::timestamp::Timestamp;
use types::turn::{Outcome, TurnRecord};
use work::{Unended, Working, work};

/// Number of steps copied from an earlier turn in one write.
const COPIED: usize = 200;

/// Input of [`run`] and [`give_up`].
#[derive(Clone)]
pub struct RunInput {
    /// The run's internal session, as the lease holder read it.
    pub session: Session,
    /// The job, usually one of the type `run`.
    pub job: Job,
    /// Identity of this turn of the run's lane.
    pub turn: TurnId,
    /// True if an earlier attempt started this turn, so its journal may contain steps.
    pub resumed: bool,
    /// Checks that this worker still holds the lease, and that the turn is not cancelled.
    pub guard: Guard,
}

/// Handles a job of a run's lane and returns the change to commit.
pub async fn run(services: &Services, input: Box<RunInput>) -> Result<Change, TurnError> {
    let turn = RunTurn::open(services, input);
    match turn.asked() {
        Some(asked) => Box::pin(turn.run(&asked)).await,
        // Any other job, such as an operator's command, arrives after the run has ended.
        None => Ok(turn.change(Outcome::Noop, None, Ended::default())),
    }
}

/// Ends a run that cannot continue, as failed or cancelled. Does not replay the journal. Does nothing if the run has
/// already ended.
pub async fn give_up(services: &Services, input: Box<RunInput>, reason: CancelReason) -> Result<Change, TurnError> {
    let turn = RunTurn::open(services, input);
    let Some(asked) = turn.asked() else { return Ok(turn.change(Outcome::Noop, None, Ended::default())) };
    let known = services.store.run(turn.run_id()).await?;
    if !turn.may_run(&asked, known.as_ref()) {
        return Ok(turn.change(Outcome::Noop, None, Ended::default()));
    }
    warn!(run_id = turn.run_id(), turn_id = turn.turn_id(), %reason, "run abandoned");
    let record = turn.record(&asked, known.as_ref(), String::new());
    let steps = services.store.steps(turn.run_id(), turn.turn_id()).await?;
    let failure = RunFailure { path: String::new(), cause: reason.to_string(), attempts: 1 };
    let event = broken_off(turn.run_id(), &reason.to_string());
    let status = status_of(&reason);
    let usage = if record.usage == RunUsage::default() { used(&steps) } else { record.usage };
    let record = RunRecord { error: Some(failure), ended_at: Some(services.clock.now()), status, usage, ..record };
    let outbox = vec![turn.last_event(&asked, event)];
    let ended = Ended { record: Some(record), outbox, reason: Some(reason.to_string()) };
    let journal = Journal::looked_at(Arc::clone(&services.store), (turn.run_id(), turn.turn_id()), steps);
    turn.disregard_earlier(&journal, true);
    Ok(turn.change(Outcome::Cancelled, Some(&journal), ended))
}

/// Fields of a run job.
#[derive(Clone, Copy)]
struct Asked<'j> {
    workflow_id: &'j str,
    query: &'j str,
    origin_session: Option<&'j str>,
    user_id: Option<&'j str>,
    channel: Option<&'j str>,
    from_run: Option<&'j str>,
    from_stage: Option<&'j str>,
}

/// Outcome of a turn of a run's lane.
#[derive(Default)]
struct Ended {
    record: Option<RunRecord>,
    outbox: Vec<OutEvent>,
    /// Why the turn has the outcome `cancelled`.
    reason: Option<String>,
}

/// A running turn of a run's lane.
struct RunTurn<'a> {
    services: &'a Services,
    session: Session,
    job: Job,
    turn: TurnId,
    resumed: bool,
    guard: Guard,
    attempt: u32,
    begun_at: Timestamp,
}

impl<'a> RunTurn<'a> {
    fn open(services: &'a Services, input: Box<RunInput>) -> Self {
        let RunInput { session, job, turn, resumed, guard } = *input;
        let (attempt, begun_at) =
            session.turn.as_ref().map_or((1, services.clock.now()), |turn| (turn.attempt, turn.at));
        Self { services, session, job, turn, resumed, guard, attempt, begun_at }
    }

    fn run_id(&self) -> &str {
        &self.session.session_id
    }

    fn turn_id(&self) -> &str {
        &self.turn.id
    }

    fn asked(&self) -> Option<Asked<'_>> {
        match &self.job.body {
            JobBody::Run { workflow_id, query, origin_session, user_id, channel, from_run, from_stage } => {
                Some(Asked {
                    workflow_id,
                    query,
                    origin_session: origin_session.as_deref(),
                    user_id: user_id.as_deref(),
                    channel: channel.as_deref(),
                    from_run: from_run.as_deref(),
                    from_stage: from_stage.as_deref(),
                })
            }
            _ => None,
        }
    }

    /// True if the job resumes this run. False for a new run and for a restart of another run.
    fn goes_on(&self, asked: &Asked<'_>) -> bool {
        asked.from_run == Some(self.run_id())
    }

    async fn run(&self, asked: &Asked<'_>) -> Result<Change, TurnError> {
        let store = &self.services.store;
        let known = store.run(self.run_id()).await?;
        if !self.may_run(asked, known.as_ref()) {
            debug!(run_id = self.run_id(), "job ignored, the run has already ended");
            return Ok(self.change(Outcome::Noop, None, Ended::default()));
        }
        let record = self.record(asked, known.as_ref(), String::new());
        if let Some(problem) = self.cancelled_before(known.as_ref()) {
            return Ok(self.never_begun(asked, record, problem));
        }
        if let Err(problem) = self.take_over(asked, known.as_ref()).await? {
            return Ok(self.failed(asked, record, problem));
        }
        let ids = (self.run_id(), self.turn_id());
        let again = self.resumed || asked.from_run.is_some();
        let guard = (self.session.epoch, self.guard.clone());
        let journal = Journal::open(self.services.place(), ids, guard, again).await?;
        let asks = (asked.query, asked.origin_session);
        self.disregard_earlier(&journal, self.resumed);
        let begun = match beginning::begin(self.services, &journal, asked.workflow_id, asks).await? {
            Ok(begun) => begun,
            Err(problem) => return Ok(self.failed(asked, record, problem)),
        };
        let hash = begun.beginning.manifest.hash().to_owned();
        let record = RunRecord { hash, ..record };
        store.update_run(record.clone(), self.session.epoch).await?;
        self.execute(asked, begun, (journal.clone(), record)).await.map(|ended| {
            let outcome = if ended.reason.is_some() { Outcome::Cancelled } else { Outcome::Flow };
            self.change(outcome, Some(&journal), ended)
        })
    }

    /// True if the run has not ended, or this turn ended it, or the job resumes it after a failure or a cancellation.
    fn may_run(&self, asked: &Asked<'_>, known: Option<&RunRecord>) -> bool {
        let Some(known) = known else { return true };
        let may_go_on = matches!(known.status, RunStatus::Failed | RunStatus::Cancelled) && self.goes_on(asked);
        known.status == RunStatus::Pending || known.turn_id == self.turn_id() || may_go_on
    }

    /// Returns the cause if the run was cancelled before it started.
    fn cancelled_before(&self, known: Option<&RunRecord>) -> Option<String> {
        let known = known.filter(|known| known.status == RunStatus::Cancelled && known.started_at.is_none())?;
        let cause = known.error.as_ref().map_or("cancelled", |error| &error.cause);
        (known.turn_id == self.turn_id()).then(|| cause.to_owned())
    }

    /// Builds the change for a run that was cancelled before it started.
    fn never_begun(&self, asked: &Asked<'_>, record: RunRecord, cause: String) -> Change {
        let outbox = vec![self.last_event(asked, broken_off(self.run_id(), &cause))];
        let reason = Some(cause.clone());
        let error = Some(RunFailure { path: String::new(), cause, attempts: 1 });
        let (status, ended_at) = (RunStatus::Cancelled, Some(self.services.clock.now()));
        let record = Some(RunRecord { status, error, ended_at, started_at: None, ..record });
        self.change(Outcome::Cancelled, None, Ended { record, outbox, reason })
    }

    /// Builds the run's record with the status `running`.
    fn record(&self, asked: &Asked<'_>, known: Option<&RunRecord>, hash: String) -> RunRecord {
        let known_or = |of: fn(&RunRecord) -> Option<Timestamp>| known.and_then(of);
        RunRecord {
            run_id: self.run_id().to_owned(),
            workflow_id: asked.workflow_id.to_owned(),
            hash: known.map_or(hash, |known| known.hash.clone()),
            status: RunStatus::Running,
            query: asked.query.to_owned(),
            origin_session: asked.origin_session.map(str::to_owned),
            user_id: asked.user_id.map(str::to_owned),
            channel: self.channel(asked),
            lane: self.run_id().to_owned(),
            turn_id: self.turn_id().to_owned(),
            prefix: String::new(),
            output: None,
            error: None,
            usage: RunUsage::default(),
            from_run: known.map_or(asked.from_run, |known| known.from_run.as_deref()).map(str::to_owned),
            from_stage: known.map_or(asked.from_stage, |known| known.from_stage.as_deref()).map(str::to_owned),
            created_at: known_or(|known| Some(known.created_at)).unwrap_or(self.begun_at),
            started_at: known_or(|known| known.started_at).or(Some(self.begun_at)),
            ended_at: None,
        }
    }

    fn channel(&self, asked: &Asked<'_>) -> String {
        asked.channel.filter(|channel| !channel.is_empty()).unwrap_or("default").to_owned()
    }

    /// Address of the run's events.
    fn outlet(&self, asked: &Asked<'_>) -> Outlet {
        Outlet {
            channel: self.channel(asked),
            stream: asked.origin_session.unwrap_or(self.run_id()).to_owned(),
            run_id: self.run_id().to_owned(),
            turn_id: self.turn_id().to_owned(),
        }
    }

    /// Copies the recorded steps with which a resumed or restarted run continues into this turn's journal. Durable on
    /// return. The step `begin` is written last, so its presence shows that the copy is complete. The inner error
    /// fails the run.
    async fn take_over(&self, asked: &Asked<'_>, known: Option<&RunRecord>) -> Result<Result<(), String>, TurnError> {
        let (Some(from_run), store) = (asked.from_run, &self.services.store) else { return Ok(Ok(())) };
        let is_begin = |step: &StepRecord| step.key == BEGIN;
        if self.resumed && store.steps(self.run_id(), self.turn_id()).await?.iter().any(is_begin) {
            return Ok(Ok(()));
        }
        let source = if self.goes_on(asked) { known.cloned() } else { store.run(from_run).await? };
        let Some(source) = source else { return Ok(Err(format!("run `{from_run}` no longer exists"))) };
        let steps = store.steps(&source.lane, &source.turn_id).await?;
        let steps = earlier::of_run(steps, &source.prefix);
        let mut steps = match (self.goes_on(asked), asked.from_stage) {
            (true, _) => earlier::resumed(steps, source.error.as_ref().map_or("", |error| &error.path)),
            (false, None) => steps.into_iter().filter(is_begin).collect(),
            (false, Some(stage)) => match self.before(steps, stage).await? {
                Ok(steps) => steps,
                Err(problem) => return Ok(Err(format!("{problem} (run `{from_run}`)"))),
            },
        };
        steps.sort_by_key(is_begin);
        for steps in steps.chunks(COPIED) {
            let request = Record {
                session_id: self.run_id().to_owned(),
                epoch: self.session.epoch,
                turn_id: self.turn_id().to_owned(),
                steps: steps.iter().cloned().map(Arc::new).collect(),
                status: None,
            };
            store.record(request).await?;
        }
        Ok(Ok(()))
    }

    /// Selects the `steps` that do not depend on `stage`. The inner error fails the run.
    async fn before(&self, steps: Vec<StepRecord>, stage: &str) -> Result<Result<Vec<StepRecord>, String>, TurnError> {
        let Some(beginning) = Beginning::of(&steps, "") else {
            return Ok(Err("its first step, which has its definitions, is no longer stored".to_owned()));
        };
        let pinned = match beginning::load(self.services, &beginning.manifest).await? {
            Ok(pinned) => pinned,
            Err(problem) => return Ok(Err(problem)),
        };
        let by_id: HashMap<String, Arc<Workflow>> =
            pinned.definitions().0.map(|record| (record.id().to_owned(), Arc::clone(&record.workflow))).collect();
        Ok(Ok(earlier::restarted(steps, &pinned.root().workflow, &|id| by_id.get(id).cloned(), stage)))
    }

    async fn execute(
        &self,
        asked: &Asked<'_>,
        begun: Begun,
        (journal, record): (Journal, RunRecord),
    ) -> Result<Ended, TurnError> {
        let outlet = self.outlet(asked);
        let published = match self.resumed || self.goes_on(asked) {
            true => sink::published(self.services, &outlet, (self.session.epoch, &self.guard)).await?,
            false => Published::default(),
        };
        let end = work(
            self.services,
            outlet,
            begun,
            Working {
                run_id: self.run_id(),
                models: self.services.models.within(self.purse(&journal)),
                elapsed: active(&journal, self.begun_at, self.resumed),
                journal,
                guard: &self.guard,
                published,
                said: None,
                asking: Arc::new(Asking::nobody()),
            },
        );
        let RunEnd { outcome, usage, event } = end.await.map_err(Unended::of_own)?;
        let (outbox, now) = (vec![self.last_event(asked, event)], self.services.clock.now());
        Ok(match outcome {
            Ok(output) => {
                conversation::tell(self.services, &self.guard, &record, &output).await?;
                Ended { record: Some(completed(record, (&output, usage), now)), outbox, reason: None }
            }
            Err(failure) => {
                let reason = Some(CancelReason::new("failed", failure.to_string()).to_string());
                Ended { record: Some(failed(record, (failure, usage), now)), outbox, reason }
            }
        })
    }

    /// Builds the change for a run that cannot start.
    fn failed(&self, asked: &Asked<'_>, record: RunRecord, problem: String) -> Change {
        let outbox = vec![self.last_event(asked, broken_off(self.run_id(), &problem))];
        let reason = CancelReason::new("failed", problem.clone()).to_string();
        let failure = RunFailure { path: String::new(), cause: problem, attempts: 1 };
        let record = Some(failed(record, (failure, RunUsage::default()), self.services.clock.now()));
        self.change(Outcome::Cancelled, None, Ended { record, outbox, reason: Some(reason) })
    }

    /// Builds the run's last event. After a resume its id contains the turn's id, because the run has already
    /// published a last event.
    fn last_event(&self, asked: &Asked<'_>, event: RunEvent) -> OutEvent {
        let event_id = match self.goes_on(asked) {
            true => again(&event.event_id, self.turn_id()),
            false => event.event_id.clone(),
        };
        let event = RunEvent { event_id, ..event };
        self.outlet(asked).publication(&event, self.services.queue.max_payload())
    }

    fn purse(&self, journal: &Journal) -> Arc<Purse> {
        Purse::of_run(&self.services.budgets, journal.clone())
    }

    /// Excludes copied steps from this turn's usage, because the earlier turn has already counted them. Without
    /// `has_own` all recorded steps are copies; else only those from before this turn's start.
    fn disregard_earlier(&self, journal: &Journal, has_own: bool) {
        if self.asked().is_some_and(|asked| asked.from_run.is_some()) {
            let begun_at = if has_own { self.begun_at } else { Timestamp::from_millis(i64::MAX) };
            journal.disregard(begun_at);
        }
    }

    fn change(&self, outcome: Outcome, journal: Option<&Journal>, ended: Ended) -> Change {
        let Ended { record, outbox, reason } = ended;
        let session = &self.session;
        let state = &session.workflow_state;
        let hash = record.as_ref().map_or_else(|| state.hash.clone(), |record| record.hash.clone());
        let spent = journal.map(Journal::spending).unwrap_or_default();
        let turn = TurnRecord {
            session_id: session.session_id.clone(),
            turn_id: self.turn_id().to_owned(),
            job: self.job.clone(),
            statuses: Vec::new(),
            outcome,
            reason,
            attempts: self.attempt,
            queued_at: Some(self.turn.at),
            started_at: self.begun_at,
            committed_at: self.services.clock.now(),
            hash: hash.clone(),
            actions: Vec::new(),
            tokens: spent.total,
        };
        Change {
            agent_id: self.asked().map_or_else(|| session.agent_id.clone(), |asked| asked.workflow_id.to_owned()),
            user_id: self.asked().and_then(|asked| asked.user_id).unwrap_or(&session.user_id).to_owned(),
            channel: session.channel.clone(),
            workflow_state: WorkflowState { hash, need_greeting: false, status: Status::Ready },
            status_reason: None,
            profile: None,
            history: Vec::new(),
            history_drop: 0,
            jobs: vec![self.job.job_id.clone()],
            timer_generation: session.timer_generation,
            timers: TimerChange::Keep,
            closed_at: None,
            handoff: None,
            tokens: session.tokens.saturating_add(spent.total),
            days: journal.map(|journal| self.purse(journal).days(&spent)).unwrap_or_default(),
            waiting: None,
            turn,
            run: record,
            steps: journal.map(Journal::take_notes).unwrap_or_default(),
            outbox: outbox.into(),
        }
    }
}
