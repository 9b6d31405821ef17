//! Streams the text of a turn while a model writes it.

use super::state::Turn;
use crate::execution::TurnError;
use crate::execution::speech::{Speech, Voice};
use std::sync::Arc;
use types::event::{Event, ReplyKind};

/// Key of the step event that marks the end of the events to read, for a repeated turn.
const MARK: &str = "resumed";

impl Turn<'_> {
    /// Prepares for the chunks of a text that is published as a whole under `key` or a key with that prefix. A
    /// repeated turn first reads its published chunks back.
    pub(super) async fn speaking(&mut self, key: &str) -> Result<Arc<Speech>, TurnError> {
        if self.resumed && !self.recalled {
            self.settle().await?;
            for event in self.published(MARK).await? {
                if let Event::Reply(reply) = event {
                    self.speech.recall(&reply);
                }
            }
            self.recalled = true;
        }
        self.speech.speak(self.words(ReplyKind::Chunk, key, ""));
        Ok(Arc::clone(&self.speech))
    }

    /// Like [`Turn::speaking`], and returns the [`Voice`] that publishes the pieces of a model's answer.
    pub(super) async fn voice(&mut self, key: &str) -> Result<Voice, TurnError> {
        let speech = self.speaking(key).await?;
        Ok(Voice { speech, queue: Arc::clone(&self.services.queue), guard: self.guard.clone() })
    }
}
