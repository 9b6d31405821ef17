//! Every field survives the way over the wire, and values that a message must not have are refused.

use super::support::{entry, request, says, state};
use crate::author::{AuthorRequest, AuthorResponse, Content, ErrorContent, StatusContent};
use crate::generated::workflow_agent as wire;
use crate::state::{
    AlternativeOption, Category, ClarificationQuestion, Complexity, ConversationConfig, Language, MessageType, Origin,
    Purpose, Role, Stage, Words, WorkflowContext,
};
use prost::Message;

fn sent(request: &AuthorRequest) -> Result<AuthorRequest, String> {
    let bytes = wire::ConversationRequest::from(request.clone()).encode_to_vec();
    let read = wire::ConversationRequest::decode(bytes.as_slice()).unwrap();
    AuthorRequest::try_from(read).map_err(|error| error.to_string())
}

fn full_request() -> AuthorRequest {
    let mut state = state(Stage::Debug, vec![entry(Role::User, "你好"), entry(Role::System, "failed")]);
    state.conversations[1].metadata.insert("event".into(), "error".into());
    state.gaps = vec!["短信".into()];
    state.alternatives = vec![alternative(Complexity::Medium)];
    state.workflow_id = Some("weather".into());
    state.debug_loop_count = 2;
    state.clarification_context.purpose = Purpose::GapResolution;
    state.clarification_context.collected_info.insert("city".into(), "北京".into());
    state.clarification_context.pending_questions = vec!["q1".into()];
    state.clarification_context.origin = Origin::Edit;
    let context = WorkflowContext {
        origin: Origin::Copy,
        source_workflow_id: "W1".into(),
        modification_intent: "at noon".into(),
    };
    state.workflow_context = context.clone();
    let config = ConversationConfig {
        enable_streaming: false,
        max_turns: 7,
        timeout_seconds: 9,
        language: Language::En,
        enable_rag: true,
        preferences: [("artifact".to_owned(), "agent".to_owned())].into(),
    };
    AuthorRequest { current_state: Some(state), workflow_context: Some(context), config, ..request("继续") }
}

fn alternative(complexity: Complexity) -> AlternativeOption {
    AlternativeOption {
        id: "a1".into(),
        title: "邮件".into(),
        description: "Sends mail".into(),
        approach: "SMTP".into(),
        trade_offs: vec!["slower".into()],
        complexity,
    }
}

#[test]
fn every_field_of_a_request_survives() {
    let request = full_request();
    assert_eq!(sent(&request), Ok(request));
    let bare = super::support::request("你好");
    assert_eq!(sent(&bare), Ok(bare));
}

#[test]
fn every_stage_and_word_survives() {
    for stage in Stage::ALL {
        let request = AuthorRequest { current_state: Some(state(*stage, vec![])), ..request("x") };
        assert_eq!(sent(&request), Ok(request));
    }
    for complexity in Complexity::ALL {
        let mut request = full_request();
        request.current_state.as_mut().unwrap().alternatives = vec![alternative(*complexity)];
        assert_eq!(sent(&request), Ok(request));
    }
    let words: Vec<String> = Stage::ALL.iter().map(|stage| serde_json::to_string(stage).unwrap()).collect();
    assert_eq!(words.join(" ").replace('"', ""), Stage::ALL.map_words());
}

trait MapWords {
    fn map_words(&self) -> String;
}

impl<W: Words> MapWords for [W] {
    fn map_words(&self) -> String {
        self.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn every_kind_of_response_survives() {
    let mut asking = says("哪个城市？", Some(state(Stage::Clarification, vec![])), false);
    if let Content::Message(message) = &mut asking.content {
        message.message_type = MessageType::Question;
        message.metadata.insert("stream_id".into(), "s1".into());
        message.alternatives = vec![alternative(Complexity::Complex)];
        message.questions = vec![ClarificationQuestion {
            id: "q1".into(),
            question: "哪个城市？".into(),
            category: Category::Input,
            is_required: true,
            options: vec!["北京".into(), "上海".into()],
        }];
    }
    let status = Content::Status(StatusContent {
        new_stage: Stage::Negotiation,
        previous_stage: Stage::Error,
        stage_description: "协商".into(),
        pending_actions: vec!["answer".into()],
    });
    let error = Content::Error(ErrorContent {
        error_code: "max_turns".into(),
        message: "too many".into(),
        details: "50".into(),
        is_recoverable: true,
    });
    for content in [asking.content.clone(), status, error] {
        for is_final in [true, false] {
            let response = AuthorResponse { content: content.clone(), is_final, ..asking.clone() };
            let bytes = response.clone().into_wire("会话-1".into()).encode_to_vec();
            let read = wire::ConversationResponse::decode(bytes.as_slice()).unwrap();
            assert_eq!(AuthorResponse::from_wire(read, "会话-1"), Ok(response));
        }
    }
}

#[test]
fn absent_values_are_the_defaults() {
    let bare = wire::ConversationRequest {
        session_id: "s1".into(),
        user_id: "anna".into(),
        config: Some(wire::ConversationConfig::default()),
        current_state: Some(wire::AgentState {
            session_id: "s1".into(),
            user_id: "anna".into(),
            ..wire::AgentState::default()
        }),
        ..wire::ConversationRequest::default()
    };
    let read = AuthorRequest::try_from(bare).unwrap();
    assert_eq!(read.config, ConversationConfig::default());
    let state = read.current_state.unwrap();
    assert_eq!((state.stage, state.workflow_id), (Stage::Clarification, None));
    assert_eq!(state.workflow_context, WorkflowContext::default());
}

#[test]
fn values_that_a_request_must_not_have_are_named() {
    type Change = fn(&mut wire::ConversationRequest);
    fn state(request: &mut wire::ConversationRequest) -> &mut wire::AgentState {
        request.current_state.as_mut().unwrap()
    }
    fn config(request: &mut wire::ConversationRequest) -> &mut wire::ConversationConfig {
        request.config.as_mut().unwrap()
    }
    let changes: [(&str, Change); 14] = [
        ("session_id", |request| request.session_id.clear()),
        ("session_id", |request| request.session_id = "a/b".into()),
        ("user_id", |request| request.user_id.clear()),
        ("current_state.session_id", |request| state(request).session_id = "other".into()),
        ("current_state.user_id", |request| state(request).user_id = "berta".into()),
        ("state.stage", |request| state(request).stage = 8),
        ("state.debug_loop_count", |request| state(request).debug_loop_count = -1),
        ("conversations.role", |request| state(request).conversations[0].role = "robot".into()),
        ("workflow_context.origin", |request| request.workflow_context.as_mut().unwrap().origin = "move".into()),
        ("workflow_context.source_workflow_id", |request| {
            request.workflow_context.as_mut().unwrap().source_workflow_id.clear();
        }),
        ("config.language", |request| config(request).language = "fr".into()),
        ("config.max_turns", |request| config(request).max_turns = 501),
        ("config.timeout_seconds", |request| config(request).timeout_seconds = -1),
        ("config.preferences", |request| {
            config(request).preferences.insert("长".repeat(70), String::new());
        }),
    ];
    for (field, change) in changes {
        let mut request = wire::ConversationRequest::from(full_request());
        change(&mut request);
        let error = AuthorRequest::try_from(request).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(!error.remedy.is_empty(), "{error}");
    }
}

#[test]
fn a_response_of_another_session_is_refused() {
    let response = says("x", None, true).into_wire("s2".into());
    assert_eq!(AuthorResponse::from_wire(response, "s1").unwrap_err().field, "session_id");
    let empty = wire::ConversationResponse { session_id: "s1".into(), ..wire::ConversationResponse::default() };
    assert_eq!(AuthorResponse::from_wire(empty, "s1").unwrap_err().field, "content");
}
