//! A user's message.

use super::state::Turn;
use crate::execution::TurnError;
use futures::FutureExt;
use storage::store::records::Change;
use types::job::UserMessage;
use types::session::Status;

impl Turn<'_> {
    /// Handles the user's message(s): forwarded while a human has the conversation, the answer to a flow that
    /// waits, else planned, greeted and decided.
    pub(super) async fn user_message(mut self: Box<Self>) -> Result<Change, TurnError> {
        self.remember_user();
        // The next message reopens a closed conversation (OP-E19).
        self.session.closed_at = None;
        if self.status() == Status::Transferred {
            if self.is_held() {
                return Box::pin(self.forward()).await;
            }
            // Another agent, or another configuration, takes the conversation from the human.
            self.session.handoff = None;
        }
        if let Some(waiting) = self.session.waiting.take() {
            // Of no type that every turn would have in its own.
            return self.answered(waiting).boxed().await;
        }
        self.converse().await
    }

    /// Plans, greets and decides.
    pub(super) async fn converse(mut self: Box<Self>) -> Result<Change, TurnError> {
        let opening = match self.opening().await? {
            Ok(opening) => opening,
            Err(reason) => return self.cancel(&reason),
        };
        self.transition(Status::Processing);
        self.iterate(opening.plan, opening.first, opening.greeted).await
    }

    /// The user's messages of this turn as one text: all merged texts, in order, with the names of attachments.
    pub(super) fn message_text(&self) -> String {
        self.messages().map(UserMessage::words).collect::<Vec<_>>().join("\n")
    }

    /// The user's own words alone.
    pub(super) fn typed_text(&self) -> String {
        self.messages().map(|message| message.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The addresses of this turn's pictures.
    pub(super) fn images(&self) -> Vec<String> {
        let attached = self.messages().flat_map(|message| &message.attachments);
        attached.filter(|attachment| attachment.kind == "image").map(|attachment| attachment.url.clone()).collect()
    }
}
