//! Tokens that see only some sessions.

use super::{Guarded, code, opened};
use crate::scenarios::{answer, engine};
use crate::support::engine::Backend;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn entries() -> [Value; 4] {
    [
        json!({"name": "web", "role": "channel", "channels": ["web"]}),
        json!({"name": "shop", "role": "channel", "session_prefix": "shop-"}),
        json!({"name": "lead", "role": "operator", "channels": ["web"], "agents": ["sales"]}),
        json!({"name": "other", "role": "viewer", "agents": ["support"]}),
    ]
}

async fn a_front_end_sees_its_own_sessions(backend: Backend) {
    let guarded = Guarded::start(&backend, &entries()).await.with_sales().await;
    guarded.begin("w-1", "web").await;
    guarded.begin("x-1", "sms").await;
    guarded.begin("shop-1", "web").await;
    // No worker has seen these sessions yet: the first message says whose they are.
    let follows = async |caller: &str, session_id: &str| {
        let path = format!("/api/v1/sessions/{session_id}/events");
        guarded.ask(caller, reqwest::Method::GET, &path, None).await.status().as_u16()
    };
    assert_eq!((follows("web", "w-1").await, follows("web", "x-1").await), (200, 404));
    assert_eq!((follows("shop", "shop-1").await, follows("shop", "w-1").await), (200, 404));

    // It sends to its own sessions and begins new ones, on its own channel.
    let send = async |caller: &str, message: Value| guarded.post(caller, "/api/v1/messages", &message).await;
    let message = |session_id: &str| json!({"session_id": session_id, "agent_id": "sales", "text": "在吗"});
    assert_eq!(send("web", message("w-1")).await.0, 202);
    assert_eq!(send("web", message("w-2")).await.0, 202);
    assert_eq!(follows("web", "w-2").await, 200, "its only channel is filled in");
    let (status, body) = send("web", message("x-1")).await;
    assert_eq!((status, code(&body)), (404, "unknown_session"));
    let foreign = json!({"session_id": "w-3", "agent_id": "sales", "text": "在吗", "channel": "sms"});
    let (status, body) = send("web", foreign).await;
    assert_eq!((status, code(&body)), (403, "forbidden"));
    assert!(body["error"]["message"].as_str().unwrap().contains("`sms`"), "{body}");
    assert_eq!(send("shop", message("w-9")).await.0, 404);
    assert_eq!(send("shop", message("shop-9")).await.0, 202);
}

async fn another_s_session_is_404_wherever_it_is_named(backend: Backend) {
    let engine = engine(backend, answer("好"), vec![answer("好"); 3]).await;
    let guarded = Guarded::of(&engine, &entries()).await;
    for (session_id, channel) in [("w-1", "web"), ("x-1", "sms")] {
        opened(&guarded, &engine, session_id, channel).await;
    }
    let (_, document) = guarded.get("root", "/openapi.json").await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let asked = |session_id: &str| path.replace("{session_id}", session_id).replace("{turn_id}", "t1");
            if !path.contains("{session_id}") || method == "delete" {
                continue;
            }
            let ask = async |caller: &str, session_id: &str| {
                let body = (method != "get").then(|| json!({"text": "好"}));
                let method = method.to_uppercase().parse().unwrap();
                guarded.ask(caller, method, &asked(session_id), body.as_ref()).await.status().as_u16()
            };
            assert_eq!(ask("lead", "x-1").await, 404, "{method} {path}");
            if !path.contains("{turn_id}") {
                assert_ne!(ask("lead", "w-1").await, 404, "{method} {path}");
            }
        }
    }
}

async fn listings_have_what_a_caller_may_see(backend: Backend) {
    let engine = engine(backend, answer("好"), vec![answer("好"); 3]).await;
    let guarded = Guarded::of(&engine, &entries()).await;
    for (session_id, channel) in [("w-1", "web"), ("x-1", "sms"), ("w-2", "web")] {
        opened(&guarded, &engine, session_id, channel).await;
    }
    let listed = async |caller: &str| {
        let (status, body) = guarded.get(caller, "/api/v1/sessions").await;
        assert_eq!(status, 200, "{body}");
        let ids = body["sessions"].as_array().unwrap().iter().map(|one| one["session_id"].as_str().unwrap().to_owned());
        ids.collect::<BTreeSet<_>>()
    };
    assert_eq!(listed("root").await.len(), 3);
    assert_eq!(listed("lead").await, BTreeSet::from(["w-1".to_owned(), "w-2".to_owned()]));
    assert!(listed("other").await.is_empty());
    let (_, agents) = guarded.get("other", "/api/v1/agents").await;
    assert_eq!(agents["agents"], json!([]));
    assert_eq!(guarded.get("other", "/api/v1/agents/sales").await.0, 404);
    for path in ["/api/v1/runs", "/api/v1/timers"] {
        assert_eq!(guarded.get("lead", path).await.0, 403, "{path}");
        assert_eq!(guarded.get("lead", &format!("{path}?session_id=w-1")).await.0, 200, "{path}");
        assert_eq!(guarded.get("lead", &format!("{path}?session_id=x-1")).await.0, 404, "{path}");
    }
    for path in ["/api/v1/dead", "/api/v1/workflows", "/metrics", "/api/v1/processes", "/api/v1/doctor"] {
        assert_eq!(guarded.get("lead", path).await.0, 403, "{path}");
    }
}

async fn who_is_limited_to_a_channel_changes_no_agent(backend: Backend) {
    let entries = [
        json!({"name": "shop", "role": "admin", "channels": ["web"]}),
        json!({"name": "author", "role": "admin", "agents": ["sales"]}),
    ];
    let guarded = Guarded::start(&backend, &entries).await.with_sales().await;
    let sales = guarded.get("root", "/api/v1/agents/sales").await.1["config"].clone();
    let put = async |caller: &str, id: &str| {
        let path = format!("/api/v1/agents/{id}");
        guarded.ask(caller, reqwest::Method::PUT, &path, Some(&sales)).await.status().as_u16()
    };
    assert_eq!((put("shop", "sales").await, put("author", "sales").await, put("author", "ops").await), (403, 200, 404));
    let delete = guarded.ask("shop", reqwest::Method::DELETE, "/api/v1/agents/sales", None).await;
    assert_eq!(delete.status(), 403);
    assert_eq!(guarded.get("shop", "/api/v1/agents/sales").await.0, 200, "it may be read");
}

async fn runs_belong_to_their_session(backend: Backend) {
    let engine = engine(backend, answer("好"), vec![answer("好"); 3]).await;
    let guarded = Guarded::of(&engine, &entries()).await;
    for (session_id, channel) in [("w-1", "web"), ("x-1", "sms")] {
        opened(&guarded, &engine, session_id, channel).await;
    }
    for (run_id, session) in [("r-w", json!("w-1")), ("r-x", json!("x-1")), ("r-none", Value::Null)] {
        let run = json!({"query": "q", "run_id": run_id, "session_id": session});
        let (status, body) = guarded.post("root", "/api/v1/workflows/smart_router/runs", &run).await;
        assert_eq!(status, 202, "{body}");
    }
    for (run_id, status) in [("r-w", 200), ("r-x", 404), ("r-none", 404), ("r-unknown", 404)] {
        assert_eq!(guarded.get("lead", &format!("/api/v1/runs/{run_id}")).await.0, status, "{run_id}");
    }
    let cancelled = guarded.post("lead", "/api/v1/runs/r-x/cancel", &json!({})).await;
    assert_eq!((cancelled.0, code(&cancelled.1)), (404, "unknown_run"));
    let run = json!({"query": "q", "session_id": "x-1"});
    assert_eq!(guarded.post("lead", "/api/v1/workflows/smart_router/runs", &run).await.0, 403);
}

crate::scenarios::on_both_backends!(
    a_front_end_sees_its_own_sessions,
    another_s_session_is_404_wherever_it_is_named,
    listings_have_what_a_caller_may_see,
    runs_belong_to_their_session,
    who_is_limited_to_a_channel_changes_no_agent,
);
