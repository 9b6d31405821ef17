//! Scenario S-10: a worker dies between two actions of a turn, and the recorded action does not run again.

use super::{acts, answer, sales};
use crate::support::engine::{DEADLINE, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::{api, backend, eventually};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use types::event::ReplyKind::{Greeting, Response};
use types::session::Status::{Acknowledged, Processing, Ready, Typing};

/// A model for a turn with two actions, which decides by the results in the prompt.
async fn two_actions() -> ScriptedModel {
    ScriptedModel::start(|asked| {
        let order = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1001"}));
        let eta = acts("processing", "TOOL", "eta", &json!({"order_id": "A1001"}));
        Answer::json(&match () {
            () if asked.schema == "plan_and_decision" => plan(json!("您好，我是小智"), &order),
            () if asked.system.contains("\"days\"") => answer("两天到"),
            () => eta,
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_killed_worker_between_two_actions_is_finished_by_another() {
    let engine = Engine::start(backend::cluster().await, two_actions().await, 0).await;
    engine.apply(sales()).await;
    // The second action blocks until its worker is dead.
    let killed = Arc::new(AtomicBool::new(false));
    let is_killed = Arc::clone(&killed);
    engine.api.script(move |path, _| match path {
        path if path.starts_with("/orders/") => (200, json!({"status": "shipped"})).into(),
        _ if is_killed.load(Ordering::SeqCst) => (200, json!({"days": 2})).into(),
        _ => api::Answer::Hang,
    });
    let dir = tempfile::tempdir().unwrap();
    let first = Process::start(dir.path(), &engine.settings, &["worker"]);
    engine.publish("s1", "m-1", "查一下订单 A1001 的物流并告诉我几天到").await;
    eventually(DEADLINE, "the second action has begun", || async {
        (!engine.api.calls("/eta").is_empty()).then_some(())
    })
    .await;
    let other_dir = tempfile::tempdir().unwrap();
    let _second = Process::start(other_dir.path(), &engine.settings, &["worker"]);
    killed.store(true, Ordering::SeqCst);
    first.kill();
    let death = Instant::now();

    let turn = engine.turn("s1", "m-1").await;
    assert!(death.elapsed() < Duration::from_secs(30), "finished {:?} after the kill", death.elapsed());
    assert_eq!(engine.api.calls("/orders/").len(), 1, "the recorded action does not run again");
    let eta = engine.api.calls("/eta");
    assert_eq!(eta.len(), 2, "the unrecorded action runs again");
    assert_eq!(eta[0].idempotency_key, eta[1].idempotency_key, "under the same idempotency key");
    assert_eq!(turn.attempts, 2);
    let statuses: Vec<_> = turn.statuses.iter().map(|status| status.status).collect();
    assert_eq!(statuses, [Acknowledged, Processing, Typing, Ready]);
    let said = engine.said("s1").await;
    assert_eq!(said, [(Greeting, "您好，我是小智".into()), (Response, "两天到".into())], "each reply once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_told_to_stop_finishes_its_turn() {
    let model = two_actions().await;
    let engine = Engine::start(backend::embedded().await, model, 0).await;
    engine.apply(sales()).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.api.script(move |path, _| match path {
        path if path.starts_with("/eta") => (200, json!({"days": 2})).into(),
        _ => api::Answer::Gated(Arc::clone(&held), 200, json!({"status": "shipped"})),
    });
    let worker = engine.start_worker();
    engine.publish("s1", "m-1", "查订单").await;
    eventually(DEADLINE, "the turn acts", || async { (!engine.api.calls("/orders").is_empty()).then_some(()) }).await;
    worker.cancel();
    gate.add_permits(1);
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.attempts, 1);
    assert_eq!(engine.api.calls("/eta").len(), 1);
}
