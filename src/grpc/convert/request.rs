//! Requests, with the rules that the server checks before it calls the author.

use super::{count, number, wire, word_or};
use crate::author::AuthorRequest;
use crate::state::{AgentState, ConversationConfig, InvalidField, Language, Origin, Words, WorkflowContext};
use types::ids;

impl TryFrom<wire::ConversationRequest> for AuthorRequest {
    type Error = InvalidField;

    fn try_from(request: wire::ConversationRequest) -> Result<Self, InvalidField> {
        check_id("session_id", &request.session_id)?;
        check_id("user_id", &request.user_id)?;
        let current_state = request.current_state.map(AgentState::try_from).transpose()?;
        if let Some(state) = &current_state {
            same("current_state.session_id", &state.session_id, "session_id", &request.session_id)?;
            same("current_state.user_id", &state.user_id, "user_id", &request.user_id)?;
        }
        let workflow_context = request.workflow_context.map(WorkflowContext::try_from).transpose()?;
        if let Some(context) = &workflow_context {
            check_source(context)?;
        }
        Ok(Self {
            session_id: request.session_id,
            user_id: request.user_id,
            user_message: request.user_message,
            current_state,
            workflow_context,
            config: request.config.map(ConversationConfig::try_from).transpose()?.unwrap_or_default(),
        })
    }
}

fn check_id(field: &'static str, id: &str) -> Result<(), InvalidField> {
    ids::check(field, id).map_err(|error| InvalidField::new(field, id, error.to_string()))
}

fn same(field: &str, found: &str, other: &str, expected: &str) -> Result<(), InvalidField> {
    if found == expected {
        return Ok(());
    }
    Err(InvalidField::new(field, found, format!("it has to be the `{other}` of the request, `{expected}`")))
}

fn check_source(context: &WorkflowContext) -> Result<(), InvalidField> {
    if context.origin != Origin::Create && context.source_workflow_id.is_empty() {
        let remedy = format!("the origin `{}` needs the id of the document", context.origin.as_str());
        return Err(InvalidField::new("workflow_context.source_workflow_id", "", remedy));
    }
    Ok(())
}

impl From<AuthorRequest> for wire::ConversationRequest {
    fn from(request: AuthorRequest) -> Self {
        Self {
            session_id: request.session_id,
            user_id: request.user_id,
            user_message: request.user_message,
            current_state: request.current_state.map(Into::into),
            workflow_context: request.workflow_context.map(Into::into),
            config: Some(request.config.into()),
        }
    }
}

impl TryFrom<wire::ConversationConfig> for ConversationConfig {
    type Error = InvalidField;

    fn try_from(config: wire::ConversationConfig) -> Result<Self, InvalidField> {
        let absent = Self::default();
        let or = |given: u32, absent: u32| if given == 0 { absent } else { given };
        let config = Self {
            enable_streaming: config.enable_streaming.unwrap_or(absent.enable_streaming),
            max_turns: or(count("config.max_turns", config.max_turns)?, absent.max_turns),
            timeout_seconds: or(count("config.timeout_seconds", config.timeout_seconds)?, absent.timeout_seconds),
            language: word_or("config.language", &config.language, Language::Zh)?,
            enable_rag: config.enable_rag,
            preferences: config.preferences,
        };
        config.check()?;
        Ok(config)
    }
}

impl From<ConversationConfig> for wire::ConversationConfig {
    fn from(config: ConversationConfig) -> Self {
        Self {
            enable_streaming: Some(config.enable_streaming),
            max_turns: number(config.max_turns),
            timeout_seconds: number(config.timeout_seconds),
            language: config.language.as_str().to_owned(),
            enable_rag: config.enable_rag,
            preferences: config.preferences,
        }
    }
}
