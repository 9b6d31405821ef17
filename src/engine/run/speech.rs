//! What a run within a turn says to the user while it says it: pieces of the answer that will be its output.

use crate::execution::speech::Speech;
use crate::workflow::orchestration::event::RunEvent;
use std::sync::Arc;
use types::event::OutEvent;

/// See the module.
pub(super) struct Output {
    speech: Arc<Speech>,
    /// Paths of the stages whose answer is the output.
    stages: Vec<String>,
}

impl Output {
    pub(super) fn new(speech: Arc<Speech>, stages: Vec<String>) -> Self {
        Self { speech, stages }
    }

    /// The piece of the output that an event has, if it has one. What is said before a tool is called is taken for one, too,
    /// until what comes after takes its place.
    pub(super) fn piece(&self, event: &RunEvent) -> Option<OutEvent> {
        let delta = event.delta.as_ref().filter(|_| self.stages.contains(&event.path))?;
        self.speech.chunk(delta)
    }
}
