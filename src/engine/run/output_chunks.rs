//! Chunks for the user from a run within a turn: the pieces of the answer that becomes the run's output.

use crate::execution::reply_stream::ReplyStream;
use crate::workflow::orchestration::event::RunEvent;
use std::sync::Arc;
use types::event::OutEvent;

/// Selects the events whose pieces belong to the run's output, and converts them to chunks.
pub(super) struct OutputChunks {
    reply_stream: Arc<ReplyStream>,
    /// Paths of the stages whose answer becomes the output.
    stages: Vec<String>,
}

impl OutputChunks {
    pub(super) fn new(reply_stream: Arc<ReplyStream>, stages: Vec<String>) -> Self {
        Self { reply_stream, stages }
    }

    /// Returns the chunk for an event with a piece of the output. Text that a model writes before a tool call is
    /// streamed as well; the stream of the next answer supersedes it.
    pub(super) fn piece(&self, event: &RunEvent) -> Option<OutEvent> {
        let delta = event.delta.as_ref().filter(|_| self.stages.contains(&event.path))?;
        self.reply_stream.chunk(delta)
    }
}
