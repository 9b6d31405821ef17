//! A `job_id` that is published again after its session has forgotten it starts a new turn, separate from the earlier
//! one.

use crate::scenarios::{acts, answer, on_both_backends, sales_with};
use crate::support::api;
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, ScriptedModel, plan};
use engine::worker::Worker;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use types::duration::Text;
use types::ids;
use types::outcome::Outcome;
use types::session::RECENT_JOBS;
use types::turn::TurnRecord;

on_both_backends!(
    job_id_that_the_session_has_forgotten_begins_a_turn_of_its_own,
    repeated_turn_of_a_job_id_that_was_forgotten_goes_on_where_it_was,
    job_id_that_was_forgotten_names_no_merged_turn_twice,
);

/// An engine whose model calls the skill for every question about an order, and replies with the result.
async fn orders(mut backend: Backend) -> Engine {
    backend.settings.worker.drain_timeout = Text(Duration::from_millis(100));
    let model = ScriptedModel::start(|asked| {
        let decided = match asked.user.as_str() {
            text if !text.starts_with("查") => answer("嗯"),
            _ if asked.system.contains("shipped") => answer("查到了"),
            text => acts("processing", "SKILL", "query_order", &json!({"order_id": text.trim_start_matches('查')})),
        };
        Answer::json(&if asked.schema == "plan_and_decision" { plan(json!(null), &decided) } else { decided })
    });
    let engine = Engine::watching(backend, model.await).await;
    engine.apply(sales_with(&json!({"greeting": null, "double_text": "merge"}))).await;
    engine.api.script(|_, _| (200, json!({"state": "shipped"})));
    engine
}

/// Publishes enough other jobs that the session forgets `m-1`.
async fn forget(engine: &Engine, round: usize) {
    for n in 0..RECENT_JOBS {
        engine.publish("s1", &format!("other-{round}-{n}"), "嗯").await;
    }
    let last = format!("last-{round}");
    engine.publish("s1", &last, "嗯").await;
    eventually(DEADLINE, "the jobs are processed", || async {
        let session = engine.session("s1").await;
        session.has_handled(&last) && session.lease.is_none()
    })
    .await;
    assert!(!engine.session("s1").await.has_handled("m-1"));
}

/// The second turn of `m-1`.
async fn second(engine: &Engine) -> TurnRecord {
    eventually(DEADLINE, "the second turn of m-1", || async {
        let turns = engine.store.turns("s1", 500).await.unwrap();
        let turn = turns.into_iter().find(|turn| turn.job.job_id == "m-1" && turn.turn_id != "m-1")?;
        engine.session("s1").await.lease.is_none().then_some(turn)
    })
    .await
}

fn keys(engine: &Engine) -> Vec<String> {
    engine.api.calls("/orders").into_iter().map(|call| call.idempotency_key).collect()
}

async fn job_id_that_the_session_has_forgotten_begins_a_turn_of_its_own(backend: Backend) {
    let engine = orders(backend).await;
    engine.start_worker();
    let first = engine.say("s1", "m-1", "查A1").await;
    for (times, text) in [(1, "查A1"), (2, "查B2")] {
        forget(&engine, times).await;
        engine.publish("s1", "m-1", text).await;
        eventually(DEADLINE, "the order is looked up again", || async { keys(&engine).len() > times }).await;
        eventually(DEADLINE, "the turn is over", || async { engine.session("s1").await.has_handled("m-1") }).await;
    }
    let second = second(&engine).await;
    assert!(ids::is_repeated_id(&second.turn_id, "m-1") && ids::is_legal(&second.turn_id));
    assert_eq!(second.outcome, Outcome::Answered);
    let keys = keys(&engine);
    assert_eq!(keys.len(), 3);
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
    assert_eq!(engine.store.turn("s1", "m-1").await.unwrap().unwrap(), first, "the first turn's record stays");
    eventually(DEADLINE, "all three are answered", || async {
        engine.said("s1").await.iter().filter(|(_, text)| text == "查到了").count() == 3
    })
    .await;
    assert!(engine.dead_letters().await.is_empty());
}

async fn repeated_turn_of_a_job_id_that_was_forgotten_goes_on_where_it_was(backend: Backend) {
    let engine = orders(backend).await;
    let worker = engine.start_worker();
    engine.say("s1", "m-1", "查A1").await;
    forget(&engine, 0).await;
    let open = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&open);
    engine.api.script(move |_, _| {
        if is_open.load(Ordering::SeqCst) { (200, json!({"state": "shipped"})).into() } else { api::Answer::Hang }
    });
    engine.publish("s1", "m-1", "查B2").await;
    eventually(DEADLINE, "the order is looked up", || async { keys(&engine).len() == 2 }).await;
    let asked = engine.model.asked().len();
    worker.cancel();
    open.store(true, Ordering::SeqCst);
    engine.start_worker();
    let second = second(&engine).await;
    assert_eq!((second.outcome, second.attempts), (Outcome::Answered, 1));
    let keys = keys(&engine);
    assert_eq!(keys.len(), 3);
    assert_eq!(keys[1], keys[2], "both attempts use the same key");
    assert_eq!(engine.model.asked().len(), asked + 1, "the recorded decision is not asked for again");
}

async fn job_id_that_was_forgotten_names_no_merged_turn_twice(backend: Backend) {
    let engine = orders(backend).await;
    let (stop, worker) = (CancellationToken::new(), Worker::new(engine.services(), &engine.settings));
    let beginning = async {
        engine.say("s1", "m-1", "查A1").await;
        forget(&engine, 0).await;
        stop.cancel();
    };
    tokio::join!(worker.run(&engine.settings, stop.clone()), beginning);
    let model = engine.model.asked().len();
    for (job_id, text) in [("m-1", "嗯"), ("m-2", "查B2")] {
        engine.publish("s1", job_id, text).await;
    }
    engine.start_worker();
    let second = second(&engine).await;
    assert_eq!(second.outcome, Outcome::Answered);
    let session = engine.session("s1").await;
    assert!(session.has_handled("m-1") && session.has_handled("m-2"));
    assert!(engine.model.asked().len() > model);
    assert_eq!(engine.store.turn("s1", "m-2").await.unwrap(), None, "m-2 is merged into the other turn");
}
