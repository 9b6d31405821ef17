//! The notice of a run that a coordinator agent has started in a lane of its own: a reply when the run has ended.

use super::prompt;
use super::state::Turn;
use crate::execution::TurnError;
use crate::prompt::is_chinese;
use serde_json::{Value, json};
use storage::store::records::{Change, TimerChange};
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::run::RunRecord;
use types::session::{Role, Status};

impl Turn<'_> {
    /// Replies with the outcome of the run. Timers, a question that waits, and a handoff stay as they are. No model is
    /// asked. While a person has the conversation, the notice is held.
    pub(super) fn give_notice(mut self: Box<Self>, run: &RunRecord, outcome: &Value) -> Result<Change, TurnError> {
        let text = |name: &str| outcome[name].as_str().unwrap_or_default();
        let status = text("status");
        let name = Some(text("name")).filter(|name| !name.is_empty()).unwrap_or(&run.workflow_id);
        let values = json!({
            "chinese": self.wrote_chinese(), "name": name, "status": status,
            "error": text("error"), "has_output": !text("output").is_empty(),
        });
        let notice = self.services.prompts.render("notice", &values).map_err(prompt::failed)?;
        // Prompts escape the inserted values, so the output is added afterwards.
        let notice = [notice.trim(), text("output")].join("\n\n");
        let fields = [("run_id", run.run_id.as_str()), ("workflow_id", &run.workflow_id), ("status", status)];
        if self.holds_back(notice.trim()) {
            return self.finish(Outcome::Silent, TimerChange::Keep);
        }
        let metadata = fields.map(|(name, value)| (name.to_owned(), Value::from(value))).into_iter().collect();
        let is_transferred = self.status() == Status::Transferred;
        if !is_transferred {
            self.transition(Status::Processing);
            self.transition(Status::Typing);
        }
        self.reply_with(ReplyKind::Final, "notice", notice.trim(), metadata);
        if !is_transferred {
            self.transition(Status::Ready);
        }
        self.finish(Outcome::Answered, TimerChange::Keep)
    }

    /// True if the user's last message was in Chinese.
    fn wrote_chinese(&self) -> bool {
        let last = self.session.history.iter().rev().find(|entry| entry.role == Role::User);
        last.map_or_else(|| self.speaks_chinese(), |entry| is_chinese(&entry.text))
    }
}
