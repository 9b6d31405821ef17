//! The audit trail, and the names under which callers act.

use super::{Guarded, opened};
use crate::scenarios::{answer, engine, sales_with};
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use crate::support::script::decision;
use serde_json::{Value, json};

fn entries() -> [Value; 2] {
    [json!({"name": "desk", "role": "agent"}), json!({"name": "ops", "role": "operator"})]
}

async fn trail(guarded: &Guarded) -> Vec<(String, String, String, Value)> {
    let (status, body) = guarded.get("root", "/api/v1/audit").await;
    assert_eq!(status, 200, "{body}");
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
    let entries = body["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| {
            (text(entry, "by"), text(entry, "action"), text(entry, "target"), entry["detail"]["status"].clone())
        })
        .collect()
}

async fn every_action_has_an_entry_and_nothing_else_has(backend: Backend) {
    let engine = engine(backend, answer("好"), vec![]).await;
    let guarded = Guarded::of(&engine, &entries()).await;
    opened(&guarded, &engine, "s1", "web").await;
    guarded.get("desk", "/api/v1/sessions/s1").await;
    guarded.post("desk", "/api/v1/sessions/s1/cancel", &json!({})).await;
    assert!(trail(&guarded).await.is_empty(), "a message, a reader and a refused caller change nothing");
    guarded.post("ops", "/api/v1/sessions/s1/cancel", &json!({"reason": "私密的话"})).await;
    guarded.post("desk", "/api/v1/sessions/s1/reply", &json!({"text": "您好"})).await;
    guarded.post("root", "/api/v1/sessions/nobody/close", &json!({})).await;
    let entry = |by: &str, action: &str, target: &str, status: u16| {
        (by.to_owned(), action.to_owned(), target.to_owned(), json!(status))
    };
    let expected = [
        entry("ops", "cancel_session", "session/s1", 202),
        entry("desk", "reply_to_user", "session/s1", 409),
        entry("token", "close_session", "session/nobody", 404),
    ];
    assert_eq!(trail(&guarded).await, expected);
    let (_, body) = guarded.get("root", "/api/v1/audit").await;
    assert!(!body.to_string().contains("私密的话"), "no text of a person enters the trail");
    let ids: Vec<_> = body["entries"].as_array().unwrap().iter().map(|entry| &entry["detail"]["request_id"]).collect();
    assert!(ids.iter().all(|id| id.as_str().is_some_and(|id| !id.is_empty())), "also of requests without one: {ids:?}");
    let first = body["entries"][0]["id"].as_str().unwrap();
    let (_, rest) = guarded.get("root", &format!("/api/v1/audit?after={first}&limit=1")).await;
    assert_eq!(rest["entries"][0], body["entries"][1]);
    let (_, all) = guarded.get("root", "/api/v1/audit?after=2026-01-02T00:00:00Z").await;
    assert_eq!(all["entries"].as_array().unwrap().len(), 3);
}

async fn nobody_acts_under_another_name(backend: Backend) {
    let engine = engine(backend, decision("transferred", Value::Null, json!("请稍候")), vec![]).await;
    let desk = json!({"handoff": {"http": {"method": "POST", "url": "{api}/desk"}}});
    engine.apply(sales_with(&desk)).await;
    let guarded = Guarded::of(&engine, &entries()).await;
    guarded.begin("s1", "web").await;
    eventually(DEADLINE, "a human handles it", || async {
        let session = engine.store.session("s1").await.unwrap();
        session.filter(|session| session.workflow_state.status.as_str() == "transferred")
    })
    .await;
    let reply = json!({"text": "您好", "by": "root"});
    assert_eq!(guarded.post("desk", "/api/v1/sessions/s1/reply", &reply).await.0, 202);
    assert_eq!(guarded.post("desk", "/api/v1/sessions/s1/release", &json!({})).await.0, 202, "it is handed over");
    let jobs = eventually(DEADLINE, "both are turns", || async {
        let (_, body) = guarded.get("root", "/api/v1/sessions/s1/turns").await;
        let turns = body["turns"].as_array().unwrap().clone();
        (turns.len() >= 3).then_some(turns)
    })
    .await;
    let names: Vec<&str> = jobs.iter().filter_map(|turn| turn["job"]["by"].as_str()).collect();
    assert_eq!(names, ["desk", "desk/root"], "the newest first");
    // The conversation is the agent's again.
    eventually(DEADLINE, "released", || async {
        let (status, body) = guarded.post("desk", "/api/v1/sessions/s1/release", &json!({})).await;
        (status == 409 && super::code(&body) == "not_transferred").then_some(())
    })
    .await;
}

crate::scenarios::on_both_backends!(every_action_has_an_entry_and_nothing_else_has, nobody_acts_under_another_name);
