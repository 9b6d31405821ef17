//! The end of a turn: the change that the commit writes.

use super::Turn;
use crate::execution::TurnError;
use base::telemetry::TraceContext;
use storage::queue::QueueError;
use storage::store::records::{Change, TimerChange};
use types::event::{EventType, StatusEvent, TurnEnd, TurnEvent};
use types::outcome::Outcome;
use types::session::{Status, history};
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

impl Turn<'_> {
    /// Builds the change that the commit writes. Events that are not published yet become its outbox, and the
    /// last of them has the end of the turn.
    pub(in crate::turn) fn finish(
        mut self: Box<Self>,
        outcome: Outcome,
        mut timers: TimerChange,
    ) -> Result<Change, TurnError> {
        let committed_at = self.services.clock.now();
        let jobs: Vec<String> = self.jobs.iter().map(|job| job.job_id.clone()).collect();
        self.publish_end(outcome, jobs.clone(), committed_at);
        self.check_outbox()?;
        if let TimerChange::Replace(timers) | TimerChange::Exchange { added: timers, .. } = &mut timers {
            let trace = TraceContext::current();
            for timer in timers {
                timer.traceparent = trace.as_ref().map(TraceContext::traceparent);
            }
        }
        if matches!(timers, TimerChange::Replace(_)) {
            self.session.timer_generation += 1;
        }
        let usage = self.journal.usage();
        let history_drop = history::excess(&self.session.history, &self.entries);
        let job = self.jobs[0].clone();
        let cancelled = self.status() == Status::Cancelled;
        let turn = TurnRecord {
            session_id: self.session.session_id.clone(),
            turn_id: self.id.id.clone(),
            job,
            statuses: self.statuses,
            outcome,
            reason: self.reason.clone(),
            attempts: self.attempt,
            queued_at: Some(self.id.at),
            started_at: self.started_at,
            committed_at,
            hash: self.agent.hash.clone(),
            actions: self.actions,
            tokens: usage.total,
        };
        Ok(Change {
            agent_id: self.session.agent_id,
            user_id: self.session.user_id,
            channel: self.session.channel,
            workflow_state: self.session.workflow_state,
            // A turn that finds the session cancelled and does not change that keeps the reason.
            status_reason: self.reason.or(self.session.status_reason).filter(|_| cancelled),
            profile: self.profile_changed.then_some(self.session.profile),
            history: self.entries,
            history_drop,
            jobs,
            timer_generation: self.session.timer_generation,
            timers,
            closed_at: self.session.closed_at,
            handoff: self.session.handoff,
            tokens: self.tokens_before.saturating_add(usage.total),
            days: self.token_meter.days(&usage),
            waiting: self.session.waiting,
            task: self.session.task,
            current_workflow: self.session.current_workflow,
            turn,
            run: None,
            steps: self.journal.take_notes(),
            outbox: self.outbox.into(),
        })
    }

    /// Adds the end of the turn to its last status if no event follows it. Otherwise the end is an event of its own.
    /// Both have the same message id. The queue would drop a status under the number of one that an earlier attempt has
    /// published, and with it the end.
    fn publish_end(&mut self, outcome: Outcome, jobs: Vec<String>, at: Timestamp) {
        let end = TurnEnd { jobs, outcome, replies: self.replies, attempts: self.attempt };
        let last = self.outbox.last_mut().filter(|last| last.event_type == EventType::Status);
        if let Some((last, status)) = last.zip(self.last_status.take()) {
            // Plain data with text keys always serialises.
            last.msg_id = Some(self.journal.idempotency_key(TurnEvent::KEY));
            last.payload = serde_json::to_vec(&StatusEvent { turn: Some(end), ..status }).unwrap_or_default().into();
            return;
        }
        let (session_id, turn_id) = (self.session.session_id.clone(), self.id.id.clone());
        self.publish(EventType::Turn, TurnEvent::KEY, &TurnEvent { session_id, turn_id, turn: end, at });
    }

    /// Fails if an event is too large for the queue. The outbox of a committed turn must be publishable.
    fn check_outbox(&self) -> Result<(), TurnError> {
        let limit = self.services.queue.max_payload();
        match self.outbox.iter().map(|event| event.payload.len()).max() {
            Some(bytes) if bytes > limit => Err(QueueError::TooLarge { bytes, limit }.into()),
            _ => Ok(()),
        }
    }

    /// Ends a turn without any change to the session.
    pub(in crate::turn) fn finish_without_change(self: Box<Self>) -> Result<Change, TurnError> {
        self.finish(Outcome::Noop, TimerChange::Keep)
    }
}
