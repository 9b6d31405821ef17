//! What a run within a turn says to the user while it says it: pieces of the answer that will be its output, as `chunk` replies.
//! The whole text follows them as the turn's `final`.

use crate::clock;
use crate::queue::{EventType, OutEvent, Reply, ReplyKind};
use crate::workflow::orchestration::event::{RunEvent, RunEventType};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
pub(super) struct Speech {
    /// What all pieces have in common; its id is what theirs begin with.
    voice: Reply,
    /// Paths of the stages whose answer is the output.
    stages: Vec<String>,
    /// The question to a model whose answer is being said, and the stream of its pieces.
    saying: Mutex<Option<(Option<String>, String)>>,
}

impl Speech {
    pub(super) fn new(voice: Reply, stages: Vec<String>) -> Self {
        Self { voice, stages, saying: Mutex::default() }
    }

    /// The piece of the answer that an event has, if it has one.
    pub(super) fn piece(&self, event: &RunEvent) -> Option<OutEvent> {
        if !self.stages.contains(&event.path) {
            return None;
        }
        let mut saying = self.saying();
        if event.kind == RunEventType::StepCompleted {
            let calls = event.snapshot.as_ref().is_some_and(|snapshot| snapshot.tool_calls.is_some());
            // What was said before a tool is called is not the output, nor is what an earlier answer began with.
            if calls || saying.as_ref().is_some_and(|(step, _)| *step != event.step_id) {
                *saying = None;
            }
        }
        let delta = event.delta.as_ref()?;
        *saying = Some((event.step_id.clone(), delta.stream_id.clone()));
        let reply = Reply {
            reply_id: format!("{}/chunk/{}/{}", self.voice.reply_id, delta.stream_id, delta.seq),
            kind: ReplyKind::Chunk,
            text: delta.content.clone(),
            seq: delta.seq,
            stream_id: Some(delta.stream_id.clone()),
            at: clock::now(),
            ..self.voice.clone()
        };
        Some(OutEvent {
            channel: reply.channel.clone(),
            session_id: reply.session_id.clone(),
            event_type: EventType::Reply,
            msg_id: Some(reply.reply_id.clone()),
            // Plain data with text keys always serialises.
            payload: serde_json::to_vec(&reply).unwrap_or_default().into(),
        })
    }

    /// The stream that the output was said in; none when it came in one piece.
    pub(super) fn stream_id(&self) -> Option<String> {
        self.saying().as_ref().map(|(_, stream_id)| stream_id.clone())
    }

    fn saying(&self) -> MutexGuard<'_, Option<(Option<String>, String)>> {
        self.saying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
