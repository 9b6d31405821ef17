//! Responses.

use super::{stage, wire, wire_stage, word_or};
use crate::author::{AuthorResponse, Content, ErrorContent, MessageContent, StatusContent};
use crate::state::{AgentState, AlternativeOption, ClarificationQuestion, InvalidField, MessageType, Role, Words};
use types::timestamp::Timestamp;
use wire::conversation_response::Content as WireContent;

impl AuthorResponse {
    /// The message on the wire. A response does not know its session.
    pub(crate) fn into_wire(self, session_id: String) -> wire::ConversationResponse {
        let (kind, content) = match self.content {
            Content::Message(message) => (wire::ResponseType::Message, WireContent::Message(message.into())),
            Content::Status(status) => (wire::ResponseType::Status, WireContent::Status(status.into())),
            Content::Error(error) => (wire::ResponseType::Error, WireContent::Error(error.into())),
        };
        wire::ConversationResponse {
            session_id,
            r#type: kind.into(),
            content: Some(content),
            updated_state: self.updated_state.map(Into::into),
            timestamp: self.timestamp.as_millis(),
            is_final: self.is_final,
        }
    }

    /// Reads a response to a request of this session.
    pub(crate) fn from_wire(response: wire::ConversationResponse, session_id: &str) -> Result<Self, InvalidField> {
        if response.session_id != session_id {
            return Err(InvalidField::new("session_id", response.session_id, format!("expected `{session_id}`")));
        }
        let content = match response.content {
            Some(WireContent::Message(message)) => Content::Message(message.try_into()?),
            Some(WireContent::Status(status)) => Content::Status(status.try_into()?),
            Some(WireContent::Error(error)) => Content::Error(error.into()),
            None => return Err(InvalidField::new("content", "", "a response has a message, a status or an error")),
        };
        let updated_state = response.updated_state.map(AgentState::try_from).transpose()?;
        if let Some(state) = updated_state.as_ref().filter(|state| state.session_id != session_id) {
            let remedy = format!("expected `{session_id}`");
            return Err(InvalidField::new("updated_state.session_id", &state.session_id, remedy));
        }
        let timestamp = Timestamp::from_millis(response.timestamp);
        Ok(Self { content, updated_state, timestamp, is_final: response.is_final })
    }
}

impl TryFrom<wire::MessageContent> for MessageContent {
    type Error = InvalidField;

    fn try_from(message: wire::MessageContent) -> Result<Self, InvalidField> {
        let questions = message.questions.into_iter().map(ClarificationQuestion::try_from);
        let alternatives = message.alternatives.into_iter().map(AlternativeOption::try_from);
        Ok(Self {
            text: message.text,
            role: word_or("message.role", &message.role, Role::Assistant)?,
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
    type Error = InvalidField;

    fn try_from(status: wire::StatusContent) -> Result<Self, InvalidField> {
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
        Self { error_code, message, details, is_recoverable }
    }
}

impl From<ErrorContent> for wire::ErrorContent {
    fn from(error: ErrorContent) -> Self {
        let ErrorContent { error_code, message, details, is_recoverable } = error;
        Self { error_code, message, details, is_recoverable }
    }
}
