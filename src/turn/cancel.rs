//! Ending a turn as `cancelled` (OP-E2).

use super::state::Turn;
use super::{CancelReason, TurnError};
use crate::prompt::is_chinese;
use crate::queue::ReplyKind;
use crate::session::Status;
use crate::store::{Change, Outcome, TimerChange};
use serde_json::json;
use tracing::warn;

impl Turn<'_> {
    /// Cancels the turn: pending timers go, and the user gets one apology unless they were answered.
    pub(super) async fn cancel(self, reason: CancelReason) -> Result<Change, TurnError> {
        self.cancel_as(None, reason).await
    }

    /// Cancels a turn that was begun before, maybe often, and never came to its end. What was published then stays true:
    /// its beginning is published again under the same ids. How far it got nobody knows, so the end has an id of its own.
    pub(super) async fn give_up(mut self, reason: CancelReason) -> Result<Change, TurnError> {
        if self.status() != Status::Transferred {
            if self.messages().next().is_some() {
                self.open_again();
            }
            if self.messages().next().is_some() || self.fired_timer().is_some() {
                self.transition(Status::Processing);
            }
        }
        self.cancel_as(Some("status/given_up"), reason).await
    }

    /// What every attempt at a user's message begins with. A greeting that is on record has been sent.
    fn open_again(&mut self) {
        self.remember_user();
        self.session.closed_at = None;
        if self.session.workflow_state.hash != self.agent.hash {
            self.adopt_configuration();
        }
        let greeting = self.journal.output("greet").and_then(|greet| greet["text"].as_str().map(str::to_owned));
        if let Some(greeting) = greeting {
            self.reply(ReplyKind::Greeting, "greet", &greeting);
            self.session.workflow_state.need_greeting = false;
        }
    }

    async fn cancel_as(mut self, key: Option<&str>, reason: CancelReason) -> Result<Change, TurnError> {
        warn!(session_id = %self.session.session_id, turn_id = self.turn_id(), %reason, "the turn is cancelled");
        if self.messages().next().is_some() && self.entries.is_empty() {
            self.remember_user();
        }
        self.reason = Some(reason.to_string());
        // From `typing` and `processing` it is one step; from elsewhere `processing` lies between.
        if self.status().check(Status::Cancelled).is_err() {
            self.transition(Status::Processing);
        }
        if !self.answered && self.jobs.iter().any(|job| job.user_message().is_some()) {
            let text = self.apology();
            self.reply(ReplyKind::Apology, "apology", &text);
        }
        match key {
            Some(key) => self.transition_as(key, Status::Cancelled),
            None => self.transition(Status::Cancelled),
        }
        self.session.handoff = None;
        self.finish(Outcome::Cancelled, TimerChange::Replace(Vec::new())).await
    }

    fn apology(&self) -> String {
        let chinese = self.speaks_chinese();
        self.services
            .prompts
            .render("apology", &json!({ "chinese": chinese }))
            .map_or_else(|_| "抱歉，系统暂时无法处理，请稍后再试。".to_owned(), |text| text.trim().to_owned())
    }

    /// The language to speak without a model: that of the user's words, else of the agent's name and procedure.
    fn speaks_chinese(&self) -> bool {
        let words = self.message_text();
        if words.chars().any(char::is_alphabetic) {
            return is_chinese(&words);
        }
        is_chinese(&self.agent.config.name) || is_chinese(&self.agent.config.sop)
    }
}
