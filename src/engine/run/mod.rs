//! Workflow runs: the handling of a run job, from the acquisition of the lease to the [`Change`] that the commit
//! writes, as [`crate::turn`] does it for a session's jobs.
//!
//! A run in its own lane takes this path:
//!
//! - [`run`] handles the job, and [`give_up`] ends a run that cannot continue.
//! - [`step_reuse`] selects the recorded steps with which a resumed or restarted run continues.
//! - [`start_record`] records the definitions and the input as the first step. It finds the definitions in
//!   [`stored`](crate::execution::stored).
//! - [`mod@execute`] executes the workflow, and [`event_publisher`] publishes its events.
//! - [`ending`] makes the final record, and [`conversation`] adds the result to the session's history.
//!
//! [`nested_run`] runs a workflow within a session's turn, for a FLOW action, and [`output_chunks`] publishes its
//! output in chunks. [`timeline`] shows a run's stages from its steps. [`folder`] registers the files of
//! `workflows_dir`.
//!
//! The last event of a run is in the outbox of the commit, so it is published only after the end is durable.

mod conversation;
mod ending;
mod event_publisher;
mod execute;
mod folder;
mod nested_run;
mod output_chunks;
mod start_record;
mod step_reuse;
pub mod timeline;

pub use ending::last_event_id;
pub use folder::{Registered, known_ids, register_folder, runnables};
pub use start_record::StartRecord;

pub(crate) use conversation::is_result_job;
pub(crate) use ending::{FLOW_LEFT, FLOW_UNANSWERED};
pub(crate) use nested_run::{NestedRun, NestedRunEnd, SuspendedRun, abandon_run, end_runs_of_turn};
pub use step_reuse::check_stage;

use crate::budget::TokenMeter;
use crate::execution::{CancelReason, Services, TurnError, TurnId};
use crate::journal::{Guard, Journal};
use crate::workflow::asking::Asking;
use crate::workflow::orchestration::event::RunEvent;
use crate::workflow::orchestration::{RunEnd, failed_event};
use definitions::workflow::definition::Workflow;
use ending::{completed, execution_time, failed, resumed_event_id, status_for, usage_of};
use event_publisher::{EventAddress, PublishedEvents};
use execute::{RunContext, RunInterruption, execute_workflow};
use start_record::{BEGIN_KEY, LoadedRun};
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

/// Number of steps copied from an earlier turn in one write.
const COPY_BATCH: usize = 200;

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
    match turn.run_job() {
        Some(run_job) => Box::pin(turn.run(&run_job)).await,
        // Any other job, such as an operator's command, arrives after the run has ended.
        None => Ok(turn.change(Outcome::Noop, None, RunTurnOutcome::default())),
    }
}

/// Ends a run that cannot continue, as failed or cancelled. Does not replay the journal. Does nothing if the run has
/// already ended.
pub async fn give_up(services: &Services, input: Box<RunInput>, reason: CancelReason) -> Result<Change, TurnError> {
    let turn = RunTurn::open(services, input);
    let Some(run_job) = turn.run_job() else { return Ok(turn.change(Outcome::Noop, None, RunTurnOutcome::default())) };
    let known = services.store.run(turn.run_id()).await?;
    if !turn.may_run(&run_job, known.as_ref()) {
        return Ok(turn.change(Outcome::Noop, None, RunTurnOutcome::default()));
    }
    warn!(run_id = turn.run_id(), turn_id = turn.turn_id(), %reason, "run abandoned");
    let record = turn.record(&run_job, known.as_ref(), String::new());
    let steps = services.store.steps(turn.run_id(), turn.turn_id()).await?;
    let failure = RunFailure { path: String::new(), cause: reason.to_string(), attempts: 1 };
    let event = failed_event(turn.run_id(), &reason.to_string());
    let status = status_for(&reason);
    let usage = if record.usage == RunUsage::default() { usage_of(&steps) } else { record.usage };
    let record = RunRecord { error: Some(failure), ended_at: Some(services.clock.now()), status, usage, ..record };
    let outbox = vec![turn.last_event(&run_job, event)];
    let ended = RunTurnOutcome { record: Some(record), outbox, reason: Some(reason.to_string()) };
    let journal = Journal::read_only(Arc::clone(&services.store), (turn.run_id(), turn.turn_id()), steps);
    turn.exclude_earlier(&journal, true);
    Ok(turn.change(Outcome::Cancelled, Some(&journal), ended))
}

/// Fields of a run job.
#[derive(Clone, Copy)]
struct RunJob<'j> {
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
struct RunTurnOutcome {
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
    started_at: Timestamp,
}

impl<'a> RunTurn<'a> {
    fn open(services: &'a Services, input: Box<RunInput>) -> Self {
        let RunInput { session, job, turn, resumed, guard } = *input;
        let (attempt, started_at) =
            session.turn.as_ref().map_or((1, services.clock.now()), |turn| (turn.attempt, turn.at));
        Self { services, session, job, turn, resumed, guard, attempt, started_at }
    }

    fn run_id(&self) -> &str {
        &self.session.session_id
    }

    fn turn_id(&self) -> &str {
        &self.turn.id
    }

    fn run_job(&self) -> Option<RunJob<'_>> {
        match &self.job.body {
            JobBody::Run { workflow_id, query, origin_session, user_id, channel, from_run, from_stage } => {
                Some(RunJob {
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
    fn is_resume(&self, run_job: &RunJob<'_>) -> bool {
        run_job.from_run == Some(self.run_id())
    }

    async fn run(&self, run_job: &RunJob<'_>) -> Result<Change, TurnError> {
        let store = &self.services.store;
        let known = store.run(self.run_id()).await?;
        if !self.may_run(run_job, known.as_ref()) {
            debug!(run_id = self.run_id(), "job ignored, the run has already ended");
            return Ok(self.change(Outcome::Noop, None, RunTurnOutcome::default()));
        }
        let record = self.record(run_job, known.as_ref(), String::new());
        if let Some(problem) = self.cancelled_before(known.as_ref()) {
            return Ok(self.change_for_unstarted(run_job, record, problem));
        }
        if let Err(problem) = self.copy_steps(run_job, known.as_ref()).await? {
            return Ok(self.failed(run_job, record, problem));
        }
        let ids = (self.run_id(), self.turn_id());
        let again = self.resumed || run_job.from_run.is_some();
        let guard = (self.session.epoch, self.guard.clone());
        let journal = Journal::open(self.services.store_and_clock(), ids, guard, again).await?;
        let asks = (run_job.query, run_job.origin_session);
        self.exclude_earlier(&journal, self.resumed);
        let loaded = match start_record::start(self.services, &journal, run_job.workflow_id, asks).await? {
            Ok(loaded) => loaded,
            Err(problem) => return Ok(self.failed(run_job, record, problem)),
        };
        let hash = loaded.start_record.manifest.hash().to_owned();
        let record = RunRecord { hash, ..record };
        store.update_run(record.clone(), self.session.epoch).await?;
        self.execute(run_job, loaded, (journal.clone(), record)).await.map(|ended| {
            let outcome = if ended.reason.is_some() { Outcome::Cancelled } else { Outcome::Flow };
            self.change(outcome, Some(&journal), ended)
        })
    }

    /// True if the run has not ended, or this turn ended it, or the job resumes it after a failure or a cancellation.
    fn may_run(&self, run_job: &RunJob<'_>, known: Option<&RunRecord>) -> bool {
        let Some(known) = known else { return true };
        let may_go_on = matches!(known.status, RunStatus::Failed | RunStatus::Cancelled) && self.is_resume(run_job);
        known.status == RunStatus::Pending || known.turn_id == self.turn_id() || may_go_on
    }

    /// Returns the cause if the run was cancelled before it started.
    fn cancelled_before(&self, known: Option<&RunRecord>) -> Option<String> {
        let known = known.filter(|known| known.status == RunStatus::Cancelled && known.started_at.is_none())?;
        let cause = known.error.as_ref().map_or("cancelled", |error| &error.cause);
        (known.turn_id == self.turn_id()).then(|| cause.to_owned())
    }

    /// Builds the change for a run that was cancelled before it started.
    fn change_for_unstarted(&self, run_job: &RunJob<'_>, record: RunRecord, cause: String) -> Change {
        let outbox = vec![self.last_event(run_job, failed_event(self.run_id(), &cause))];
        let reason = Some(cause.clone());
        let error = Some(RunFailure { path: String::new(), cause, attempts: 1 });
        let (status, ended_at) = (RunStatus::Cancelled, Some(self.services.clock.now()));
        let record = Some(RunRecord { status, error, ended_at, started_at: None, ..record });
        self.change(Outcome::Cancelled, None, RunTurnOutcome { record, outbox, reason })
    }

    /// Builds the run's record with the status `running`.
    fn record(&self, run_job: &RunJob<'_>, known: Option<&RunRecord>, hash: String) -> RunRecord {
        let known_or = |of: fn(&RunRecord) -> Option<Timestamp>| known.and_then(of);
        RunRecord {
            run_id: self.run_id().to_owned(),
            workflow_id: run_job.workflow_id.to_owned(),
            hash: known.map_or(hash, |known| known.hash.clone()),
            status: RunStatus::Running,
            query: run_job.query.to_owned(),
            origin_session: run_job.origin_session.map(str::to_owned),
            user_id: run_job.user_id.map(str::to_owned),
            channel: self.channel(run_job),
            lane: self.run_id().to_owned(),
            turn_id: self.turn_id().to_owned(),
            prefix: String::new(),
            output: None,
            error: None,
            usage: RunUsage::default(),
            from_run: known.map_or(run_job.from_run, |known| known.from_run.as_deref()).map(str::to_owned),
            from_stage: known.map_or(run_job.from_stage, |known| known.from_stage.as_deref()).map(str::to_owned),
            created_at: known_or(|known| Some(known.created_at)).unwrap_or(self.started_at),
            started_at: known_or(|known| known.started_at).or(Some(self.started_at)),
            ended_at: None,
        }
    }

    fn channel(&self, run_job: &RunJob<'_>) -> String {
        run_job.channel.filter(|channel| !channel.is_empty()).unwrap_or("default").to_owned()
    }

    /// Address of the run's events.
    fn event_address(&self, run_job: &RunJob<'_>) -> EventAddress {
        EventAddress {
            channel: self.channel(run_job),
            stream: run_job.origin_session.unwrap_or(self.run_id()).to_owned(),
            run_id: self.run_id().to_owned(),
            turn_id: self.turn_id().to_owned(),
        }
    }

    /// Copies the recorded steps with which a resumed or restarted run continues into this turn's journal. Durable on
    /// return. The step `begin` is written last, so its presence shows that the copy is complete. The inner error
    /// fails the run.
    async fn copy_steps(
        &self,
        run_job: &RunJob<'_>,
        known: Option<&RunRecord>,
    ) -> Result<Result<(), String>, TurnError> {
        let (Some(from_run), store) = (run_job.from_run, &self.services.store) else { return Ok(Ok(())) };
        let is_begin = |step: &StepRecord| step.key == BEGIN_KEY;
        if self.resumed && store.steps(self.run_id(), self.turn_id()).await?.iter().any(is_begin) {
            return Ok(Ok(()));
        }
        let source = if self.is_resume(run_job) { known.cloned() } else { store.run(from_run).await? };
        let Some(source) = source else { return Ok(Err(format!("run `{from_run}` no longer exists"))) };
        let steps = store.steps(&source.lane, &source.turn_id).await?;
        let steps = step_reuse::steps_of_run(steps, &source.prefix);
        let mut steps = match (self.is_resume(run_job), run_job.from_stage) {
            (true, _) => step_reuse::steps_for_resume(steps, source.error.as_ref().map_or("", |error| &error.path)),
            (false, None) => steps.into_iter().filter(is_begin).collect(),
            (false, Some(stage)) => match self.steps_before(steps, stage).await? {
                Ok(steps) => steps,
                Err(problem) => return Ok(Err(format!("{problem} (run `{from_run}`)"))),
            },
        };
        steps.sort_by_key(is_begin);
        for steps in steps.chunks(COPY_BATCH) {
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
    async fn steps_before(
        &self,
        steps: Vec<StepRecord>,
        stage: &str,
    ) -> Result<Result<Vec<StepRecord>, String>, TurnError> {
        let Some(start_record) = StartRecord::from_steps(&steps, "") else {
            return Ok(Err("its first step, which has its definitions, is no longer stored".to_owned()));
        };
        let resolved = match start_record::load(self.services, &start_record.manifest).await? {
            Ok(resolved) => resolved,
            Err(problem) => return Ok(Err(problem)),
        };
        let by_id: HashMap<String, Arc<Workflow>> =
            resolved.definitions().0.map(|record| (record.id().to_owned(), Arc::clone(&record.workflow))).collect();
        Ok(Ok(step_reuse::steps_for_restart(steps, &resolved.root().workflow, &|id| by_id.get(id).cloned(), stage)))
    }

    async fn execute(
        &self,
        run_job: &RunJob<'_>,
        loaded: LoadedRun,
        (journal, record): (Journal, RunRecord),
    ) -> Result<RunTurnOutcome, TurnError> {
        let address = self.event_address(run_job);
        let published = match self.resumed || self.is_resume(run_job) {
            true => event_publisher::read_published(self.services, &address, (self.session.epoch, &self.guard)).await?,
            false => PublishedEvents::default(),
        };
        let end = execute_workflow(
            self.services,
            address,
            loaded,
            RunContext {
                run_id: self.run_id(),
                models: self.services.models.limited_by(self.token_meter(&journal)),
                elapsed: execution_time(&journal, self.started_at, self.resumed),
                journal,
                guard: &self.guard,
                published,
                chunks: None,
                asking: Arc::new(Asking::without_user()),
            },
        );
        let RunEnd { outcome, usage, event } = end.await.map_err(RunInterruption::into_turn_error)?;
        let (outbox, now) = (vec![self.last_event(run_job, event)], self.services.clock.now());
        Ok(match outcome {
            Ok(output) => {
                conversation::publish_result(self.services, &self.guard, &record, &output).await?;
                RunTurnOutcome { record: Some(completed(record, (&output, usage), now)), outbox, reason: None }
            }
            Err(failure) => {
                let reason = Some(CancelReason::new("failed", failure.to_string()).to_string());
                RunTurnOutcome { record: Some(failed(record, (failure, usage), now)), outbox, reason }
            }
        })
    }

    /// Builds the change for a run that cannot start.
    fn failed(&self, run_job: &RunJob<'_>, record: RunRecord, problem: String) -> Change {
        let outbox = vec![self.last_event(run_job, failed_event(self.run_id(), &problem))];
        let reason = CancelReason::new("failed", problem.clone()).to_string();
        let failure = RunFailure { path: String::new(), cause: problem, attempts: 1 };
        let record = Some(failed(record, (failure, RunUsage::default()), self.services.clock.now()));
        self.change(Outcome::Cancelled, None, RunTurnOutcome { record, outbox, reason: Some(reason) })
    }

    /// Builds the run's last event. After a resume its id contains the turn's id, because the run has already
    /// published a last event.
    fn last_event(&self, run_job: &RunJob<'_>, event: RunEvent) -> OutEvent {
        let event_id = match self.is_resume(run_job) {
            true => resumed_event_id(&event.event_id, self.turn_id()),
            false => event.event_id.clone(),
        };
        let event = RunEvent { event_id, ..event };
        self.event_address(run_job).publication(&event, self.services.queue.max_payload())
    }

    fn token_meter(&self, journal: &Journal) -> Arc<TokenMeter> {
        TokenMeter::for_run(&self.services.budgets, journal.clone())
    }

    /// Excludes copied steps from this turn's usage, because the earlier turn has already counted them. Without
    /// `has_own` all recorded steps are copies; else only those from before this turn's start.
    fn exclude_earlier(&self, journal: &Journal, has_own: bool) {
        if self.run_job().is_some_and(|run_job| run_job.from_run.is_some()) {
            let started_at = if has_own { self.started_at } else { Timestamp::from_millis(i64::MAX) };
            journal.exclude_before(started_at);
        }
    }

    fn change(&self, outcome: Outcome, journal: Option<&Journal>, ended: RunTurnOutcome) -> Change {
        let RunTurnOutcome { record, outbox, reason } = ended;
        let session = &self.session;
        let state = &session.workflow_state;
        let hash = record.as_ref().map_or_else(|| state.hash.clone(), |record| record.hash.clone());
        let usage = journal.map(Journal::usage).unwrap_or_default();
        let turn = TurnRecord {
            session_id: session.session_id.clone(),
            turn_id: self.turn_id().to_owned(),
            job: self.job.clone(),
            statuses: Vec::new(),
            outcome,
            reason,
            attempts: self.attempt,
            queued_at: Some(self.turn.at),
            started_at: self.started_at,
            committed_at: self.services.clock.now(),
            hash: hash.clone(),
            actions: Vec::new(),
            tokens: usage.total,
        };
        Change {
            agent_id: self.run_job().map_or_else(|| session.agent_id.clone(), |run_job| run_job.workflow_id.to_owned()),
            user_id: self.run_job().and_then(|run_job| run_job.user_id).unwrap_or(&session.user_id).to_owned(),
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
            tokens: session.tokens.saturating_add(usage.total),
            days: journal.map(|journal| self.token_meter(journal).days(&usage)).unwrap_or_default(),
            waiting: None,
            turn,
            run: record,
            steps: journal.map(Journal::take_notes).unwrap_or_default(),
            outbox: outbox.into(),
        }
    }
}
