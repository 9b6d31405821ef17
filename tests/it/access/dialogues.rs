//! Authoring dialogues over HTTP, without a worker: creation, errors, ownership.

use super::{Guarded, answered, code};
use crate::conformance::session_plans;
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use commands::authoring::Author;
use commands::authoring::chat::{self, ChatMessage};
use reqwest::Method;
use serde_json::{Value, json};
use types::authoring::ConfigRequest;

on_both_backends!(
    a_dialogue_begins_and_shows_where_it_stands,
    a_repeat_of_the_same_request_is_the_same_dialogue,
    a_dialogue_that_cannot_begin_says_why,
    a_dialogue_does_not_take_the_id_of_a_conversation_that_is_about_to_begin,
    what_is_compiled_in_can_be_copied_and_the_plan_of_a_session_cannot,
    the_dialogues_of_others_do_not_exist_for_an_author,
    a_message_that_cannot_be_taken_is_refused_before_the_stream_opens,
    a_deleted_dialogue_leaves_nothing,
);

async fn authors(backend: &Backend) -> Guarded {
    let entries = [("alice", "author"), ("bob", "author"), ("op", "operator"), ("eye", "viewer")];
    Guarded::start(backend, &entries.map(|(name, role)| json!({"name": name, "role": role}))).await
}

async fn begin(guarded: &Guarded, caller: &str, body: Value) -> (u16, Value) {
    guarded.post(caller, "/api/v1/session", &body).await
}

async fn a_dialogue_begins_and_shows_where_it_stands(backend: Backend) {
    let guarded = authors(&backend).await;
    let (status, begun) = begin(&guarded, "alice", json!({"action": "create"})).await;
    assert_eq!(status, 200, "{begun}");
    let session_id = begun["session_id"].as_str().unwrap();
    assert!(uuid::Uuid::parse_str(session_id).is_ok(), "{begun}");
    assert_eq!(begun["action_type"], "create");
    let context = json!({"origin": "create", "source_workflow_id": "", "modification_intent": ""});
    assert_eq!(begun["workflow_context"], context);
    assert_eq!(begun["artifact"], "workflow");
    assert!(!begun["message"].as_str().unwrap().is_empty());
    let (_, shown) = guarded.get("alice", &format!("/api/v1/session/{session_id}")).await;
    assert_eq!(shown["stage"], "clarification");
    assert_eq!((&shown["conversation_turns"], &shown["has_workflow"]), (&json!(0), &json!(false)));
    assert!(shown["last_updated"].as_str().unwrap().ends_with('Z'), "{shown}");
    let (_, history) = guarded.get("alice", &format!("/api/v1/chat/history/{session_id}")).await;
    assert_eq!((&history["total_turns"], &history["conversations"]), (&json!(0), &json!([])));
    assert_eq!(history["current_stage"], "clarification");
    // For operators it is a session like any other.
    let (_, session) = guarded.get("op", &format!("/api/v1/sessions/{session_id}")).await;
    assert_eq!((&session["kind"], &session["user_id"]), (&json!("authoring"), &json!("alice")));
}

async fn a_repeat_of_the_same_request_is_the_same_dialogue(backend: Backend) {
    let guarded = authors(&backend).await;
    let request = json!({"action": "create", "session_id": "d1", "artifact": "agent", "config": {"language": "en"}});
    let (_, first) = begin(&guarded, "alice", request.clone()).await;
    assert_eq!(begin(&guarded, "alice", request.clone()).await, (200, first));
    let others = [
        ("bob", request.clone()),
        ("alice", json!({"action": "create", "session_id": "d1"})),
        ("alice", json!({"action": "create", "session_id": "d1", "artifact": "agent"})),
    ];
    for (caller, other) in others {
        let (status, body) = begin(&guarded, caller, other).await;
        assert_eq!((status, code(&body)), (409, "session_exists"), "{body}");
    }
    // The settings that its messages have changed since are not those of the request.
    let config = ConfigRequest { max_turns: Some(9), ..ConfigRequest::default() };
    let (session_id, user_message) = ("d1".to_owned(), "hi".to_owned());
    let message = ChatMessage { session_id, user_message, message_id: None, config: Some(config) };
    chat::check(backend.store.as_ref(), &Author::User("alice".into()), message).await.unwrap();
    let (status, again) = begin(&guarded, "alice", request.clone()).await;
    assert_eq!((status, &again["session_id"]), (200, &json!("d1")), "{again}");
    let mut other = request;
    other["config"]["max_turns"] = json!(9);
    let (status, body) = begin(&guarded, "alice", other).await;
    assert_eq!((status, code(&body)), (409, "session_exists"), "{body}");
}

async fn a_dialogue_that_cannot_begin_says_why(backend: Backend) {
    let guarded = authors(&backend).await.with_sales().await;
    for (request, status, expected) in [
        (json!({"action": "delete"}), 400, "invalid_action"),
        (json!({"action": "edit"}), 400, "workflow_id_required"),
        (json!({"action": "copy", "workflow_id": ""}), 400, "workflow_id_required"),
        (json!({"action": "create", "workflow_id": "sales"}), 400, "workflow_id_not_allowed"),
        (json!({"action": "edit", "workflow_id": "nope"}), 404, "unknown_workflow"),
        (json!({"action": "edit", "workflow_id": "sales", "artifact": "workflow"}), 404, "unknown_workflow"),
        (json!({"action": "edit", "workflow_id": "sales"}), 403, "not_yours"),
        (json!({"action": "create", "artifact": "poem"}), 400, "invalid_request"),
        (json!({"action": "create", "session_id": "a.b"}), 400, "invalid_request"),
        (json!({"action": "create", "user_id": "bob"}), 400, "invalid_request"),
        (json!({"action": "create", "config": {"max_turns": 501}}), 400, "invalid_config"),
        (json!({"action": "create", "config": {"language": "fr"}}), 400, "invalid_config"),
        (json!({"action": "create", "config": {"preferences": {"target_id": "a/b"}}}), 400, "invalid_config"),
    ] {
        let (found, body) = begin(&guarded, "alice", request.clone()).await;
        assert_eq!((found, code(&body)), (status, expected), "{request}: {body}");
        assert!(!body["error"]["hint"].as_str().unwrap().is_empty());
    }
    // Every author may copy. Operators may edit an artefact without an owner.
    let (status, copied) = begin(&guarded, "alice", json!({"action": "copy", "workflow_id": "sales"})).await;
    assert_eq!((status, &copied["artifact"]), (200, &json!("agent")), "{copied}");
    let (status, edited) = begin(&guarded, "op", json!({"action": "edit", "workflow_id": "sales"})).await;
    assert_eq!((status, &edited["action_type"]), (200, &json!("edit")), "{edited}");
    assert_eq!(edited["workflow_context"]["source_workflow_id"], "sales");
}

async fn a_dialogue_does_not_take_the_id_of_a_conversation_that_is_about_to_begin(backend: Backend) {
    let guarded = authors(&backend).await.with_sales().await;
    let message = json!({"session_id": "c1", "agent_id": "sales", "user_id": "li", "text": "hi"});
    assert_eq!(guarded.post("root", "/api/v1/messages", &message).await.0, 202);
    let request = json!({"action": "create", "session_id": "c1"});
    let (status, body) = begin(&guarded, "alice", request).await;
    assert_eq!((status, code(&body)), (409, "session_exists"), "{body}");
    assert!(backend.store.session("c1").await.unwrap().is_none());
    // Messages of a dialogue itself do not matter.
    let request = json!({"action": "create", "session_id": "d1"});
    assert_eq!(begin(&guarded, "alice", request.clone()).await.0, 200);
    let message = json!({"session_id": "d1", "user_id": "alice", "text": "hi"});
    assert_eq!(guarded.post("root", "/api/v1/messages", &message).await.0, 202);
    assert_eq!(begin(&guarded, "alice", request).await.0, 200);
}

async fn what_is_compiled_in_can_be_copied_and_the_plan_of_a_session_cannot(backend: Backend) {
    let guarded = authors(&backend).await;
    backend.store.put_session_plan(session_plans::plan("plan-1", "s1", "一"), "planner").await.unwrap();
    for (id, artifact) in [("smart_router", "workflow"), ("authoring", "agent")] {
        let (status, copied) = begin(&guarded, "alice", json!({"action": "copy", "workflow_id": id})).await;
        assert_eq!((status, &copied["artifact"]), (200, &json!(artifact)), "{copied}");
        let (status, body) = begin(&guarded, "alice", json!({"action": "edit", "workflow_id": id})).await;
        assert_eq!((status, code(&body)), (403, "not_yours"), "{body}");
    }
    for action in ["copy", "edit"] {
        let (status, body) = begin(&guarded, "op", json!({"action": action, "workflow_id": "plan-1"})).await;
        assert_eq!((status, code(&body)), (404, "unknown_workflow"), "{body}");
    }
}

async fn the_dialogues_of_others_do_not_exist_for_an_author(backend: Backend) {
    let guarded = authors(&backend).await;
    for (caller, id) in [("alice", "d1"), ("bob", "d2")] {
        begin(&guarded, caller, json!({"action": "create", "session_id": id})).await;
    }
    for (method, path) in [
        (Method::GET, "/api/v1/session/d1"),
        (Method::GET, "/api/v1/chat/history/d1"),
        (Method::DELETE, "/api/v1/session/d1"),
        (Method::GET, "/api/v1/session/none"),
    ] {
        let (status, body) = answered(guarded.ask("bob", method.clone(), path, None).await).await;
        assert_eq!((status, code(&body)), (404, "unknown_session"), "{method} {path}: {body}");
    }
    let message = json!({"session_id": "d1", "user_message": "hi"});
    let (status, body) = guarded.post("bob", "/api/v1/chat/stream", &message).await;
    assert_eq!((status, code(&body)), (404, "unknown_session"), "{body}");
    let ids = async |caller: &str, query: &str| -> Vec<String> {
        let (_, body) = guarded.get(caller, &format!("/api/v1/session{query}")).await;
        let ids = body["sessions"].as_array().unwrap().iter().map(|one| one["session_id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    };
    assert_eq!(ids("bob", "").await, ["d2"]);
    assert!(ids("bob", "?user_id=alice").await.is_empty());
    assert_eq!(ids("op", "?user_id=alice").await, ["d1"]);
    assert_eq!(ids("eye", "").await, ["d2", "d1"]);
    assert_eq!(ids("eye", "?limit=1").await, ["d2"]);
    assert!(ids("op", "?stage=completed").await.is_empty());
}

async fn a_message_that_cannot_be_taken_is_refused_before_the_stream_opens(backend: Backend) {
    let guarded = authors(&backend).await.with_sales().await;
    begin(&guarded, "alice", json!({"action": "create", "session_id": "d1"})).await;
    let chat = json!({"session_id": "c1", "agent_id": "sales", "user_id": "op", "text": "hi"});
    assert_eq!(guarded.post("root", "/api/v1/messages", &chat).await.0, 202);
    for (caller, message, status, expected) in [
        ("alice", json!({"session_id": "d1", "user_message": ""}), 400, "empty_message"),
        ("alice", json!({"session_id": "d1", "user_message": " \n　"}), 400, "empty_message"),
        ("alice", json!({"session_id": "d1", "user_message": "长".repeat(21_846)}), 413, "message_too_large"),
        ("alice", json!({"session_id": "d9", "user_message": "hi"}), 404, "unknown_session"),
        ("alice", json!({"session_id": "d1", "user_message": "hi", "message_id": "a/b"}), 400, "invalid_id"),
        (
            "alice",
            json!({"session_id": "d1", "user_message": "hi", "config": {"max_turns": -1}}),
            400,
            "invalid_config",
        ),
    ] {
        let (found, body) = guarded.post(caller, "/api/v1/chat/stream", &message).await;
        assert_eq!((found, code(&body)), (status, expected), "{body}");
    }
    let (_, shown) = guarded.get("alice", "/api/v1/session/d1").await;
    assert_eq!((&shown["stage"], &shown["conversation_turns"]), (&json!("clarification"), &json!(0)));
}

async fn a_deleted_dialogue_leaves_nothing(backend: Backend) {
    let guarded = authors(&backend).await;
    begin(&guarded, "alice", json!({"action": "create", "session_id": "d1"})).await;
    assert_eq!(guarded.ask("alice", Method::DELETE, "/api/v1/session/d1", None).await.status(), 204);
    assert_eq!(guarded.get("op", "/api/v1/session/d1").await.0, 404);
    assert_eq!(guarded.get("op", "/api/v1/sessions/d1").await.0, 404);
    assert!(backend.store.authoring("d1").await.unwrap().is_none());
    let (_, listed) = guarded.get("op", "/api/v1/session").await;
    assert_eq!(listed["sessions"], json!([]));
}
