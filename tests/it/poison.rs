//! Jobs that harm whoever handles them: each is given up in the end, with its reason, and its lane goes on.

use crate::conformance::kit;
use crate::gateway::Gateway;
use crate::scenarios::{acts, answer, engine, on_both_backends, sales, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::{backend, eventually};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::time::Duration;
use turnwheel::action::ActionResult;
use turnwheel::action::tool::{ToolFunction, Tools};
use turnwheel::config::duration::Text;
use turnwheel::queue::{Cause, Event, Message, Publish, ReplyKind};
use turnwheel::session::Status;
use turnwheel::store::{Acquire, Acquired, Commit, Committed, Outcome};
use turnwheel::workflow::{Flow, FlowContext, FlowError, Flows};

on_both_backends!(
    panic_in_a_registered_tool_cancels_its_turn_only,
    panic_in_a_registered_flow_cancels_its_turn_only,
    json_of_any_depth_crashes_nobody,
    cancelled_timer_does_nothing_however_often_it_is_begun,
);

struct Panics;

#[async_trait]
impl ToolFunction for Panics {
    async fn call(&self, _: &Map<String, Value>, _: &str) -> ActionResult {
        panic!("the tool is broken");
    }
}

#[async_trait]
impl Flow for Panics {
    async fn run(&self, _: FlowContext) -> Result<String, FlowError> {
        panic!("the flow is broken");
    }
}

/// An engine whose first decision runs what panics.
async fn panicking(backend: Backend, action: &Value, agent: Value) -> Engine {
    let answers = vec![plan(json!("您好，我是小智"), action), answer("好的")];
    let mut engine = Engine::watching(backend, ScriptedModel::answering(answers).await).await;
    engine.tools = Tools::default().with("broken", Panics);
    engine.flows = Flows::builtin().with("broken_flow", Panics);
    engine.start_worker();
    engine.apply(agent).await;
    engine
}

async fn is_cancelled_and_goes_on(engine: &Engine) {
    let turn = engine.say("s1", "m-1", "你好").await;
    let reason = turn.reason.unwrap();
    assert!(reason.starts_with("panic: ") && reason.contains("is broken"), "{reason}");
    assert_eq!(turn.attempts, 1, "a panic comes again: it is not tried again");
    let said = engine.said("s1").await;
    assert_eq!(said.iter().filter(|(kind, _)| *kind == ReplyKind::Apology).count(), 1);
    let turn = engine.say("s1", "m-2", "还在吗").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready);
    let said = engine.said("s1").await;
    assert_eq!(said.iter().filter(|(kind, _)| *kind == ReplyKind::Greeting).count(), 1, "greeted once: {said:?}");
    let mut status = Status::Ready;
    for event in engine.events("s1").await {
        if let Event::Status(event) = event {
            assert_eq!(event.previous, status, "no transition is missing: {event:?}");
            status = event.status;
        }
    }
}

async fn panic_in_a_registered_tool_cancels_its_turn_only(backend: Backend) {
    let agent = sales_with(&json!({"tools": [{"id": "broken", "params": {"type": "object"}}]}));
    let engine = panicking(backend, &acts("processing", "TOOL", "broken", &json!({})), agent).await;
    is_cancelled_and_goes_on(&engine).await;
}

async fn panic_in_a_registered_flow_cancels_its_turn_only(backend: Backend) {
    let agent = sales_with(&json!({"flows": ["broken_flow"]}));
    let engine = panicking(backend, &acts("processing", "FLOW", "broken_flow", &json!({})), agent).await;
    is_cancelled_and_goes_on(&engine).await;
}

async fn cancelled_timer_does_nothing_however_often_it_is_begun(mut backend: Backend) {
    backend.settings.worker.max_attempts = 1;
    let engine = Engine::watching(backend, ScriptedModel::answering(vec![answer("好的")]).await).await;
    engine.apply(sales()).await;
    let take = || async { engine.queue.pull(1, DEADLINE).await.unwrap().remove(0) };
    engine.publish("s", "m-1", "你好").await;
    let first = take().await;
    let wish = |message: &Message, owner: &str| {
        let lease = if owner == "dead" { Duration::ZERO } else { kit::LONG };
        Acquire { stream: message.stream, lease, ..kit::acquire("s", message.seq, owner) }
    };
    let grant = kit::granted(engine.store.acquire(wish(&first.message, "w1")).await.unwrap());
    let done = kit::commit(&grant, first.message.seq, Some(kit::change(&grant.session, "m-1")));
    let done = Commit { stream: first.message.stream, at: first.message.at, ..done };
    assert_eq!(engine.store.commit(done).await.unwrap(), Committed::Released);
    engine.queue.ack(&first.token).await.unwrap();
    let timer = json!({"type": "timer", "session_id": "s", "timer_id": "t", "generation": 7, "name": "follow_up",
                       "due_at": "2026-01-02T03:04:05.000Z", "action": null, "message": "还在吗？"});
    engine.publish_job("s", timer).await;
    let fired = take().await;
    // A worker that dies at once.
    assert!(matches!(engine.store.acquire(wish(&fired.message, "dead")).await.unwrap(), Acquired::Granted(_)));
    engine.queue.nak(&fired.token, Duration::ZERO).await.unwrap();
    engine.start_worker();
    let turn = engine.turn("s", "t-7").await;
    assert_eq!((turn.outcome, turn.attempts, turn.statuses.len()), (Outcome::Noop, 2, 0));
    assert!(engine.dead_letters().await.is_empty());
}

async fn json_of_any_depth_crashes_nobody(backend: Backend) {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let engine = engine(backend, acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"})), vec![]).await;
    // As an API's answer, as a model's answer (twice, then a good one), and as a job.
    let deep = nested(100_000);
    let shallow: Value = serde_json::from_str(&nested(100)).unwrap();
    engine.api.script(move |_, _| (200, shallow.clone(), Duration::ZERO));
    let model_deep = deep.clone();
    engine.model.script(move |asked| match asked.index {
        0 => {
            Answer::json(&plan(json!("您好"), &acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}))))
        }
        1 | 2 => Answer::Content(model_deep.clone()),
        _ => Answer::json(&answer("好的")),
    });
    let turn = engine.say("s1", "m-1", "查订单").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready, "{turn:?}");
    let job = format!(
        r#"{{"type":"user_message","session_id":"s1","agent_id":"sales","text":"x","metadata":{{"deep":{deep}}}}}"#
    );
    engine.queue.publish(Publish { session_id: "s1".into(), msg_id: None, payload: job.into() }).await.unwrap();
    // What a job may nest is kept.
    let metadata: Value = serde_json::from_str(&nested(turnwheel::depth::MAX_DEPTH - 2)).unwrap();
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "m-2", "text": "x", "metadata": {"deep": metadata}});
    engine.publish_job("s1", job).await;
    engine.turn("s1", "m-2").await;
    assert_eq!(engine.dead_letters().await, [(Cause::Invalid, None)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_kills_its_worker_each_time_is_given_up_and_the_lane_goes_on() {
    let model = ScriptedModel::start(|asked| match asked.user.as_str() {
        "毒" => Answer::Hang,
        _ if asked.schema == "plan_and_decision" => Answer::json(&plan(json!(null), &answer("好的"))),
        _ => Answer::json(&answer("好的")),
    })
    .await;
    let mut backend = backend::cluster().await;
    backend.settings.worker.max_attempts = 2;
    let engine = Engine::watching(backend, model).await;
    engine.apply(sales()).await;
    let dir = tempfile::tempdir().unwrap();
    engine.publish("s1", "m-1", "毒").await;
    engine.publish("s1", "m-2", "你好").await;
    for attempt in 1..=2 {
        let worker = Process::start(dir.path(), &engine.settings, &["worker"]);
        eventually(DEADLINE, "the job is begun", || async { engine.model.asked().len() >= attempt }).await;
        worker.kill();
    }
    let _worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Cancelled);
    assert!(turn.reason.unwrap().starts_with("attempts"));
    assert_eq!(engine.dead_letters().await, [(Cause::Attempts, Some("m-1".to_owned()))]);
    let turn = engine.turn("s1", "m-2").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready);
    assert_eq!(engine.model.asked().iter().filter(|asked| asked.user == "毒").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_this_version_cannot_read_keeps_its_attempts_and_is_answered_by_one_that_can() {
    let mut backend = backend::cluster().await;
    backend.settings.worker.max_attempts = 1;
    backend.settings.worker.ack_wait = Text(Duration::from_secs(1));
    let engine = engine(backend, answer("一"), vec![answer("二")]).await;
    let gateway = Gateway::of(&engine).await;
    let visits = || async {
        let text = gateway.get("/metrics").await.text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("turnwheel_unreadable_total "));
        line.map_or(0.0, |value| value.parse::<f64>().unwrap())
    };
    engine.say("s1", "m-1", "你好").await;
    let client = mongodb::Client::with_uri_str(&engine.settings.mongodb.uri).await.unwrap();
    let sessions = client.database(&engine.settings.mongodb.database).collection::<bson::Document>("sessions");
    let set = |kind: &'static str| {
        let update = bson::doc! {"$set": {"kind": kind}, "$unset": {"fence": ""}};
        let updated = sessions.update_one(bson::doc! {"_id": "s1"}, update);
        async { assert_eq!(updated.await.unwrap().modified_count, 1) }
    };
    set("of_a_later_version").await;
    let before = visits().await;
    engine.publish("s1", "m-2", "在吗").await;
    // Others are answered meanwhile.
    engine.say("s2", "m-1", "你好").await;
    eventually(DEADLINE, "it is visited again and again", || async { visits().await >= before + 3.0 }).await;
    set("chat").await;
    let turn = engine.turn("s1", "m-2").await;
    assert_eq!((turn.outcome, turn.attempts), (Outcome::Answered, 1));
    assert!(engine.dead_letters().await.is_empty());
}
