//! The filters of the listing of sessions, and its last messages.

use super::{Gateway, refusal};
use crate::conformance::kit::{entry, run_turn, waiting};
use crate::scenarios::on_both_backends;
use crate::support::engine::Backend;
use serde_json::Value;
use types::session::Role;

on_both_backends!(sessions_are_found_by_their_filters_and_show_their_last_message);

async fn sessions_are_found_by_their_filters_and_show_their_last_message(backend: Backend) {
    let store = &backend.store;
    run_turn(store, "s1", 1, |change| {
        change.history = vec![entry(Role::User, "我要退货 Order A-17"), entry(Role::Assistant, &"长".repeat(300))];
    })
    .await;
    run_turn(store, "s2", 2, |change| {
        (change.channel, change.waiting) = ("微信".into(), Some(waiting()));
        change.history = vec![entry(Role::Human, "口令 hidden-words-1 在此")];
    })
    .await;
    run_turn(store, "s3", 3, |_| ()).await;
    let mut settings = backend.settings.clone();
    settings.telemetry.otlp_endpoint = Some("http://user:hidden-words-1@127.0.0.1:9".into());
    let gateway = Gateway::start(&backend.queue, store, &settings).await;
    let listed = async |query: &str| -> Vec<Value> {
        gateway.json(&format!("/api/v1/sessions{query}")).await["sessions"].as_array().unwrap().clone()
    };
    let ids = async |query: &str| -> Vec<String> {
        let mut ids: Vec<_> =
            listed(query).await.iter().map(|one| one["session_id"].as_str().unwrap().into()).collect();
        ids.sort();
        ids
    };
    let all = listed("").await;
    let last = |id: &str| all.iter().find(|one| one["session_id"] == id).unwrap()["last_message"].clone();
    assert_eq!(
        (&last("s1")["role"], &last("s1")["text"]),
        (&"assistant".into(), &format!("{}…", "长".repeat(199)).into())
    );
    assert_eq!((&last("s2")["role"], &last("s2")["text"]), (&"human".into(), &"口令 *** 在此".into()));
    assert!(last("s1")["at"].is_string() && last("s3").is_null());
    for (query, expected) in [
        ("?channel=微信", &["s2"][..]),
        ("?user_id=u1&channel=web", &["s1", "s3"]),
        ("?user_id=u9", &[]),
        ("?waiting=true", &["s2"]),
        ("?waiting=false", &["s1", "s3"]),
        ("?q=order 退货", &["s1"]),
        ("?q=", &["s1", "s2", "s3"]),
        ("?since=2026-01-02T03:04:05%2B08:00", &["s1", "s2", "s3"]),
        ("?until=2026-01-02T03:04:05Z", &[]),
        ("?status=ready&agent_id=sales&channel=web&waiting=false&q=退货&since=2026-01-02T03:04:05Z", &["s1"]),
    ] {
        assert_eq!(ids(query).await, expected, "{query}");
    }
    let at = all.iter().find(|one| one["session_id"] == "s2").unwrap()["updated_at"].as_str().unwrap();
    assert!(ids(&format!("?since={at}")).await.contains(&"s2".to_owned()), "the time itself counts");
    assert!(!ids(&format!("?until={at}")).await.contains(&"s2".to_owned()));
    let long = "x".repeat(201);
    for (query, code) in [
        ("waiting=maybe", "invalid_query"),
        ("since=yesterday", "invalid_query"),
        ("q=a b c d e f g h i j k", "invalid_query"),
        (&format!("q={long}"), "invalid_query"),
        ("channel=a.b", "invalid_id"),
        ("user_id=", "invalid_id"),
    ] {
        let response = gateway.get(&format!("/api/v1/sessions?{query}")).await;
        assert_eq!(refusal(response).await, (400, code.to_owned()), "{query}");
    }
}
