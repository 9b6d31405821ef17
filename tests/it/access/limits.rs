//! How often a token may ask.

use super::{Guarded, code};
use crate::support::backend::embedded;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use reqwest::Method;
use serde_json::json;

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
