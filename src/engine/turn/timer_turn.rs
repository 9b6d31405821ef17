//! Turns for a timer that fires.

use super::claim::CLAIM_TIMEOUT;
use super::coordinator::First;
use super::decision::{Decision, NextStatus};
use super::handoff::{HANDOFF_TIMEOUT, HandBack};
use super::pending_flow::FLOW_TIMEOUT;
use super::state::Turn;
use crate::action::system::Operation;
use crate::execution::TurnError;
use crate::turn::planner;
use std::sync::Arc;
use storage::store::records::{Change, TimerChange};
use types::event::ReplyKind;
use types::job::{Job, JobBody};
use types::outcome::Outcome;
use types::plan::Plan;
use types::session::{Session, Status};
use types::timer::Timer;

/// True for the job of a timer that has been cancelled or has already fired. Its turn does nothing.
pub(crate) fn is_obsolete(session: &Session, job: &Job) -> bool {
    match &job.body {
        JobBody::Timer { timer_id, generation, .. } => session.armed(timer_id, *generation).is_none(),
        _ => false,
    }
}

impl Turn<'_> {
    /// Fires a timer. Does nothing if the timer has been cancelled or belongs to an older generation.
    pub(super) async fn timer_fired(mut self: Box<Self>, timer_id: &str, generation: u64) -> Result<Change, TurnError> {
        let Some(timer) = self.session.armed(timer_id, generation).cloned() else {
            return self.finish_without_change();
        };
        if timer.name == HANDOFF_TIMEOUT && self.session.handoff.is_some() {
            return self.release(HandBack::default());
        }
        if timer.name == CLAIM_TIMEOUT && self.session.handoff.is_some() {
            return self.expire_claim();
        }
        if timer.name == FLOW_TIMEOUT && self.session.waiting.is_some() {
            return Box::pin(self.time_out_flow()).await;
        }
        if timer.name == FLOW_TIMEOUT && self.session.task.take().is_some() {
            return self.finish(Outcome::Silent, TimerChange::Replace(Vec::new()));
        }
        // A follow-up must not interrupt a handoff, or a question that waits for the user's answer.
        if self.status() == Status::Transferred || self.session.waiting.is_some() || self.session.task.is_some() {
            return self.finish_without_change();
        }
        self.transition(Status::Processing);
        let Timer { action, message, .. } = timer;
        let Some(action) = action else {
            return self.follow_up(message.as_deref().unwrap_or_default());
        };
        if let Some(text) = &message {
            self.reply(ReplyKind::Timer, "timer", text);
        }
        let plan = self.current_plan().await?;
        let next_status = match Operation::from_action(&action) {
            Some(Operation::Handoff) => NextStatus::Transferred,
            _ => NextStatus::Processing,
        };
        let first = Decision { next_status, action: Some(action), response: None, reasoning: None };
        self.iterate(plan, Some(First::Decision(first)), false).await
    }

    /// Publishes the message of a timer without an action. No model is asked.
    fn follow_up(mut self: Box<Self>, text: &str) -> Result<Change, TurnError> {
        self.transition(Status::Typing);
        self.reply(ReplyKind::Timer, "timer", text);
        self.transition(Status::Ready);
        let timers = self.timer_removal();
        self.finish(Outcome::Answered, timers)
    }

    /// Returns the id of the timer if this is a timer's turn.
    pub(super) fn fired_timer(&self) -> Option<&str> {
        match self.jobs.first().map(|job| &job.body) {
            Some(JobBody::Timer { timer_id, .. }) => Some(timer_id),
            _ => None,
        }
    }

    pub(super) fn timer_removal(&self) -> TimerChange {
        self.fired_timer().map_or(TimerChange::Keep, |timer_id| TimerChange::Remove(vec![timer_id.to_owned()]))
    }

    /// Returns the cached plan, or one made from the agent file without a model. The turn of a timer never asks the
    /// model for a plan.
    async fn current_plan(&self) -> Result<Arc<Plan>, TurnError> {
        let cached = self.services.store.plan(&self.agent.config.id, &self.agent.hash).await?;
        Ok(cached.unwrap_or_else(|| Arc::new(planner::unplanned(&self.agent, self.services.clock.now()))))
    }
}
