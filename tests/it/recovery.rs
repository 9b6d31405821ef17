//! Failures of recovery that are known from other systems: a database restart during recovery, a result after the lease
//! has expired, a draining worker that takes new work, a lane behind a dead holder, parallel steps that run twice, a
//! message that is taken for a repeat.

use crate::crash::mutants::CANNOT_RENEW;
use crate::scenarios::{acts, answer, sales_with};
use crate::support::engine::{DEADLINE, Engine, quick};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::private;
use crate::support::{api, backend, background, eventually};
use base::clock;
use engine::worker::Worker;
use futures::FutureExt;
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::queue::Publish;
use storage::store::records::{Acquire, Acquired, NewSession};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::event::Event;
use types::job::{Job, JobBody};
use types::session::Status;

/// A model that calls the skill first, and replies when it sees the result.
async fn one_action() -> ScriptedModel {
    ScriptedModel::start(|asked| {
        let order = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}));
        let reply = answer("已发货");
        Answer::json(&match asked.schema.as_str() {
            "plan_and_decision" => plan(json!(null), &order),
            _ if asked.system.contains("shipped") => reply,
            _ => order,
        })
    })
    .await
}

fn quiet(fields: &Value) -> Value {
    let mut agent = sales_with(fields);
    agent.as_object_mut().unwrap().remove("greeting");
    agent
}

/// Calls of the action hang for good until the gate opens. Later calls return immediately.
fn gate(engine: &Engine) -> Arc<AtomicBool> {
    let open = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&open);
    engine.api.script(move |_, _| match is_open.load(Ordering::SeqCst) {
        true => (200, json!({"status": "shipped"})).into(),
        false => api::Answer::Hang,
    });
    open
}

async fn action_runs(engine: &Engine) {
    eventually(DEADLINE, "the action runs", || async { !engine.api.calls("/orders").is_empty() }).await;
}

fn worker(engine: &Engine) -> (Process, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Process::start(dir.path(), &engine.settings, &["worker"]), dir)
}

async fn is_answered_once(engine: &Engine, session_id: &str) {
    let turn = engine.turn(session_id, "m-1").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready, "{turn:?}");
    let texts: Vec<String> = engine.said(session_id).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["已发货"]);
    let keys: Vec<String> = engine.api.calls("/orders").into_iter().map(|call| call.idempotency_key).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    let session = engine.session(session_id).await;
    assert_eq!(session.history.len(), 2, "{:?}", session.history);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_restarted_during_recovery_strands_nothing() {
    let (_nats, mongod, handles) = private().await;
    let backend = backend::cluster_of(quick(handles.settings())).await;
    let engine = Engine::watching(backend, one_action().await).await;
    engine.apply(quiet(&json!({}))).await;
    let open = gate(&engine);
    let (first, _dir) = worker(&engine);
    engine.publish("s1", "m-1", "查订单").await;
    action_runs(&engine).await;
    first.kill();
    let (_second, _other_dir) = worker(&engine);
    eventually(DEADLINE, "the turn is recovered", || async { engine.api.calls("/orders").len() == 2 }).await;
    mongod.kill();
    open.store(true, Ordering::SeqCst);
    mongod.restart();
    is_answered_once(&engine, "s1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_worker_that_wakes_up_after_its_lease_repeats_nothing() {
    let engine = Engine::watching(backend::cluster().await, one_action().await).await;
    engine.apply(quiet(&json!({}))).await;
    let open = gate(&engine);
    let (paused, _dir) = worker(&engine);
    engine.publish("s1", "m-1", "查订单").await;
    action_runs(&engine).await;
    paused.signal("STOP");
    open.store(true, Ordering::SeqCst);
    let (_second, _other_dir) = worker(&engine);
    engine.turn("s1", "m-1").await;
    paused.signal("CONT");
    // After its pause the first worker receives messages again: the next one is processed once, and the late result has
    // no effect.
    engine.publish("s2", "m-1", "查订单").await;
    engine.turn("s2", "m-1").await;
    is_answered_once_beside(&engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_worker_that_wakes_up_after_its_turn_was_given_up_does_and_says_nothing() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |_| {
        let order = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}));
        Answer::json(&plan(json!(null), &order)).gated(&held)
    })
    .await;
    let mut backend = backend::cluster().await;
    backend.settings.worker.max_attempts = 1;
    let engine = Engine::watching(backend, model).await;
    engine.apply(quiet(&json!({}))).await;
    let (mut paused, dir) = worker(&engine);
    engine.publish("s1", "m-1", "查订单").await;
    eventually(DEADLINE, "the model is asked", || async { !engine.model.asked().is_empty() }).await;
    paused.signal("STOP");
    let (_second, _other_dir) = worker(&engine);
    let turn = engine.turn("s1", "m-1").await;
    assert!(turn.reason.unwrap().starts_with("attempts"));
    let before = engine.events("s1").await;
    // The response arrives while the worker is paused.
    gate.add_permits(1);
    paused.signal("CONT");
    paused.signal("TERM");
    eventually(DEADLINE, "it has ended its turns", || {
        let ended = paused.ended().is_some();
        async move { ended }
    })
    .await;
    assert!(engine.api.calls("/orders").is_empty(), "{}", Process::log(dir.path()));
    assert_eq!(engine.events("s1").await, before);
    assert_eq!(before.iter().filter(|event| matches!(event, Event::Reply(_))).count(), 1, "the apology: {before:?}");
}

/// Like [`is_answered_once`] for `s1`, if `s2` has called the same action.
async fn is_answered_once_beside(engine: &Engine) {
    let texts: Vec<String> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["已发货"]);
    assert_eq!(engine.session("s1").await.history.len(), 2);
    let of_s1 = |key: &String| key.starts_with("s1/");
    let mut keys: Vec<String> = engine.api.calls("/orders").into_iter().map(|call| call.idempotency_key).collect();
    keys.retain(of_s1);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_worker_finishes_its_turn_and_takes_no_other() {
    let engine = Engine::watching(backend::cluster().await, one_action().await).await;
    engine.apply(quiet(&json!({}))).await;
    let open = gate(&engine);
    let (mut draining, dir) = worker(&engine);
    engine.publish("s1", "m-1", "查订单").await;
    action_runs(&engine).await;
    draining.signal("TERM");
    eventually(DEADLINE, "it drains", || async { Process::log(dir.path()).contains("finishing the turns in flight") })
        .await;
    engine.publish("s2", "m-1", "查订单").await;
    open.store(true, Ordering::SeqCst);
    // The hanging call gets no response. The turn is released at the end of the drain, or finished by a retry of the
    // call.
    let (_second, _other_dir) = worker(&engine);
    engine.turn("s2", "m-1").await;
    assert!(!Process::log(dir.path()).contains("s2"), "the draining worker left s2 alone");
    draining.signal("TERM");
    eventually(DEADLINE, "it has ended", || async { Process::log(dir.path()).contains("forced shutdown") }).await;
    eventually(DEADLINE, "the process is gone", || {
        let ended = draining.ended().is_some();
        async move { ended }
    })
    .await;
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_worker_begins_none_of_the_messages_that_wait_in_its_lanes() {
    for backend in [backend::embedded().await, backend::cluster().await] {
        let gate = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&gate);
        let model = ScriptedModel::start(move |asked| {
            let reply = answer("好的");
            let content = if asked.schema == "plan_and_decision" { plan(json!(null), &reply) } else { reply };
            if asked.user == "一" { Answer::json(&content).gated(&held) } else { Answer::json(&content) }
        });
        let engine = Engine::watching(backend, model.await).await;
        engine.apply(quiet(&json!({}))).await;
        for (job_id, text) in [("m-1", "一"), ("m-2", "二"), ("m-3", "三")] {
            engine.publish("s1", job_id, text).await;
        }
        let (stop, worker) = (CancellationToken::new(), Worker::new(engine.services(), &engine.settings));
        let stopping = async {
            eventually(DEADLINE, "the first turn is in flight", || async { !engine.model.asked().is_empty() }).await;
            stop.cancel();
            gate.add_permits(1);
        };
        tokio::join!(worker.run(&engine.settings, stop.clone()), stopping);
        let asked: Vec<String> = engine.model.asked().into_iter().map(|asked| asked.user).collect();
        assert_eq!(asked, ["一"], "the worker finishes its turn in flight and begins no other");
        assert!(engine.session("s1").await.has_handled("m-1"));
        engine.start_worker();
        engine.turn("s1", "m-3").await;
        assert_eq!(engine.said("s1").await.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lane_behind_a_dead_holder_is_taken_when_its_lease_is_over() {
    for backend in [backend::embedded().await, backend::cluster().await] {
        let engine = Engine::start(backend, one_action().await, 1).await;
        gate(&engine).store(true, Ordering::SeqCst);
        engine.apply(quiet(&json!({}))).await;
        let held = Acquire {
            session_id: "s1".into(),
            seq: 1_000_000,
            stream: engine.queue.stream().await.unwrap().created_at,
            rewind: None,
            job_id: "dead".into(),
            owner: "dead".into(),
            token: "dead".into(),
            lease: Duration::from_secs(1),
            new_session: NewSession::default(),
            pin: None,
        };
        assert!(matches!(engine.store.acquire(held).await.unwrap(), Acquired::Granted(_)));
        let begun = clock::now();
        engine.publish("s1", "m-1", "查订单").await;
        let turn = engine.turn("s1", "m-1").await;
        assert!(turn.started_at.as_millis() - begun.as_millis() < 10_000, "{turn:?}");
        assert_eq!(engine.said("s1").await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_steps_that_are_recorded_are_not_run_again_on_resume() {
    let killed = Arc::new(AtomicBool::new(false));
    let goes_on = Arc::clone(&killed);
    let model = ScriptedModel::start(move |asked| match asked.schema.as_str() {
        "plan_and_decision" => {
            Answer::json(&plan(json!(null), &acts("processing", "FLOW", "parallel_analysis", &json!({}))))
        }
        // The third branch blocks until its worker is dead.
        _ if asked.system.contains("只从风险角度") && !goes_on.load(Ordering::SeqCst) => Answer::Hang,
        _ => Answer::Content("看过了".into()),
    })
    .await;
    let engine = Engine::watching(backend::cluster().await, model).await;
    engine.apply(quiet(&json!({}))).await;
    let (first, _dir) = worker(&engine);
    engine.publish("s1", "m-1", "分析一下").await;
    eventually(DEADLINE, "two sides are recorded", || async {
        engine
            .store
            .steps("s1", "m-1")
            .await
            .unwrap()
            .iter()
            .filter(|step| step.key.starts_with("0/parallel_analysis/") && step.kind == "model")
            .count()
            == 2
    })
    .await;
    killed.store(true, Ordering::SeqCst);
    first.kill();
    let (_second, _other_dir) = worker(&engine);
    engine.turn("s1", "m-1").await;
    let asked = engine.model.asked();
    let times = |word: &str| asked.iter().filter(|asked| asked.system.contains(word)).count();
    assert_eq!((times("只从技术角度"), times("只从商业角度"), times("只从风险角度")), (1, 1, 2));
    assert_eq!(engine.said("s1").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn window_for_repeats_swallows_no_message_that_is_meant() {
    for backend in [backend::embedded().await, backend::cluster().await] {
        let engine = Engine::start(backend, one_action().await, 1).await;
        gate(&engine).store(true, Ordering::SeqCst);
        engine.apply(quiet(&json!({}))).await;
        // The same text under two ids, and without ids, is two turns each.
        engine.say("s1", "m-1", "查订单").await;
        engine.say("s1", "m-2", "查订单").await;
        for _ in 0..2 {
            engine.publish_job("s1", json!({"type": "user_message", "session_id": "s1", "text": "查订单"})).await;
        }
        engine.say("s1", "m-3", "查订单").await;
        assert_eq!(engine.said("s1").await.len(), 5);
        // Two wake-ups of one lane with different epochs are both delivered.
        for epoch in [7, 8] {
            let job_id = format!("wake-{epoch}-0");
            let job = Job { session_id: "s1".into(), job_id: job_id.clone(), body: JobBody::Wake };
            let publish =
                Publish { session_id: "s1".into(), msg_id: Some(format!("s1:{job_id}")), payload: job.encode() };
            assert!(!engine.queue.publish(publish).await.unwrap().duplicate);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_worker_begins_no_turn_of_what_its_last_pull_brings() {
    let model = ScriptedModel::start(|_| Answer::json(&plan(json!(null), &answer("好的")))).await;
    let engine = Engine::watching(backend::embedded().await, model).await;
    engine.apply(quiet(&json!({}))).await;
    for round in 0..10 {
        let (stop, worker) = (CancellationToken::new(), Worker::new(engine.services(), &engine.settings));
        let (settings, told) = (engine.settings.clone(), stop.clone());
        let (ends, ended) = tokio::sync::oneshot::channel();
        background(async move {
            worker.run(&settings, told).await;
            let _ = ends.send(());
        });
        let before = format!("before-{round}");
        engine.say(&before, "m-1", "你好").await;
        // The worker pulls, and the queue delivers the next message to it.
        stop.cancel();
        let session_id = format!("s{round}");
        engine.publish(&session_id, "m-1", "你好").await;
        tokio::time::timeout(DEADLINE, ended).await.unwrap().unwrap();
        assert_eq!(engine.store.turn(&session_id, "m-1").await.unwrap(), None, "round {round}");
        assert!(
            engine.queue.next_in_lane(&session_id, 0, 0).await.unwrap().is_some(),
            "the message is kept for other workers"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_cannot_renew_its_leases_ends_with_the_reason() {
    // The turn lasts until its lease must be renewed.
    let model = ScriptedModel::start(|_| Answer::Hang).await;
    let mut engine = Engine::watching(backend::embedded().await, model).await;
    (engine.queue, engine.store) = CANNOT_RENEW((Arc::clone(&engine.queue), Arc::clone(&engine.store)));
    engine.apply(quiet(&json!({}))).await;
    let worker = Worker::new(engine.services(), &engine.settings);
    let running = AssertUnwindSafe(worker.run(&engine.settings, CancellationToken::new())).catch_unwind();
    engine.publish("s1", "m-1", "你好").await;
    let ended = tokio::time::timeout(DEADLINE, running).await.expect("the worker must stop without renewal");
    let problem = ended.expect_err("its process has to know").downcast::<String>().unwrap();
    assert!(problem.contains("the background task `renewal` panicked"), "{problem}");
}
