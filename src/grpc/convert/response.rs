//! Responses. A report (`workflow_*`) is a message with the event in its metadata. Its `text` describes the event in
//! words, for a caller that does not know it.

use super::{report, stage, wire, wire_stage, word_or};
use crate::author::AuthorResponse;
use crate::invalid::Invalid;
use types::authoring::{
    AgentState, AlternativeOption, Body, ClarificationQuestion, ErrorCode, ErrorContent, Language, MessageContent,
    MessageType, Speaker, StatusContent,
};
use types::timestamp::Timestamp;
use wire::conversation_response::Content as WireContent;

/// The metadata of a piece of a text.
const STREAM_ID: &str = "stream_id";
const SEQ: &str = "seq";
const SUPERSEDES: &str = "supersedes";
/// The artefact, in the metadata of reports and of the last message of a turn that completes.
pub(super) const WORKFLOW_ID: &str = "workflow_id";

impl AuthorResponse {
    /// Converts a response for the wire. A response contains neither its session nor the language of its conversation.
    pub(crate) fn into_wire(
        self,
        session_id: String,
        language: Language,
    ) -> Result<wire::ConversationResponse, serde_json::Error> {
        let (kind, content) = match self.body {
            Body::Status { content } => (wire::ResponseType::Status, WireContent::Status(content.into())),
            Body::Error { content } => (wire::ResponseType::Error, WireContent::Error(content.into())),
            body => (wire::ResponseType::Message, WireContent::Message(message(body, self.seq, language)?.into())),
        };
        Ok(wire::ConversationResponse {
            session_id,
            r#type: kind.into(),
            content: Some(content),
            updated_state: self.updated_state.map(Into::into),
            timestamp: self.timestamp.as_millis(),
            is_final: self.is_final,
        })
    }

    /// Reads a response to a request of this session.
    pub(crate) fn from_wire(response: wire::ConversationResponse, session_id: &str) -> Result<Self, Invalid> {
        if response.session_id != session_id {
            return Err(Invalid::field("session_id", &response.session_id, format!("expected `{session_id}`")));
        }
        let (body, seq) = match response.content {
            Some(WireContent::Message(message)) => read(message.try_into()?)?,
            Some(WireContent::Status(status)) => (Body::Status { content: status.try_into()? }, 0),
            Some(WireContent::Error(error)) => (Body::Error { content: error.into() }, 0),
            None => return Err(Invalid::field("content", "", "a response has a message, a status or an error")),
        };
        let updated_state = response.updated_state.map(AgentState::try_from).transpose()?;
        if let Some(state) = updated_state.as_ref().filter(|state| state.session_id != session_id) {
            let remedy = format!("expected `{session_id}`");
            return Err(Invalid::field("updated_state.session_id", &state.session_id, remedy));
        }
        let timestamp = Timestamp::from_millis(response.timestamp);
        Ok(Self { body, seq, updated_state, timestamp, is_final: response.is_final })
    }
}

/// Converts an event that is neither a status nor an error into a message.
fn message(body: Body, seq: u64, language: Language) -> Result<MessageContent, serde_json::Error> {
    let (delta, stream_id, supersedes, content, workflow_id) = match body {
        Body::Message { delta, stream_id, supersedes, content, workflow_id } => {
            (delta, stream_id, supersedes, content, workflow_id)
        }
        other => return report::message(&other, language),
    };
    let piece_seq = content.is_none().then(|| seq.to_string());
    let mut message = content.unwrap_or_else(|| MessageContent {
        text: delta.unwrap_or_default(),
        role: Speaker::Assistant,
        ..MessageContent::default()
    });
    let named = [(STREAM_ID, stream_id), (SEQ, piece_seq), (SUPERSEDES, supersedes), (WORKFLOW_ID, workflow_id)];
    message.metadata.extend(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Ok(message)
}

/// Returns the event of a message, and its number if it is a piece of a text.
fn read(mut message: MessageContent) -> Result<(Body, u64), Invalid> {
    if let Some(report) = report::read(&mut message.metadata)? {
        return Ok((report, 0));
    }
    let seq = message.metadata.remove(SEQ).map(|seq| place(&seq)).transpose()?;
    let mut named = |name: &str| message.metadata.remove(name);
    let (stream_id, supersedes, workflow_id) = (named(STREAM_ID), named(SUPERSEDES), named(WORKFLOW_ID));
    let is_whole = seq.is_none();
    let delta = (!is_whole || workflow_id.is_some()).then(|| message.text.clone());
    let content = is_whole.then_some(message);
    Ok((Body::Message { delta, stream_id, supersedes, content, workflow_id }, seq.unwrap_or_default()))
}

fn place(seq: &str) -> Result<u64, Invalid> {
    seq.parse().map_err(|_| Invalid::field("message.metadata.seq", seq, "a number of at least 0 is allowed"))
}

impl TryFrom<wire::MessageContent> for MessageContent {
    type Error = Invalid;

    fn try_from(message: wire::MessageContent) -> Result<Self, Invalid> {
        let questions = message.questions.into_iter().map(ClarificationQuestion::try_from);
        let alternatives = message.alternatives.into_iter().map(AlternativeOption::try_from);
        Ok(Self {
            text: message.text,
            role: word_or("message.role", &message.role, Speaker::Assistant)?,
            message_type: word_or("message.message_type", &message.message_type, MessageType::Text)?,
            metadata: message.metadata,
            questions: questions.collect::<Result<_, _>>()?,
            alternatives: alternatives.collect::<Result<_, _>>()?,
        })
    }
}

impl From<MessageContent> for wire::MessageContent {
    fn from(message: MessageContent) -> Self {
        Self {
            text: message.text,
            role: message.role.as_str().to_owned(),
            message_type: message.message_type.as_str().to_owned(),
            metadata: message.metadata,
            questions: message.questions.into_iter().map(Into::into).collect(),
            alternatives: message.alternatives.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<wire::StatusContent> for StatusContent {
    type Error = Invalid;

    fn try_from(status: wire::StatusContent) -> Result<Self, Invalid> {
        Ok(Self {
            new_stage: stage("status.new_stage", status.new_stage)?,
            previous_stage: stage("status.previous_stage", status.previous_stage)?,
            stage_description: status.stage_description,
            pending_actions: status.pending_actions,
        })
    }
}

impl From<StatusContent> for wire::StatusContent {
    fn from(status: StatusContent) -> Self {
        Self {
            new_stage: wire_stage(status.new_stage),
            previous_stage: wire_stage(status.previous_stage),
            stage_description: status.stage_description,
            pending_actions: status.pending_actions,
        }
    }
}

impl From<wire::ErrorContent> for ErrorContent {
    fn from(error: wire::ErrorContent) -> Self {
        let wire::ErrorContent { error_code, message, details, is_recoverable } = error;
        // Another agent may have other codes.
        match ErrorCode::parse(&error_code) {
            Some(error_code) => Self { error_code, message, details, is_recoverable },
            None => Self {
                error_code: ErrorCode::AgentUnavailable,
                message,
                details: format!("{error_code}: {details}"),
                is_recoverable,
            },
        }
    }
}

impl From<ErrorContent> for wire::ErrorContent {
    fn from(error: ErrorContent) -> Self {
        let ErrorContent { error_code, message, details, is_recoverable } = error;
        Self { error_code: error_code.as_str().to_owned(), message, details, is_recoverable }
    }
}
