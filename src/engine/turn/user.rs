//! Turns for user messages.

use super::state::Turn;
use crate::execution::TurnError;
use futures::FutureExt;
use storage::store::records::Change;
use types::job::UserMessage;
use types::session::Status;

impl Turn<'_> {
    /// Handles the turn's user messages: forwards them during a handoff, passes them to a waiting flow as its answer,
    /// or starts the agent.
    pub(super) async fn user_message(mut self: Box<Self>) -> Result<Change, TurnError> {
        self.remember_user();
        // A user message reopens a closed conversation.
        self.session.closed_at = None;
        if self.status() == Status::Transferred {
            if self.is_held() {
                return Box::pin(self.forward()).await;
            }
            // Another agent, or a configuration without `hold`, takes the conversation back from the human.
            self.end_handoff(None);
        }
        if let Some(waiting) = self.session.waiting.take() {
            // Boxed so that this rare branch does not enlarge every turn's future.
            return self.answer_flow(waiting).boxed().await;
        }
        if let Some(task) = self.session.task.take() {
            return self.answer_task(task).boxed().await;
        }
        self.converse().await
    }

    /// Makes the plan and the greeting if needed, then runs the decision loop.
    pub(super) async fn converse(mut self: Box<Self>) -> Result<Change, TurnError> {
        let input = match self.plan_and_greet().await {
            Ok(input) => input,
            Err(interruption) => return self.interrupted(interruption),
        };
        self.transition(Status::Processing);
        self.iterate(input.plan, input.first, input.greeted).await
    }

    /// Returns the texts of all messages of this turn with the names of their attachments, one line each.
    pub(super) fn message_text(&self) -> String {
        self.messages().map(UserMessage::words).collect::<Vec<_>>().join("\n")
    }

    /// Returns the texts of all messages without the attachments.
    pub(super) fn typed_text(&self) -> String {
        self.messages().map(|message| message.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns the URLs of this turn's pictures.
    pub(super) fn images(&self) -> Vec<String> {
        let attached = self.messages().flat_map(|message| &message.attachments);
        attached.filter(|attachment| attachment.kind == "image").map(|attachment| attachment.url.clone()).collect()
    }
}
