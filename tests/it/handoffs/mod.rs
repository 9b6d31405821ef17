//! Conversations that humans have: who of several people writes, how a claim ends, and how a human takes over and hands
//! back. [`claims`] has the claims, [`takeover`] the way into a handoff and out of it.

mod claims;
mod takeover;

use crate::gateway::Gateway;
use crate::scenarios::{answer, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{ScriptedModel, decision, plan};
use serde_json::{Value, json};
use types::event::{Event, HandoffChange, HandoffEvent};
use types::session::Handoff;

/// An engine without workers or a scheduler, whose agent hands over every conversation.
async fn idle_desk(backend: Backend, handoff: &Value) -> Engine {
    let transfer = decision("transferred", Value::Null, json!("正在为您转接"));
    let answers = vec![plan(json!("您好"), &transfer), answer("好的")];
    let engine = Engine::watching(backend, ScriptedModel::answering(answers).await).await;
    engine.apply(sales_with(&json!({"handoff": handoff}))).await;
    engine
}

/// An engine whose agent has handed over `s1`.
async fn desk(backend: Backend, handoff: &Value) -> Engine {
    let engine = idle_desk(backend, handoff).await;
    engine.start_worker();
    engine.start_scheduler();
    engine.say("s1", "m-1", "转人工").await;
    engine
}

/// Posts a command about `s1`. Returns the status and the body.
async fn post(gateway: &Gateway, verb: &str, body: Value) -> (u16, Value) {
    let response = gateway.post(&format!("/api/v1/sessions/s1/{verb}"), &body).await;
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Claims `s1`, which must succeed.
async fn claim(gateway: &Gateway, body: Value) -> Handoff {
    let (status, result) = post(gateway, "claim", body).await;
    assert_eq!(status, 200, "{result}");
    serde_json::from_value(result["handoff"].clone()).unwrap()
}

/// Sends a human's reply and waits for its turn.
async fn reply(engine: &Engine, gateway: &Gateway, by: &str, text: &str) {
    let (status, body) = post(gateway, "reply", json!({"text": text, "by": by})).await;
    assert_eq!(status, 202, "{body}");
    let turn_id = body["reply_id"].as_str().unwrap().split('/').nth(1).unwrap();
    engine.turn("s1", turn_id).await;
}

async fn handoff(engine: &Engine) -> Handoff {
    engine.session("s1").await.handoff.expect("the session is handed off")
}

/// The changes of the handoff of `s1` that were published so far.
async fn changes(engine: &Engine) -> Vec<HandoffEvent> {
    let events = engine.events("s1").await.into_iter();
    events.filter_map(|event| if let Event::Handoff(event) = event { Some(*event) } else { None }).collect()
}

/// The changes, and who made them.
async fn history_of_changes(engine: &Engine) -> Vec<(HandoffChange, Option<String>)> {
    changes(engine).await.into_iter().map(|event| (event.change, event.by)).collect()
}

async fn claim_is_lost(engine: &Engine) {
    eventually(DEADLINE, "the claim ends", || async { handoff(engine).await.claim.is_none() }).await;
}
