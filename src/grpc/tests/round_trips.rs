//! Every field survives the way over the wire, and values that a message must not have are refused.

use super::support::{entry, event, request, says, state};
use crate::author::{AuthorRequest, AuthorResponse};
use crate::generated::workflow_agent as wire;
use prost::Message;
use serde_json::json;
use types::authoring::{
    AlternativeOption, Body, Category, ClarificationQuestion, Complexity, ConversationConfig, ErrorCode, ErrorContent,
    Language, MessageContent, MessageType, Origin, Purpose, Speaker, Stage, StatusContent, WorkflowContext,
};

fn sent(request: &AuthorRequest) -> Result<AuthorRequest, String> {
    let bytes = wire::ConversationRequest::from(request.clone()).encode_to_vec();
    let read = wire::ConversationRequest::decode(bytes.as_slice()).unwrap();
    AuthorRequest::try_from(read).map_err(|error| error.to_string())
}

fn full_request() -> AuthorRequest {
    let mut state = state(Stage::Debug, vec![entry(Speaker::User, "你好"), entry(Speaker::System, "failed")]);
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
        resolves: String::new(),
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
    for code in ErrorCode::ALL {
        let content = ErrorContent {
            error_code: code,
            message: "出错".into(),
            details: "50".into(),
            is_recoverable: code.is_recoverable(),
        };
        survives(event(Body::Error { content }));
    }
    let mut request = full_request();
    for language in Language::ALL {
        request.config.language = *language;
        assert_eq!(sent(&request), Ok(request.clone()));
    }
}

/// Converts the response for the wire and back, and asserts that it is the same.
fn survives(response: AuthorResponse) -> wire::ConversationResponse {
    let bytes = response.clone().into_wire("会话-1".into(), Language::Zh).unwrap().encode_to_vec();
    let read = wire::ConversationResponse::decode(bytes.as_slice()).unwrap();
    assert_eq!(AuthorResponse::from_wire(read.clone(), "会话-1"), Ok(response));
    read
}

/// The message on the wire of this event.
fn message_of(response: AuthorResponse) -> wire::MessageContent {
    match survives(response).content {
        Some(wire::conversation_response::Content::Message(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_of_response_survives() {
    let content = MessageContent {
        text: "哪个城市？".into(),
        role: Speaker::Assistant,
        message_type: MessageType::Question,
        metadata: [("attempt".to_owned(), "2".to_owned()), ("event".to_owned(), "of_another_agent".to_owned())].into(),
        alternatives: vec![alternative(Complexity::Complex)],
        questions: vec![ClarificationQuestion {
            id: "q1".into(),
            question: "哪个城市？".into(),
            category: Category::Input,
            is_required: true,
            options: vec!["北京".into(), "上海".into()],
        }],
    };
    let message =
        |content| Body::Message { delta: None, stream_id: None, supersedes: None, content, workflow_id: None };
    let status = Body::Status {
        content: StatusContent {
            new_stage: Stage::Negotiation,
            previous_stage: Stage::Error,
            stage_description: "协商".into(),
            pending_actions: vec!["q1".into()],
        },
    };
    for body in [message(Some(content)), status] {
        for is_final in [true, false] {
            let updated_state = Some(state(Stage::Clarification, vec![]));
            survives(AuthorResponse { updated_state, is_final, ..event(body.clone()) });
        }
    }
}

#[test]
fn a_piece_of_a_text_is_a_message_with_its_stream_and_place() {
    for supersedes in [None, Some("t-1")] {
        let body = Body::Message {
            delta: Some("你好".into()),
            stream_id: Some("t-2".into()),
            supersedes: supersedes.map(Into::into),
            content: None,
            workflow_id: None,
        };
        let message = message_of(AuthorResponse { seq: 7, ..event(body) });
        assert_eq!((message.text.as_str(), message.role.as_str()), ("你好", "assistant"));
        assert_eq!((message.metadata["stream_id"].as_str(), message.metadata["seq"].as_str()), ("t-2", "7"));
        assert_eq!(message.metadata.get("supersedes").map(String::as_str), supersedes);
    }
}

#[test]
fn the_last_message_of_a_completed_turn_names_the_artefact() {
    let content = MessageContent { text: "完成".into(), role: Speaker::Assistant, ..MessageContent::default() };
    let body = Body::Message {
        delta: Some("完成".into()),
        stream_id: None,
        supersedes: None,
        content: Some(content),
        workflow_id: Some("weather".into()),
    };
    let message = message_of(AuthorResponse { is_final: true, ..event(body) });
    assert_eq!(message.metadata, [("workflow_id".to_owned(), "weather".to_owned())].into());
}

#[test]
fn a_report_is_a_message_with_its_event_artefact_and_data() {
    let reports = [
        ("workflow_generation_started", json!({"artifact": "workflow", "action": "edit", "attempt": 2})),
        (
            "workflow_draft",
            json!({"hash": "h", "base_hash": null, "definition": {"a.$b": "<值>"}, "tests": 3, "attempt": 1}),
        ),
        (
            "workflow_debugging",
            json!({"attempt": 1, "ok": false, "errors": [{"code": "x"}], "warnings": [],
                "tests": {"passed": 1, "failed": [{"name": "t"}], "not_run": []}}),
        ),
        ("workflow_complete", json!({"hash": "h", "definition": {}, "published": false, "url": ""})),
    ];
    for (name, data) in reports {
        let report: Body = serde_json::from_value(json!({"type": name, "workflow_id": "天气", "data": data})).unwrap();
        let message = message_of(event(report.clone()));
        assert_eq!((message.metadata["event"].as_str(), message.metadata["workflow_id"].as_str()), (name, "天气"));
        let read: serde_json::Value = serde_json::from_str(&message.metadata["data"]).unwrap();
        assert_eq!(read, data);
        assert_eq!((message.metadata.len(), message.role.as_str()), (3, "system"));
        // A caller that does not know the event can show the text.
        let english = event(report).into_wire("s".into(), Language::En).unwrap();
        let Some(wire::conversation_response::Content::Message(english)) = english.content else { panic!("{name}") };
        assert!(!message.text.is_empty() && !message.text.is_ascii() && english.text != message.text, "{english:?}");
    }
}

#[test]
fn a_report_without_its_data_breaks_the_protocol() {
    let metadata = [("event".to_owned(), "workflow_draft".to_owned()), ("data".to_owned(), "{}".to_owned())];
    let content = MessageContent { metadata: metadata.into(), ..MessageContent::default() };
    let body =
        Body::Message { delta: None, stream_id: None, supersedes: None, content: Some(content), workflow_id: None };
    let sent = event(body).into_wire("s1".into(), Language::Zh).unwrap();
    let error = AuthorResponse::from_wire(sent, "s1").unwrap_err().to_string();
    assert!(error.starts_with("message.metadata.data is `workflow_draft`"), "{error}");
}

#[test]
fn a_code_of_another_agent_is_kept_in_the_details() {
    let error = wire::ErrorContent { error_code: "tired".into(), details: "later".into(), ..Default::default() };
    let read = ErrorContent::from(error);
    assert_eq!((read.error_code, read.details.as_str()), (ErrorCode::AgentUnavailable, "tired: later"));
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
        assert!(error.to_string().starts_with(field), "{error}");
    }
}

#[test]
fn a_response_of_another_session_is_refused() {
    let response = says("x", None, true).into_wire("s2".into(), Language::Zh).unwrap();
    let refused = |response| AuthorResponse::from_wire(response, "s1").unwrap_err().to_string();
    assert!(refused(response).starts_with("session_id is `s2`"));
    let empty = wire::ConversationResponse { session_id: "s1".into(), ..wire::ConversationResponse::default() };
    assert!(refused(empty).starts_with("content"));
}
