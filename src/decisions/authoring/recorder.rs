//! Records the results of one step of the machine: events, messages and stages.

use super::words;
use std::collections::BTreeMap;
use types::authoring::message::{ErrorContent, GenerationStarted};
use types::authoring::state::{MAX_INFO_VALUE, MAX_MESSAGE};
use types::authoring::{
    Body, ErrorCode, Event, MessageContent, MessageType, Origin, Speaker, Stage, StatusContent, StoredState, TurnState,
};
use types::excerpt::cut;
use types::timestamp::Timestamp;

/// Changes a state, and records the events about these changes.
pub(super) struct Recorder<'a> {
    pub(super) stored: &'a mut StoredState,
    pub(super) now: Timestamp,
    /// Added to the metadata of messages.
    notes: BTreeMap<String, String>,
}

impl<'a> Recorder<'a> {
    /// Begins a step. Removes the events of the previous step from the state, because they are published.
    pub(super) fn new(stored: &'a mut StoredState, notes: BTreeMap<String, String>, now: Timestamp) -> Self {
        stored.turn.get_or_insert_default().events.clear();
        stored.state.updated_at = now;
        Self { stored, now, notes }
    }

    fn turn(&mut self) -> &mut TurnState {
        self.stored.turn.get_or_insert_default()
    }

    pub(super) fn push(&mut self, body: Body, is_final: bool) {
        let (session_id, timestamp) = (self.stored.state.session_id.clone(), self.now.as_millis());
        let turn = self.turn();
        let event = Event { body, session_id, turn_id: turn.turn_id.clone(), seq: turn.seq, timestamp, is_final };
        turn.seq += 1;
        turn.ended |= is_final;
        turn.events.push(event);
    }

    /// Records an event that is not the last one.
    pub(super) fn tell(&mut self, body: Body) {
        self.push(body, false);
    }

    /// Records the current stage as an event.
    pub(super) fn tell_stage(&mut self) {
        let content = StatusContent {
            new_stage: self.stored.state.stage,
            previous_stage: self.stored.previous_stage,
            stage_description: words::stage(self.stored.state.stage, self.stored.config.language).to_owned(),
            pending_actions: pending_actions(self.stored),
        };
        self.tell(Body::Status { content });
    }

    /// Enters a stage. Does nothing if it is the current one.
    pub(super) fn enter(&mut self, stage: Stage) {
        if self.stored.state.stage == stage {
            return;
        }
        self.stored.previous_stage = std::mem::replace(&mut self.stored.state.stage, stage);
        self.tell_stage();
        if stage == Stage::WorkflowGeneration {
            self.tell_generation();
        }
    }

    /// Records that the model begins to write, and gives the artefact its id if it has none yet.
    pub(super) fn tell_generation(&mut self) {
        let workflow_id = workflow_id(self.stored);
        self.stored.state.workflow_id = Some(workflow_id.clone());
        let action = self.stored.state.workflow_context.origin;
        let attempt = attempt(self.stored);
        let data = GenerationStarted { artifact: self.stored.artifact, action, attempt };
        self.tell(Body::WorkflowGenerationStarted { workflow_id, data });
    }

    /// Records a message to the user; the turn continues. Records nothing if the message is empty.
    pub(super) fn say(&mut self, text: &str, message_type: MessageType) {
        let content = self.content(text, message_type);
        if content.text.trim().is_empty() && content.questions.is_empty() {
            return;
        }
        self.remember(&content);
        self.tell(message(content));
    }

    /// Records a message to the user, and ends the turn.
    pub(super) fn say_and_wait(&mut self, text: &str, message_type: MessageType) {
        let content = self.content(text, message_type);
        self.remember(&content);
        self.push(message(content), true);
    }

    /// Records that the artefact is ready, and ends the turn.
    pub(super) fn say_completed(&mut self, text: &str, workflow_id: String) {
        let content = self.content(text, MessageType::Text);
        self.remember(&content);
        let (delta, workflow_id) = (Some(content.text.clone()), Some(workflow_id));
        let body = Body::Message { delta, stream_id: None, supersedes: None, content: Some(content), workflow_id };
        self.push(body, true);
    }

    /// Ends the turn with a failure. The four failures that belong to the dialogue put it into the stage `error`.
    pub(super) fn end(&mut self, code: ErrorCode, details: &str) {
        let stage = self.stored.state.stage;
        if code.changes_stage() && !matches!(stage, Stage::Error | Stage::Completed) {
            self.stored.resume_stage = Some(stage);
            self.enter(Stage::Error);
        }
        self.fail(code, details);
    }

    /// Records a failure, and ends the turn.
    pub(super) fn fail(&mut self, code: ErrorCode, details: &str) {
        let message = words::error(code, self.stored.config.language).to_owned();
        let (details, is_recoverable) = (cut(details, MAX_INFO_VALUE).into_owned(), code.is_recoverable());
        self.push(Body::Error { content: ErrorContent { error_code: code, message, details, is_recoverable } }, true);
    }

    fn content(&self, text: &str, message_type: MessageType) -> MessageContent {
        let mut content = MessageContent {
            text: cut(text, MAX_MESSAGE).into_owned(),
            role: Speaker::Assistant,
            message_type,
            metadata: self.notes.clone(),
            ..MessageContent::default()
        };
        match message_type {
            MessageType::Text => {}
            MessageType::Question => content.questions = self.stored.questions.clone(),
            MessageType::Options => content.alternatives = self.stored.state.alternatives.clone(),
        }
        if content.text.trim().is_empty() {
            content.text = words::listed(&content);
        }
        content
    }

    fn remember(&mut self, content: &MessageContent) {
        let mut metadata = content.metadata.clone();
        metadata.insert("message_type".to_owned(), content.message_type.as_str().to_owned());
        self.stored.state.say(content.role, &content.text, metadata, self.now);
        self.stored.total_entries = self.stored.total_entries.saturating_add(1);
    }
}

fn message(content: MessageContent) -> Body {
    Body::Message { delta: None, stream_id: None, supersedes: None, content: Some(content), workflow_id: None }
}

/// Returns the number of the attempt to write the document.
pub(super) fn attempt(stored: &StoredState) -> u32 {
    stored.state.debug_loop_count.saturating_add(1)
}

/// Returns the id of the artefact: that of the edited one, the one that the client wants, or the dialogue's own id,
/// which is unique.
pub fn workflow_id(stored: &StoredState) -> String {
    let context = &stored.state.workflow_context;
    let edited = (context.origin == Origin::Edit).then_some(context.source_workflow_id.as_str());
    let known = stored.state.workflow_id.as_deref().or(edited).or(stored.config.target_id());
    let own = if stored.id.is_empty() { &stored.state.session_id } else { &stored.id };
    known.filter(|id| !id.is_empty()).unwrap_or(own).to_owned()
}

/// Returns the actions that the user may take in the current stage: ids of open questions, `confirm_requirements`,
/// `choose_alternative` or `publish`.
pub fn pending_actions(stored: &StoredState) -> Vec<String> {
    let action = match stored.state.stage {
        Stage::Clarification => return stored.state.clarification_context.pending_questions.clone(),
        Stage::Negotiation => "confirm_requirements",
        Stage::AlternativeGeneration => "choose_alternative",
        Stage::Completed if is_unpublished(stored) => "publish",
        _ => return Vec::new(),
    };
    vec![action.to_owned()]
}

/// Returns true if the last document passed its checks and is not published.
pub(super) fn is_unpublished(stored: &StoredState) -> bool {
    let published = stored.published.as_ref().map(|published| published.hash.as_str());
    stored.draft.as_ref().is_some_and(|draft| draft.ok == Some(true) && published != Some(draft.hash.as_str()))
}
