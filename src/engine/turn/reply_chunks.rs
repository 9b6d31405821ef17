//! Streams the text of a turn while a model writes it.

use super::state::Turn;
use crate::execution::TurnError;
use crate::execution::reply_stream::{ChunkPublisher, ReplyStream};
use std::sync::Arc;
use types::event::{Event, ReplyKind};

/// Key of the step event that marks the end of the events to read, for a repeated turn.
const RESUMED_MARK: &str = "resumed";

impl Turn<'_> {
    /// Prepares for the chunks of a text that is published as a whole under `key` or a key with that prefix. A
    /// repeated turn first reads its published chunks back.
    pub(super) async fn open_reply_stream(&mut self, key: &str) -> Result<Arc<ReplyStream>, TurnError> {
        if self.resumed && !self.recalled {
            self.settle().await?;
            for event in self.publish_mark_and_read_back(RESUMED_MARK).await? {
                if let Event::Reply(reply) = event {
                    self.reply_stream.recall(&reply);
                }
            }
            self.recalled = true;
        }
        self.reply_stream.set_template(self.build_reply(ReplyKind::Chunk, key, ""));
        Ok(Arc::clone(&self.reply_stream))
    }

    /// Like [`Turn::open_reply_stream`], and returns the [`ChunkPublisher`] that publishes the pieces of a model's
    /// answer.
    pub(super) async fn chunk_publisher(&mut self, key: &str) -> Result<ChunkPublisher, TurnError> {
        let reply_stream = self.open_reply_stream(key).await?;
        Ok(ChunkPublisher { reply_stream, queue: Arc::clone(&self.services.queue), guard: self.guard.clone() })
    }
}
