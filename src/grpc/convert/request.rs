//! Requests, with the rules that the server checks before it calls the author.

use super::{number, wire};
use crate::author::AuthorRequest;
use crate::invalid::Invalid;
use types::authoring::{AgentState, ConfigError, ConfigRequest, ConversationConfig, Origin, WorkflowContext};
use types::ids;

impl TryFrom<wire::ConversationRequest> for AuthorRequest {
    type Error = Invalid;

    fn try_from(request: wire::ConversationRequest) -> Result<Self, Invalid> {
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

fn check_id(field: &'static str, id: &str) -> Result<(), Invalid> {
    ids::check(field, id).map_err(|error| Invalid::field(field, id, error.to_string()))
}

fn same(field: &str, found: &str, other: &str, expected: &str) -> Result<(), Invalid> {
    if found == expected {
        return Ok(());
    }
    Err(Invalid::field(field, found, format!("it has to be the `{other}` of the request, `{expected}`")))
}

fn check_source(context: &WorkflowContext) -> Result<(), Invalid> {
    if context.origin != Origin::Create && context.source_workflow_id.is_empty() {
        let remedy = format!("the origin `{}` needs the id of the document", context.origin.as_str());
        return Err(Invalid::field("workflow_context.source_workflow_id", "", remedy));
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
    type Error = ConfigError;

    fn try_from(config: wire::ConversationConfig) -> Result<Self, ConfigError> {
        let sent = ConfigRequest {
            enable_streaming: config.enable_streaming,
            max_turns: Some(config.max_turns.into()),
            timeout_seconds: Some(config.timeout_seconds.into()),
            language: Some(config.language),
            enable_rag: Some(config.enable_rag),
            preferences: Some(config.preferences),
        };
        sent.apply(&Self::default())
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
