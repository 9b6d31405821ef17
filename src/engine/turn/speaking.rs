//! How a turn speaks while a text is made.

use super::state::Turn;
use crate::execution::TurnError;
use crate::execution::speech::{Speech, Voice};
use std::sync::Arc;
use types::event::{Event, ReplyKind};

/// The key of the step event up to which a repeated turn reads what was said.
const MARK: &str = "resumed";

impl Turn<'_> {
    /// Begins to say something whose whole text will be said under `key`, or under one that begins so.
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

    /// The same for what has its pieces from a model at once.
    pub(super) async fn voice(&mut self, key: &str) -> Result<Voice, TurnError> {
        let speech = self.speaking(key).await?;
        Ok(Voice { speech, queue: Arc::clone(&self.services.queue), guard: self.guard.clone() })
    }
}
