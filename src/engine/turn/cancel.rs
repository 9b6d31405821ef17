//! Cancellation of a turn.

use super::interruption::Interruption;
use super::state::Turn;
use crate::execution::{CancelReason, TOKEN_BUDGET, TurnError};
use crate::prompt::is_chinese;
use crate::run;
use serde_json::json;
use storage::store::StoreError;
use storage::store::records::{Change, TimerChange};
use tracing::warn;
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::session::{Kind, Status};
use types::step::StepRecord;

impl Turn<'_> {
    /// Cancels the turn if it was cancelled, or returns the error with which it cannot continue.
    pub(super) fn interrupted(self: Box<Self>, interruption: Interruption) -> Result<Change, TurnError> {
        match interruption {
            Interruption::Cancel(reason) => self.cancel(&reason),
            Interruption::Turn(error) => Err(error),
        }
    }

    /// Ends the turn with the status `cancelled`. Cancels all timers, and apologises to the user unless this turn has
    /// already replied to them, or a human takes the conversation over.
    pub(super) fn cancel(mut self: Box<Self>, reason: &CancelReason) -> Result<Change, TurnError> {
        warn!(session_id = %self.session.session_id, turn_id = self.turn_id(), %reason, "turn cancelled");
        if self.messages().next().is_some() && self.entries.is_empty() {
            self.remember_user();
        }
        self.reason = Some(reason.to_string());
        // `cancelled` is reachable from `processing` and `typing` only; from any other status the way leads through
        // `processing`.
        if !self.is_cancelled() && self.status().check(Status::Cancelled).is_err() {
            self.transition(Status::Processing);
        }
        // In a dialogue, the last event reports the cancellation.
        let talks = self.session.kind != Kind::Authoring && !reason.is_takeover();
        if talks && !self.answered && (self.messages().next().is_some() || self.fired_timer().is_some()) {
            let text = self.apology(reason);
            self.reply(ReplyKind::Apology, "apology", &text);
        }
        self.end_handoff(self.commander().as_deref());
        self.transition(Status::Cancelled);
        self.session.waiting = None;
        self.session.task = None;
        self.finish(Outcome::Cancelled, TimerChange::Replace(Vec::new()))
    }

    /// Adds the tokens and actions of earlier attempts to this turn. [`super::give_up`] does not replay the journal.
    pub(super) async fn count_recorded(&mut self) -> Result<(), TurnError> {
        match self.services.store.steps(&self.session.session_id, self.turn_id()).await {
            Ok(steps) => {
                self.journal.count(&steps);
                let acted = |step: &&StepRecord| matches!(step.key.split_once('/'), Some((_, "act" | "flow")));
                steps.iter().filter(acted).for_each(|step| self.add_action(&step.target));
            }
            Err(error @ (StoreError::Unavailable(_) | StoreError::Newer { .. })) => return Err(error.into()),
            // Unreadable steps may be the reason for which the turn is abandoned, so they must not fail it again.
            Err(error) => warn!(turn_id = self.turn_id(), "tokens of earlier attempts not counted: {error}"),
        }
        Ok(())
    }

    /// Ends the workflow runs that the turn has started, and queues their last events.
    pub(super) async fn end_nested_runs(&mut self, reason: &CancelReason) -> Result<(), TurnError> {
        let (session_id, epoch) = (self.session.session_id.as_str(), self.session.epoch);
        let events = run::end_runs_of_turn(self.services, session_id, self.turn_id(), epoch, reason).await?;
        self.outbox.extend(events);
        Ok(())
    }

    /// Apologises for decisions that were rejected several times in a row. The session stays usable.
    pub(super) fn apologise_for_rejection(&mut self, problem: String) {
        let reason = CancelReason::new("decision_rejected", problem);
        warn!(session_id = %self.session.session_id, turn_id = self.turn_id(), %reason, "decisions rejected");
        self.transition(Status::Typing);
        let text = self.apology(&reason);
        self.reply(ReplyKind::Apology, "apology", &text);
        self.reason = Some(reason.to_string());
    }

    fn apology(&self, reason: &CancelReason) -> String {
        let chinese = self.speaks_chinese();
        let prompt = if reason.word == TOKEN_BUDGET { "over_budget" } else { "apology" };
        self.services
            .prompts
            .render(prompt, &json!({ "chinese": chinese, "timer": self.fired_timer().is_some() }))
            .map_or_else(|_| "抱歉，系统暂时无法处理，请稍后再试。".to_owned(), |text| text.trim().to_owned())
    }

    /// True if fixed texts to the user must be in Chinese. The user's words decide; if they have no letters, the
    /// agent's name and SOP do.
    pub(super) fn speaks_chinese(&self) -> bool {
        let words = self.typed_text();
        if words.chars().any(char::is_alphabetic) {
            return is_chinese(&words);
        }
        is_chinese(&self.agent.config.name) || is_chinese(&self.agent.config.sop)
    }
}
