//! How often a token may ask.

use super::{Guarded, code};
use crate::support::backend::embedded;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_token_above_its_rate_gets_429_and_the_others_go_on() {
    let entries = [
        json!({"name": "loud", "role": "viewer", "requests_per_minute": 3}),
        json!({"name": "calm", "role": "viewer"}),
    ];
    let guarded = Guarded::start(&embedded().await, &entries).await;
    for _ in 0..3 {
        assert_eq!(guarded.get("loud", "/api/v1/sessions").await.0, 200);
    }
    let refused = guarded.ask("loud", Method::GET, "/api/v1/sessions", None).await;
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    assert_eq!(code(&refused.json().await.unwrap()), "too_many_requests");
    assert_eq!(guarded.get("calm", "/api/v1/sessions").await.0, 200);
}

#[tokio::test]
async fn an_open_event_stream_is_in_flight() {
    let entries = [json!({"name": "web", "role": "channel", "max_in_flight": 1})];
    let guarded = Guarded::start(&embedded().await, &entries).await.with_sales().await;
    guarded.begin("s1", "web").await;
    let stream = guarded.ask("web", Method::GET, "/api/v1/sessions/s1/events", None).await;
    assert_eq!(stream.status(), 200);
    let (status, body) = guarded.get("web", "/api/v1/sessions/s1").await;
    assert_eq!((status, code(&body)), (429, "too_many_requests"));
    drop(stream);
    eventually(DEADLINE, "the place is free again", || async {
        let (status, _) = guarded.get("web", "/openapi.json").await;
        (status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_agent_above_its_rate_gets_429_and_the_others_go_on() {
    let mut backend = embedded().await;
    backend.settings.gateway.agent_messages_per_minute = 2;
    let guarded = Guarded::start(&backend, &[]).await.with_sales().await;
    let send = async |message: serde_json::Value| guarded.post("root", "/api/v1/messages", &message).await;
    let named = json!({"session_id": "s1", "agent_id": "sales", "text": "你好"});
    let unnamed = json!({"session_id": "s1", "text": "你好"});
    assert_eq!((send(named.clone()).await.0, send(unnamed.clone()).await.0), (202, 202));
    for message in [named, unnamed] {
        let (status, body) = send(message).await;
        assert_eq!((status, code(&body)), (429, "too_many_requests"));
    }
    // Another agent has messages of its own: the request gets as far as the unknown agent.
    let other = json!({"session_id": "s2", "agent_id": "support", "text": "你好"});
    assert_eq!(send(other).await.0, 404);
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_a_refused_caller_keeps_none() {
    let mut backend = embedded().await;
    backend.settings.gateway.max_connections_per_address = 2;
    let guarded = Guarded::start(&backend, &[]).await;
    let address = guarded.gateway.base.strip_prefix("http://").unwrap().to_owned();
    // The client of the tests keeps its connection open.
    assert_eq!(guarded.get("root", "/api/v1/sessions").await.0, 200);
    let mut second = tokio::net::TcpStream::connect(&address).await.unwrap();
    let mut third = tokio::net::TcpStream::connect(&address).await.unwrap();
    let mut read = Vec::new();
    tokio::time::timeout(DEADLINE, third.read_to_end(&mut read)).await.unwrap().ok();
    assert!(read.is_empty(), "the third is closed without an answer");
    second.write_all(b"GET /api/v1/sessions HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    tokio::time::timeout(DEADLINE, second.read_to_end(&mut read)).await.expect("closed after the 401").unwrap();
    let text = String::from_utf8(read).unwrap();
    assert!(text.starts_with("HTTP/1.1 401") && text.contains("connection: close"), "{text}");
}
