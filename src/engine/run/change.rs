//! The record of a run, and the change that a turn of its lane commits.

use super::ending::{failed, resumed_event_id};
use super::event_publisher::EventAddress;
use super::{LaneState, RunJob, RunTurn, RunTurnOutcome};
use crate::execution::{CancelReason, TurnError};
use crate::journal::Journal;
use crate::workflow::orchestration::event::RunEvent;
use crate::workflow::orchestration::failed_event;
use storage::store::records::{Change, TimerChange};
use types::event::OutEvent;
use types::outcome::Outcome;
use types::run::{RunRecord, RunStatus};
use types::run_outcome::{RunFailure, RunUsage};
use types::session::{Status, WorkflowState};
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

impl RunTurn<'_> {
    /// Builds the change for a run that was cancelled before it started.
    pub(super) async fn change_for_unstarted(
        &self,
        run_job: &RunJob<'_>,
        record: RunRecord,
        cause: String,
    ) -> Result<Change, TurnError> {
        let outbox = vec![self.last_event(run_job, failed_event(self.run_id(), &cause))];
        let reason = Some(cause.clone());
        let error = Some(RunFailure { path: String::new(), cause, attempts: 1 });
        let (status, ended_at) = (RunStatus::Cancelled, Some(self.services.clock.now()));
        let record = RunRecord { status, error, ended_at, started_at: None, ..record };
        self.conclude(&record).await?;
        let ended = RunTurnOutcome { record: Some(record), outbox, reason, ..RunTurnOutcome::default() };
        Ok(self.change(Outcome::Cancelled, None, ended))
    }

    /// Builds the run's record with the status `running`.
    pub(super) fn record(&self, run_job: &RunJob<'_>, hash: String) -> RunRecord {
        let known = self.known.as_ref();
        let known_or = |of: fn(&RunRecord) -> Option<Timestamp>| known.and_then(of);
        let created_at = known_or(|known| Some(known.created_at)).unwrap_or(self.started_at);
        RunRecord {
            hash: known.map_or(hash, |known| known.hash.clone()),
            status: RunStatus::Running,
            query: run_job.query.to_owned(),
            params: known.and_then(|known| known.params.clone()),
            notify: known.and_then(|known| known.notify),
            origin_session: run_job.origin_session.map(str::to_owned),
            user_id: run_job.user_id.map(str::to_owned),
            channel: self.channel(run_job),
            from_run: known.map_or(run_job.from_run, |known| known.from_run.as_deref()).map(str::to_owned),
            from_stage: known.map_or(run_job.from_stage, |known| known.from_stage.as_deref()).map(str::to_owned),
            started_at: known_or(|known| known.started_at).or(Some(self.started_at)),
            ..RunRecord::pending(self.run_id(), self.journal_turn(), run_job.workflow_id, created_at)
        }
    }

    /// Builds the change for a run that cannot start.
    pub(super) async fn failed(
        &self,
        run_job: &RunJob<'_>,
        record: RunRecord,
        problem: String,
    ) -> Result<Change, TurnError> {
        let outbox = vec![self.last_event(run_job, failed_event(self.run_id(), &problem))];
        let reason = CancelReason::new("failed", problem.clone()).to_string();
        let failure = RunFailure { path: String::new(), cause: problem, attempts: 1 };
        let record = failed(record, failure, RunUsage::default(), self.services.clock.now());
        self.conclude(&record).await?;
        let reason = Some(reason);
        let ended = RunTurnOutcome { record: Some(record), outbox, reason, ..RunTurnOutcome::default() };
        Ok(self.change(Outcome::Cancelled, None, ended))
    }

    /// Builds the run's last event. After a resume its id contains the turn's id, because the run has already
    /// published a last event.
    pub(super) fn last_event(&self, run_job: &RunJob<'_>, event: RunEvent) -> OutEvent {
        let is_resumed = match self.continued() {
            Some(known) => known.turn_id != known.run_id,
            None => self.is_resume(run_job),
        };
        let event_id = match is_resumed {
            true => resumed_event_id(&event.event_id, self.journal_turn()),
            false => event.event_id.clone(),
        };
        let event = RunEvent { event_id, ..event };
        self.event_address(run_job).publication(&event, self.services.queue.max_payload())
    }

    /// Address of the run's events.
    pub(super) fn event_address(&self, run_job: &RunJob<'_>) -> EventAddress {
        EventAddress {
            channel: self.channel(run_job),
            stream: run_job.origin_session.unwrap_or(self.run_id()).to_owned(),
            run_id: self.run_id().to_owned(),
            turn_id: self.turn_id().to_owned(),
            is_in_turn: false,
        }
    }

    pub(super) fn channel(&self, run_job: &RunJob<'_>) -> String {
        run_job.channel.filter(|channel| !channel.is_empty()).unwrap_or("default").to_owned()
    }

    pub(super) fn change(&self, outcome: Outcome, journal: Option<&Journal>, ended: RunTurnOutcome) -> Change {
        let RunTurnOutcome { record, outbox, reason, lane } = ended;
        let (waiting, timers) = match lane {
            LaneState::Unchanged => (self.session.waiting.clone(), TimerChange::Keep),
            LaneState::Ended if self.session.timers.is_empty() => (None, TimerChange::Keep),
            LaneState::Ended => (None, TimerChange::Replace(Vec::new())),
            LaneState::Waits(waiting, timer) => (Some(waiting), TimerChange::Replace(vec![timer])),
        };
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
            timers,
            closed_at: None,
            handoff: None,
            tokens: session.tokens.saturating_add(usage.total),
            days: journal.map(|journal| self.token_meter(journal).days(&usage)).unwrap_or_default(),
            waiting,
            task: None,
            current_workflow: None,
            turn,
            run: record,
            steps: journal.map(Journal::take_notes).unwrap_or_default(),
            outbox: outbox.into(),
        }
    }
}
