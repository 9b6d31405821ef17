//! A timer that fires (E-35, OP-E12, OP-E21).

use super::TurnError;
use super::decision::{Decision, NextStatus};
use super::handoff::HANDOFF_TIMEOUT;
use super::state::Turn;
use crate::action::system::Operation;
use crate::plan::{Plan, planner};
use crate::queue::{JobBody, ReplyKind};
use crate::session::Status;
use crate::store::{Change, Outcome, TimerChange};
use crate::timer::Timer;
use std::sync::Arc;

impl Turn<'_> {
    /// Fires a timer of the current generation; an older one, or one that the document no longer has, does nothing.
    pub(super) async fn fired(mut self, timer_id: &str, generation: u64) -> Result<Change, TurnError> {
        let known = self.session.timers.iter().find(|timer| timer.timer_id == timer_id);
        let Some(timer) = known.filter(|timer| timer.generation == generation).cloned() else {
            return self.nothing().await;
        };
        if timer.name == HANDOFF_TIMEOUT && self.session.handoff.is_some() {
            return self.release().await;
        }
        if self.status() == Status::Transferred {
            return self.nothing().await;
        }
        self.transition(Status::Processing);
        let Timer { action, message, .. } = timer;
        let Some(action) = action else {
            return self.follow_up(message.as_deref().unwrap_or_default()).await;
        };
        if let Some(text) = &message {
            self.reply(ReplyKind::Timer, "timer", text);
        }
        let plan = self.current_plan().await?;
        let next_status = match Operation::of(&action) {
            Some(Operation::Handoff) => NextStatus::Transferred,
            _ => NextStatus::Processing,
        };
        let first = Decision { next_status, action: Some(action), response: None, reasoning: None };
        self.iterate(plan, Some(first), false).await
    }

    /// A message without an action: said without asking the model.
    async fn follow_up(mut self, text: &str) -> Result<Change, TurnError> {
        self.transition(Status::Typing);
        self.reply(ReplyKind::Timer, "timer", text);
        self.transition(Status::Ready);
        let timers = self.timer_removed();
        self.finish(Outcome::Answered, timers).await
    }

    /// The timer that this turn is for, if it is a timer's.
    pub(super) fn fired_timer(&self) -> Option<&str> {
        match self.jobs.first().map(|job| &job.body) {
            Some(JobBody::Timer { timer_id, .. }) => Some(timer_id),
            _ => None,
        }
    }

    pub(super) fn timer_removed(&self) -> TimerChange {
        self.fired_timer().map_or(TimerChange::Keep, |timer_id| TimerChange::Remove(timer_id.to_owned()))
    }

    /// The plan that the session last ran with. A timer never plans: without one the configuration itself serves.
    async fn current_plan(&self) -> Result<Arc<Plan>, TurnError> {
        let cached = self.services.store.plan(&self.agent.config.id, &self.agent.hash).await?;
        Ok(cached.unwrap_or_else(|| Arc::new(planner::unplanned(&self.agent))))
    }
}
