//! Workflow runs: the handling of a run job, from the acquisition of the lease to the [`Change`] that the commit
//! writes, as [`crate::turn`] does it for a session's jobs.
//!
//! A run in its own lane takes this path:
//!
//! - [`run`] handles the job, and [`give_up`] ends a run that cannot continue.
//! - [`step_reuse`] selects the recorded steps with which a resumed or restarted run continues, with [`graph_steps`] for
//!   the recoveries and replans of graphs, and [`copied_steps`] copies them.
//! - [`start_record`] records the definitions and the input as the first step. It finds the definitions in
//!   [`stored`](crate::execution::stored).
//! - [`mod@execute`] executes the workflow, [`recorded_end`] records its end, and [`event_publisher`] publishes its events.
//! - [`ending`] makes the final record, [`change`] the change to commit, and [`conversation`] adds the result to the
//!   session's history, or sends the session a notice. [`plan_state`] has the status of a session's plan.
//! - [`waiting`] ends the turn of a run that only waits, and continues the run in the turn of a timer or an answer.
//!
//! [`nested_run`] runs a workflow within a session's turn, for a FLOW action or a coordinator's decision, and
//! [`output_chunks`] publishes its output in chunks. [`recovered_run`] continues a failed run of a plan in a new one.
//! [`timeline`] shows a run's stages from its steps. [`folder`] registers the files of `workflows_dir`.
//!
//! The last event of a run is in the outbox of the commit, so it is published only after the end is durable.

mod change;
mod conversation;
mod copied_steps;
mod ending;
mod event_publisher;
mod execute;
mod folder;
mod graph_steps;
mod nested_run;
mod output_chunks;
pub(crate) mod plan_state;
mod recorded_end;
pub(crate) mod recovered_run;
mod start_record;
mod step_reuse;
pub mod timeline;
mod waiting;

pub use ending::last_event_id;
pub use folder::{Registered, known_ids, register_folder, runnables};
pub use start_record::StartRecord;

pub(crate) use conversation::is_result_job;
pub(crate) use ending::{FLOW_LEFT, FLOW_UNANSWERED};
pub(crate) use nested_run::{NestedRun, NestedRunEnd, Subagent, SuspendedRun, abandon_run, end_runs_of_turn};
pub(crate) use start_record::BEGIN_KEY;
pub use step_reuse::{check_stage, steps_of_run};

use crate::action::call_values::SessionFacts;
use crate::budget::TokenMeter;
use crate::execution::{CancelReason, Services, TurnError, TurnId};
use crate::journal::{Guard, Journal};
use crate::workflow::asking::Asking;
use crate::workflow::orchestration::failed_event;
use crate::workflow::orchestration::graph::progress::GraphProgress;
use crate::workflow::orchestration::pauses::Pauses;
use crate::workflow::orchestration::resolved::ResolveError;
use ending::{execution_time, status_for, usage_of};
use event_publisher::PublishedEvents;
use execute::{RunContext, RunInterruption, execute_workflow};
use recorded_end::{RecordedEnd, execute_as_step};
use start_record::{LoadedRun, Origin, StartError};
use std::sync::Arc;
use storage::store::StoreError;
use storage::store::records::Change;
use tracing::{debug, warn};
use types::event::OutEvent;
use types::job::{Job, JobBody};
use types::outcome::Outcome;
use types::run::{RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::session::{Session, Waiting};
use types::timer::NewTimer;
use types::timestamp::Timestamp;
use waiting::STEPS_GONE;

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
    let turn = RunTurn::open(services, input).await?;
    if let Some(reason) = turn.cancels() {
        return turn.give_up(reason).await;
    }
    match turn.run_job() {
        Some(run_job) => Box::pin(turn.run(&run_job)).await,
        // Any other job, such as an operator's command, arrives after the run has ended.
        None => Ok(turn.nothing()),
    }
}

/// Ends a run that cannot continue, as failed or cancelled. Does not replay the journal. Does nothing if the run has
/// already ended.
pub(crate) async fn give_up(
    services: &Services,
    input: Box<RunInput>,
    reason: CancelReason,
) -> Result<Change, TurnError> {
    RunTurn::open(services, input).await?.give_up(reason).await
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
    /// The state in which the turn leaves its lane.
    lane: LaneState,
}

/// The state of a run's lane after a turn.
#[derive(Default)]
enum LaneState {
    /// Nothing: the run has ended.
    #[default]
    Ended,
    /// The same as before the turn, which has done nothing.
    Unchanged,
    /// The run waits: with its state in the session, and the timer that begins its next turn.
    Waits(Box<Waiting>, NewTimer),
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
    /// The run's record before this turn.
    known: Option<RunRecord>,
}

impl<'a> RunTurn<'a> {
    async fn open(services: &'a Services, input: Box<RunInput>) -> Result<Self, TurnError> {
        let RunInput { session, job, turn, resumed, guard } = *input;
        let (attempt, started_at) =
            session.turn.as_ref().map_or((1, services.clock.now()), |turn| (turn.attempt, turn.at));
        let known = services.store.run(&session.session_id).await?;
        Ok(Self { services, session, job, turn, resumed, guard, attempt, started_at, known })
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
            _ => self.continued_job(),
        }
    }

    /// The change of a turn that does nothing.
    fn nothing(&self) -> Change {
        self.change(Outcome::Noop, None, RunTurnOutcome { lane: LaneState::Unchanged, ..RunTurnOutcome::default() })
    }

    /// Ends the run as failed or cancelled.
    async fn give_up(&self, reason: CancelReason) -> Result<Change, TurnError> {
        let services = self.services;
        let Some(run_job) = self.run_job().filter(|run_job| self.may_run(run_job)) else { return Ok(self.nothing()) };
        warn!(run_id = self.run_id(), turn_id = self.turn_id(), %reason, "run abandoned");
        let record = self.record(&run_job, String::new());
        let steps = services.store.steps(self.run_id(), self.journal_turn()).await?;
        let (record, event) = match RecordedEnd::from_steps(&steps, "") {
            // The run has ended, and its session may know it already.
            Some(end) => {
                Box::pin(plan_state::store_recorded_revision(services, &record, end.revised.as_ref())).await?;
                end.into_record(record, services.clock.now())
            }
            None => {
                let failure = RunFailure { path: String::new(), cause: reason.to_string(), attempts: 1 };
                let (status, event) = (status_for(&reason), failed_event(self.run_id(), &reason.to_string()));
                let usage = if record.usage == RunUsage::default() { usage_of(&steps) } else { record.usage };
                let ended_at = Some(services.clock.now());
                (RunRecord { error: Some(failure), ended_at, status, usage, ..record }, event)
            }
        };
        // Boxed so that this rare branch does not enlarge the future of every turn.
        Box::pin(self.conclude(&record)).await?;
        let outbox = vec![self.last_event(&run_job, event)];
        let reason = Some(reason.to_string());
        let ended = RunTurnOutcome { record: Some(record), outbox, reason, ..RunTurnOutcome::default() };
        let journal = Journal::read_only(Arc::clone(&services.store), self.run_id(), self.journal_turn(), steps);
        self.exclude_earlier(&journal, true).await?;
        Ok(self.change(Outcome::Cancelled, Some(&journal), ended))
    }

    /// True if the job resumes this run. False for a new run and for a restart of another run.
    fn is_resume(&self, run_job: &RunJob<'_>) -> bool {
        run_job.from_run == Some(self.run_id())
    }

    async fn run(&self, run_job: &RunJob<'_>) -> Result<Change, TurnError> {
        let store = &self.services.store;
        if !self.may_run(run_job) {
            debug!(run_id = self.run_id(), "job ignored, the run has already ended");
            return Ok(self.nothing());
        }
        let record = self.record(run_job, String::new());
        if let Some(problem) = self.cancelled_before() {
            return self.change_for_unstarted(run_job, record, problem).await;
        }
        if let Err(error) = self.copy_steps(run_job).await {
            return self.start_failed(run_job, record, error).await;
        }
        let again = self.resumed || run_job.from_run.is_some();
        let leased = self.services.leased_turn(&self.session, self.turn_id(), self.guard.clone());
        let own = Journal::open(leased, again).await?;
        let journal = match self.continued() {
            None => own.clone(),
            Some(_) => match self.continued_journal(&own).await? {
                Some(journal) => journal,
                None => return self.failed(run_job, record, STEPS_GONE.to_owned()).await,
            },
        };
        self.exclude_earlier(&journal, self.resumed).await?;
        let RunJob { workflow_id, query, origin_session, .. } = *run_job;
        let origin = Origin { session: origin_session, has_history: record.notify.is_none() };
        let loaded = match start_record::start(self.services, &journal, workflow_id, query, origin).await {
            Ok(loaded) => loaded,
            Err(error) => return self.start_failed(run_job, record, error).await,
        };
        let hash = loaded.start_record.manifest.hash().to_owned();
        let record = RunRecord { hash, ..record };
        store.update_run(record.clone(), self.session.epoch).await?;
        if loaded.resolved.root().owner_session.is_some()
            && !plan_state::begin(self.services, workflow_id, self.run_id()).await?
        {
            debug!(run_id = self.run_id(), workflow_id, "the plan's status is that of another run");
        }
        self.execute(run_job, loaded, journal, &own, record).await.map(|ended| {
            let outcome = if ended.reason.is_some() { Outcome::Cancelled } else { Outcome::Flow };
            self.change(outcome, Some(&own), ended)
        })
    }

    /// Ends a run that cannot start as failed, or returns the error with which the turn cannot continue.
    async fn start_failed(
        &self,
        run_job: &RunJob<'_>,
        record: RunRecord,
        error: StartError,
    ) -> Result<Change, TurnError> {
        match error {
            StartError::Unknown(id) => self.failed(run_job, record, ResolveError::Unknown(id).to_string()).await,
            StartError::Unfit(problem) => self.failed(run_job, record, problem).await,
            StartError::Turn(error) => Err(error),
        }
    }

    /// Makes the end of a run known that has no result for its session's history: sets the status of a session's plan,
    /// and sends the notice of a run that a coordinator agent has started. A notice never precedes a durable end.
    async fn conclude(&self, record: &RunRecord) -> Result<(), TurnError> {
        if record.notify.is_some() {
            self.services.store.update_run(record.clone(), self.session.epoch).await?;
        }
        plan_state::settle(self.services, record).await?;
        if record.notify == Some(true) {
            let workflow = match self.services.store.workflow(&record.workflow_id).await {
                // The id is a name, too.
                Err(StoreError::Damaged { .. }) => None,
                found => found?,
            };
            let name = workflow.as_ref().and_then(|workflow| Some(workflow.graph()?.name.as_str()));
            let name = name.filter(|name| !name.is_empty()).unwrap_or(&record.workflow_id);
            conversation::publish_notice(self.services, &self.guard, record, name).await?;
        }
        Ok(())
    }

    /// True if the run has not ended, or this turn ended it, or the job resumes it after a failure or a cancellation, or
    /// continues it.
    fn may_run(&self, run_job: &RunJob<'_>) -> bool {
        let Some(known) = &self.known else { return true };
        let may_go_on = matches!(known.status, RunStatus::Failed | RunStatus::Cancelled) && self.is_resume(run_job);
        let is_own = known.turn_id == self.turn_id();
        self.continued().is_some() || known.status == RunStatus::Pending || is_own || may_go_on
    }

    /// Returns the cause if the run was cancelled before it started.
    fn cancelled_before(&self) -> Option<String> {
        let known =
            self.known.as_ref().filter(|known| known.status == RunStatus::Cancelled && known.started_at.is_none())?;
        let cause = known.error.as_ref().map_or("cancelled", |error| &error.cause);
        (known.turn_id == self.turn_id()).then(|| cause.to_owned())
    }

    /// The session for which the run calls APIs. The session's own user comes before the user that the run's caller names.
    async fn session_facts(&self, record: &RunRecord) -> Result<SessionFacts, TurnError> {
        let id = record.origin_session.clone().filter(|session_id| *session_id != record.run_id);
        let session = match &id {
            Some(session_id) => self.services.store.session(session_id).await?,
            None => None,
        };
        let known = session.map(|session| session.user_id).filter(|user_id| !user_id.is_empty());
        let channel = Some(record.channel.clone()).filter(|channel| !channel.is_empty());
        Ok(SessionFacts { id, user_id: known.or_else(|| record.user_id.clone()), channel })
    }

    async fn execute(
        &self,
        run_job: &RunJob<'_>,
        loaded: LoadedRun,
        journal: Journal,
        own: &Journal,
        record: RunRecord,
    ) -> Result<RunTurnOutcome, TurnError> {
        let address = self.event_address(run_job);
        let mut published = match self.resumed || self.is_resume(run_job) {
            true => event_publisher::read_published(self.services, &address, self.session.epoch, &self.guard).await?,
            false => PublishedEvents::default(),
        };
        let before = self.suspended().await?.unwrap_or_default();
        published.recall(&before.told);
        let pauses = Arc::new(Pauses::in_lane(self.waits_until_at_most()));
        let (progress, elapsed) = (Arc::<GraphProgress>::default(), || {
            before.elapsed(execution_time(&journal, self.started_at, self.resumed))
        });
        let context = RunContext {
            run_id: self.run_id(),
            models: self.services.models.limited_by(self.token_meter(&journal)),
            elapsed: elapsed(),
            journal: journal.clone(),
            guard: &self.guard,
            published,
            chunks: None,
            longest: None,
            asking: Arc::new(Asking::for_followers(self.lane_job())),
            pauses: Arc::clone(&pauses),
            progress: Arc::clone(&progress),
            params: record.params.clone().unwrap_or_default(),
            session: self.session_facts(&record).await?,
        };
        let begun = Arc::clone(loaded.resolved.root());
        let end = match record.notify {
            Some(_) => execute_as_step(self.services, &journal, address, loaded, context).await,
            None => execute_workflow(self.services, address, loaded, context)
                .await
                .map(|end| RecordedEnd::new(end, &progress)),
        };
        let end = match end {
            Ok(end) => end,
            Err(RunInterruption::Turn(error)) => return Err(error),
            Err(RunInterruption::Waits(told, usage)) => {
                let suspended = SuspendedRun::new(told, elapsed());
                let record = RunRecord { status: RunStatus::Waiting, usage, ..record };
                return self.suspend(own, &journal, &pauses, &suspended, progress.in_record(record));
            }
        };
        plan_state::store_revision(self.services, &begun, end.revised.as_ref()).await?;
        let output = end.output.clone();
        let (record, event) = end.into_record(record, self.services.clock.now());
        if begun.owner_session.is_some() || record.notify.is_some() {
            self.conclude(&record).await?;
        }
        if let (Some(output), None) = (&output, record.notify) {
            conversation::publish_result(self.services, &self.guard, &record, output).await?;
        }
        let reason = record.error.as_ref().map(|failure| CancelReason::new("failed", failure.to_string()).to_string());
        let outbox = vec![self.last_event(run_job, event)];
        Ok(RunTurnOutcome { record: Some(record), outbox, reason, ..RunTurnOutcome::default() })
    }

    fn token_meter(&self, journal: &Journal) -> Arc<TokenMeter> {
        TokenMeter::for_run(&self.services.budgets, journal.clone())
    }

    /// Excludes steps of earlier turns from this turn's usage, because those turns have already counted them. Without
    /// `has_own` all recorded steps are copies; else only those from before this turn's start.
    async fn exclude_earlier(&self, journal: &Journal, has_own: bool) -> Result<(), TurnError> {
        if self.continued().is_some() {
            self.count_since_suspension(journal).await?;
        } else if self.run_job().is_some_and(|run_job| run_job.from_run.is_some()) {
            let started_at = if has_own { self.started_at } else { Timestamp::from_millis(i64::MAX) };
            journal.exclude_before(started_at);
        }
        Ok(())
    }
}
