//! Runs of workflows within a session's turn, for FLOW actions. The run's steps are in the turn's journal, its events
//! go to the session's stream, and its output is the turn's final text.

use super::ending::{completed, execution_time, failed, status_for, usage_of};
use super::event_publisher::{self, EventAddress, PublishedEvents};
use super::execute::{RunContext, RunInterruption};
use super::output_chunks::OutputChunks;
use super::plan_state;
use super::recorded_end::{END_KEY, RecordedEnd, execute_as_step};
use super::start_record::{self, LoadedRun, Origin, StartError};
use crate::action::call_values::SessionFacts;
use crate::execution::reply_stream::ReplyStream;
use crate::execution::{CancelReason, Services, TurnError};
use crate::journal::{Guard, Journal};
use crate::model::Models;
use crate::workflow::asking::Asking;
use crate::workflow::orchestration::event::RunEvent;
use crate::workflow::orchestration::graph::progress::GraphProgress;
use crate::workflow::orchestration::resolved::ResolvedDefinitions;
use crate::workflow::orchestration::{TimeoutOf, failed_event};
use crate::workflow::unregistered;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use types::event::OutEvent;
use types::run::{RunQuery, RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// A workflow that a FLOW action runs, and the turn in which it runs.
pub(crate) struct NestedRun<'t> {
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
    /// The inputs, which only a graph reads. Without them its inputs are those in the query, if that is a JSON object.
    pub(crate) params: Option<Map<String, Value>>,
    /// The run that this run repeats, with the node from which it does so.
    pub(crate) from: Option<(&'t str, &'t str)>,
    /// When the run started.
    pub(crate) run_started_at: Timestamp,
    /// When the current turn started.
    pub(crate) turn_started_at: Timestamp,
    /// Publishes the output in chunks while the model writes it; `None` for a run whose output is not a reply.
    pub(crate) reply_stream: Option<Arc<ReplyStream>>,
    /// The questions that the run puts to the user.
    pub(crate) asking: Arc<Asking>,
    /// The sub-agent whose task the run is.
    pub(crate) subagent: Option<Subagent<'t>>,
    /// The longest execution time of a run for which the conversation waits.
    pub(crate) longest: Option<Duration>,
    /// State from before the run waited for the answer that it now continues with.
    pub(crate) before: SuspendedRun,
}

/// The sub-agent whose task a run is.
#[derive(Clone, Copy)]
pub(crate) struct Subagent<'t> {
    /// The type of the sub-agent, for messages.
    pub(crate) kind: &'t str,
    /// The longest execution time, unless that of the workflow is shorter.
    pub(crate) timeout: Duration,
}

/// State of a waiting run that it needs to continue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SuspendedRun {
    /// The events published so far, as returned by [`event_publisher::event_digest`]. The stream may no longer have
    /// them when the answer arrives.
    pub(crate) told: Vec<String>,
    /// Execution time so far in milliseconds, without the time spent waiting.
    pub(crate) active_ms: u64,
}

impl SuspendedRun {
    pub(super) fn new(told: Vec<String>, active: Duration) -> Self {
        Self { told, active_ms: u64::try_from(active.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Execution time so far, with `active` in the current turn.
    pub(super) fn elapsed(&self, active: Duration) -> Duration {
        Duration::from_millis(self.active_ms) + active
    }
}

/// How a call of a run within a turn ends.
pub(crate) enum NestedRunEnd {
    /// The run has completed with this output.
    Said(String),
    /// The run has failed. The model reads this error.
    Failed(String),
    /// The run waits for the user's answer.
    Waits(SuspendedRun),
}

impl NestedRun<'_> {
    /// The run's id. It is the same in every attempt of the turn.
    pub(crate) fn run_id(&self) -> String {
        let digest = md5::compute(format!("{}/{}/{}", self.session_id, self.turn_id, self.prefix));
        format!("r{digest:x}")
    }

    /// Execution time of the run, in this turn and in earlier ones.
    fn elapsed(&self, journal: &Journal) -> Duration {
        self.before.elapsed(execution_time(journal, self.turn_started_at, self.resumed))
    }

    fn event_address(&self) -> EventAddress {
        EventAddress {
            channel: self.channel.to_owned(),
            stream: self.session_id.to_owned(),
            run_id: self.run_id(),
            turn_id: self.turn_id.to_owned(),
            is_in_turn: true,
        }
    }

    /// Executes the run until it completes, fails or asks the user. On return its record is stored and its events are
    /// published.
    pub(crate) async fn run(&self, services: &Services) -> Result<NestedRunEnd, TurnError> {
        let journal = self.journal.scope(&self.prefix);
        let origin = Origin { session: Some(self.session_id), has_history: false };
        let loaded = start_record::start(services, &journal, self.workflow_id, self.query, origin).await;
        let LoadedRun { start_record, resolved } = match loaded {
            Ok(loaded) => loaded,
            Err(StartError::Unknown(id)) => return Ok(NestedRunEnd::Failed(unregistered(&id))),
            Err(StartError::Unfit(problem)) => {
                return Ok(NestedRunEnd::Failed(format!("flow `{}`: {problem}", self.workflow_id)));
            }
            Err(StartError::Turn(error)) => return Err(error),
        };
        let is_graph = resolved.root().graph().is_some();
        let params = self.params.clone().filter(|_| is_graph);
        let record = RunRecord { params, ..self.record(start_record.manifest.hash()) };
        let again = journal.has(END_KEY, END_KEY);
        if !again {
            services.store.update_run(record.clone(), self.epoch).await?;
        }
        if !plan_state::claim(services, &journal, resolved.root(), &record.run_id).await? {
            let failure = RunFailure { path: String::new(), cause: plan_state::busy(self.workflow_id), attempts: 1 };
            let problem = failure.to_string();
            services
                .store
                .update_run(failed(record, failure, RunUsage::default(), services.clock.now()), self.epoch)
                .await?;
            return Ok(NestedRunEnd::Failed(problem));
        }
        let plan = Arc::clone(resolved.root());
        let address = self.event_address();
        let mut published = match self.resumed {
            true => event_publisher::read_published(services, &address, self.epoch, self.guard).await?,
            false => PublishedEvents::default(),
        };
        published.recall(&self.before.told);
        let progress = Arc::<GraphProgress>::default();
        let context = self.context(&journal, &resolved, published.clone(), &record, &progress);
        let loaded = LoadedRun { start_record, resolved };
        let end = match execute_as_step(services, &journal, self.event_address(), loaded, context).await {
            Ok(end) => end,
            Err(RunInterruption::Turn(error)) => return Err(error),
            Err(RunInterruption::Waits(told, usage)) => {
                let waits = progress.in_record(RunRecord { status: RunStatus::Waiting, usage, ..record });
                services.store.update_run(waits, self.epoch).await?;
                return Ok(NestedRunEnd::Waits(SuspendedRun::new(told, self.elapsed(&journal))));
            }
        };
        if !published.has(&end.event) {
            self.publish(services, &end.event).await?;
        }
        plan_state::store_revision(services, &plan, end.revised.as_ref()).await?;
        let record = end.with_graph(record);
        let RecordedEnd { output, failure, usage, .. } = end;
        let now = services.clock.now();
        let (record, outcome) = match failure {
            None => {
                let output = output.unwrap_or_default();
                (completed(record, &output, usage, now), NestedRunEnd::Said(output))
            }
            Some(failure) => {
                let problem = match self.subagent {
                    Some(Subagent { kind, .. }) => format!("sub-agent `{kind}`: {failure}"),
                    None => format!("flow `{}`: {failure}", self.workflow_id),
                };
                (failed(record, failure, usage, now), NestedRunEnd::Failed(problem))
            }
        };
        services.store.update_run(record.clone(), self.epoch).await?;
        plan_state::end(services, &plan, &record).await?;
        Ok(outcome)
    }

    fn context<'c>(
        &'c self,
        journal: &Journal,
        resolved: &ResolvedDefinitions,
        published: PublishedEvents,
        record: &'c RunRecord,
        progress: &Arc<GraphProgress>,
    ) -> RunContext<'c> {
        let stream = self.reply_stream.as_ref().map(Arc::clone);
        let of_subagent = self.subagent.map(|subagent| (subagent.timeout, TimeoutOf::Subagent));
        RunContext {
            run_id: &record.run_id,
            journal: journal.clone(),
            models: self.models.clone(),
            guard: self.guard,
            published,
            chunks: stream.map(|stream| OutputChunks::new(stream, resolved.output_stages())),
            longest: of_subagent.or_else(|| self.longest.map(|longest| (longest, TimeoutOf::Conversation))),
            elapsed: self.elapsed(journal),
            asking: Arc::clone(&self.asking),
            pauses: Arc::default(),
            progress: Arc::clone(progress),
            params: record.params.clone().unwrap_or_default(),
            session: SessionFacts::new(self.session_id, self.user_id, self.channel),
        }
    }

    /// Publishes an event of the run. Durable on return.
    async fn publish(&self, services: &Services, event: &RunEvent) -> Result<(), TurnError> {
        if !self.guard.holds().await? {
            return Err(TurnError::Lost);
        }
        let event = self.event_address().publication(event, services.queue.max_payload());
        Ok(services.queue.emit([event].into()).await?)
    }

    fn record(&self, hash: &str) -> RunRecord {
        RunRecord {
            hash: hash.to_owned(),
            status: RunStatus::Running,
            query: self.query.to_owned(),
            origin_session: Some(self.session_id.to_owned()),
            user_id: Some(self.user_id.to_owned()).filter(|user_id| !user_id.is_empty()),
            channel: self.channel.to_owned(),
            lane: self.session_id.to_owned(),
            prefix: self.prefix.clone(),
            from_run: self.from.map(|(run_id, _)| run_id.to_owned()),
            from_stage: self.from.map(|(_, node)| node.to_owned()),
            started_at: Some(self.run_started_at),
            ..RunRecord::pending(&self.run_id(), self.turn_id, self.workflow_id, self.run_started_at)
        }
    }
}

/// Ends the runs within an abandoned turn. Returns their last events, to be published after the turn's commit. A run
/// whose end is recorded ends as recorded.
pub(crate) async fn end_runs_of_turn(
    services: &Services,
    session_id: &str,
    turn_id: &str,
    epoch: u64,
    reason: &CancelReason,
) -> Result<Vec<OutEvent>, TurnError> {
    let query = RunQuery {
        origin_session: Some(session_id.to_owned()),
        // Selects the runs within the session's turns. The session's other runs have their own lanes.
        lane: Some(session_id.to_owned()),
        turn_id: Some(turn_id.to_owned()),
        // A turn has at most one run for each of its iterations.
        limit: usize::MAX,
        ..RunQuery::default()
    };
    let runs = services.store.runs(query).await?;
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let steps = services.store.steps(session_id, turn_id).await?;
    let ends = runs.into_iter().map(|run| end_run(services, run, &steps, epoch, reason));
    let events = futures::future::try_join_all(ends).await?;
    Ok(events.into_iter().flatten().collect())
}

/// Ends the run of an abandoned waiting flow. Returns its last event, to be published after the commit.
pub(crate) async fn abandon_run(
    services: &Services,
    run_id: &str,
    epoch: u64,
    reason: &CancelReason,
) -> Result<Vec<OutEvent>, TurnError> {
    match services.store.run(run_id).await? {
        Some(run) => {
            let steps = services.store.steps(&run.lane, &run.turn_id).await?;
            Ok(end_run(services, run, &steps, epoch, reason).await?.into_iter().collect())
        }
        None => Ok(Vec::new()),
    }
}

/// Stores the final record of a run as recorded, else as ended for `reason`, and returns its last event, which may be
/// published already. `steps` are those of the run's turn. Returns `None` for a completed run whose step is gone.
async fn end_run(
    services: &Services,
    run: RunRecord,
    steps: &[StepRecord],
    epoch: u64,
    reason: &CancelReason,
) -> Result<Option<OutEvent>, TurnError> {
    let address = EventAddress {
        channel: run.channel.clone(),
        stream: run.lane.clone(),
        run_id: run.run_id.clone(),
        turn_id: run.turn_id.clone(),
        is_in_turn: true,
    };
    let publication = |event: &RunEvent| address.publication(event, services.queue.max_payload());
    let end = RecordedEnd::from_steps(steps, &run.prefix);
    if run.status.has_ended() {
        // An earlier attempt to abandon the turn may have ended the run and failed to commit the event.
        let failed = run.error.map(|failure| failed_event(&run.run_id, &failure.cause));
        return Ok(end.map(|end| end.event).or(failed).as_ref().map(publication));
    }
    let now = services.clock.now();
    let (run, event) = match end {
        Some(end) => {
            Box::pin(plan_state::store_recorded_revision(services, &run, end.revised.as_ref())).await?;
            end.into_record(run, now)
        }
        None => {
            let event = failed_event(&run.run_id, &reason.to_string());
            let own = super::step_reuse::steps_of_run(steps.to_vec(), &run.prefix);
            let error = RunFailure { path: String::new(), cause: reason.to_string(), attempts: 1 };
            let (status, usage) = (status_for(reason), usage_of(&own));
            (RunRecord { status, error: Some(error), usage, ended_at: Some(now), ..run }, event)
        }
    };
    services.store.update_run(run.clone(), epoch).await?;
    Box::pin(plan_state::settle(services, &run)).await?;
    Ok(Some(publication(&event)))
}
