//! Jobs that harm the worker that processes them: each is dead-lettered with its reason, and its lane continues.

use crate::conformance::kit;
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::scenarios::{acts, answer, engine, on_both_backends, sales, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::{backend, eventually};
use async_trait::async_trait;
use engine::action::ActionResult;
use engine::action::tool::{ToolFunction, Tools};
use engine::workflow::{Flow, FlowContext, FlowError, Flows};
use serde_json::{Map, Value, json};
use std::time::Duration;
use storage::queue::{Message, Publish};
use storage::store::records::{Acquire, Acquired, Commit, Committed};
use types::cause::Cause;
use types::duration::Text;
use types::event::{Event, ReplyKind};
use types::outcome::Outcome;
use types::session::Status;

on_both_backends!(
    panic_in_a_registered_tool_cancels_its_turn_only,
    panic_in_a_registered_flow_cancels_its_turn_only,
    json_of_any_depth_crashes_nobody,
    cancelled_timer_does_nothing_however_often_it_is_begun,
    job_whose_reason_would_be_endless_blocks_no_lane,
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

/// An engine whose first decision runs the panicking action.
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
    assert_eq!(turn.attempts, 1, "a panic would repeat, so the turn is not retried");
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
    // A worker that dies immediately.
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
    // As the response of an API, as the response of the model (twice, then a valid one), and as a job.
    let deep = nested(100_000);
    let shallow: Value = serde_json::from_str(&nested(100)).unwrap();
    engine.api.script(move |_, _| (200, shallow.clone()));
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
    // Nesting up to the limit is kept.
    let metadata: Value = serde_json::from_str(&nested(types::depth::MAX_DEPTH - 2)).unwrap();
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "m-2", "text": "x", "metadata": {"deep": metadata}});
    engine.publish_job("s1", job).await;
    engine.turn("s1", "m-2").await;
    let letters = engine.dead_letters().await;
    assert!(matches!(&letters[..], [(Cause::Invalid, Some(_))]), "{letters:?}");
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
    let visits = || async { Metrics::of(&gateway).await.value("turnwheel_unreadable_total") };
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
    // Other sessions are answered meanwhile.
    engine.say("s2", "m-1", "你好").await;
    eventually(DEADLINE, "the lane is visited several times", || async { visits().await >= before + 3.0 }).await;
    set("chat").await;
    let turn = engine.turn("s1", "m-2").await;
    assert_eq!((turn.outcome, turn.attempts), (Outcome::Answered, 1));
    assert!(engine.dead_letters().await.is_empty());
}

/// Redelivery delays in milliseconds that a worker has logged for a refused session.
fn refusals(log: &str, session_id: &str) -> Vec<u64> {
    let session = format!("session_id=\"{session_id}\"");
    let of_session = log.lines().filter(|line| line.contains("wait until this is repaired") && line.contains(&session));
    of_session.map(|line| line.split_once("delay_ms=").unwrap().1.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_the_store_refuses_is_tried_less_and_less_and_keeps_its_jobs() {
    let mut backend = backend::cluster().await;
    backend.settings.worker.max_attempts = 1;
    let model = ScriptedModel::start(|asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(json!(null), &answer("好的"))),
        _ => Answer::json(&answer("好的")),
    });
    let engine = Engine::watching(backend, model.await).await;
    engine.apply(sales()).await;
    let client = mongodb::Client::with_uri_str(&engine.settings.mongodb.uri).await.unwrap();
    let database = client.database(&engine.settings.mongodb.database);
    let validator = async |rule: bson::Document| {
        database.run_command(bson::doc! {"collMod": "sessions", "validator": rule}).await.unwrap();
    };
    validator(bson::doc! {"_id": {"$ne": "s1"}}).await;
    let dir = tempfile::tempdir().unwrap();
    let _worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    engine.publish("s1", "m-1", "你好").await;
    let delays = eventually(DEADLINE, "s1 is retried several times", || async {
        let delays = refusals(&Process::log(dir.path()), "s1");
        (delays.len() >= 4).then_some(delays)
    })
    .await;
    assert!(delays.is_sorted() && delays[3] >= 2 * delays[0], "{delays:?}");
    assert_eq!(engine.say("s2", "m-1", "你好").await.outcome, Outcome::Answered);
    let log = Process::log(dir.path());
    assert!(!log.contains("job intake paused"), "one session does not pause the intake: {log}");
    validator(bson::doc! {}).await;
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!((turn.outcome, turn.attempts), (Outcome::Answered, 1));
    assert!(engine.dead_letters().await.is_empty());
}

async fn job_whose_reason_would_be_endless_blocks_no_lane(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("好的")]).await;
    let long = "说".repeat(25_000);
    let bad = |n: usize, kind: &str, session_id: &str| json!({"type": kind, "session_id": session_id, "job_id": format!("bad-{n}"), "agent_id": "sales", "text": "x"});
    engine.publish_job("s1", bad(1, "user_message", &long)).await;
    engine.publish_job("s1", bad(2, &long, "s1")).await;
    let turn = engine.say("s1", "m-1", "你好").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready);
    let letters = engine.queue.dead_letters(0, 10).await.unwrap();
    let ids: Vec<_> = letters.iter().map(|kept| kept.letter.job_id.as_deref()).collect();
    assert_eq!(ids, [Some("bad-1"), Some("bad-2")]);
    for kept in letters {
        let reason = &kept.letter.reason;
        assert!(reason.len() < 1_100 && reason.ends_with(" bytes]"), "{} bytes: {reason}", reason.len());
    }
}

/// Headers of all dead letters in the stream.
async fn headers(engine: &Engine, names: &[&str]) -> Vec<Vec<Option<String>>> {
    let jetstream = async_nats::jetstream::new(async_nats::connect(&engine.settings.nats.url).await.unwrap());
    let stream = format!("{}_DEAD", engine.settings.namespace.to_uppercase());
    let stream = jetstream.get_stream(stream).await.unwrap();
    let mut found = Vec::new();
    for seq in 1..=stream.cached_info().state.last_sequence {
        let message = stream.get_raw_message(seq).await.unwrap();
        found.push(names.iter().map(|name| message.headers.get(*name).map(ToString::to_string)).collect());
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_have_the_headers_of_the_contract() {
    let engine = engine(backend::cluster().await, answer("您好"), vec![answer("好的")]).await;
    let publish = async |payload: Value, msg_id: Option<&str>| {
        let payload = payload.to_string().into();
        let msg_id = msg_id.map(str::to_owned);
        engine.queue.publish(Publish { session_id: "s1".into(), msg_id, payload }).await.unwrap().seq
    };
    publish(json!({"type": "dance", "session_id": "s1", "job_id": "m-0"}), Some("other")).await;
    publish(json!({"type": "dance", "session_id": "s1", "job_id": "not legal"}), Some("by-header")).await;
    let third = publish(json!(["no job"]), Some("not legal")).await;
    publish(json!({"type": "user_message", "session_id": "s1", "agent_id": "nobody", "text": "x"}), Some("by-id"))
        .await;
    engine.say("s1", "m-1", "你好").await;
    let names = ["Tw-Cause", "Tw-Subject", "Tw-Attempts", "Tw-Job-Id"];
    let found = headers(&engine, &names).await;
    let subject = format!("{}.jobs.s1", engine.settings.namespace);
    for (letter, cause) in found.iter().zip(["invalid", "invalid", "invalid", "unknown_agent"]) {
        let expected = [cause, &subject, "1"].map(|text| Some(text.to_owned()));
        assert_eq!(letter[..3], expected);
    }
    let ids: Vec<_> = found.iter().map(|letter| letter[3].clone().unwrap()).collect();
    assert_eq!([&ids[0], &ids[1], &ids[3]], ["m-0", "by-header", "by-id"]);
    assert!(ids[2].ends_with(&format!("-{third}")) && ids[2].len() > 13, "the default id: {ids:?}");
    let reasons = headers(&engine, &["Tw-Reason"]).await;
    assert!(reasons.iter().all(|reason| reason[0].as_ref().is_some_and(|reason| reason.len() > 10)), "{reasons:?}");
    assert!(reasons[3][0].as_ref().unwrap().contains("`nobody` is not known"), "{reasons:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_job_as_large_as_the_server_takes_is_kept_cut_and_says_so() {
    let engine = engine(backend::cluster().await, answer("您好"), vec![answer("好的")]).await;
    // With the headers of a dead letter, the message exceeds the server's limit.
    let payload = "x".repeat(1024 * 1024 - 50);
    let bytes = payload.len();
    engine.queue.publish(Publish { session_id: "s1".into(), msg_id: None, payload: payload.into() }).await.unwrap();
    let turn = engine.say("s1", "m-1", "你好").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready);
    let kept = engine.queue.dead_letters(0, 10).await.unwrap().remove(0);
    assert_eq!(kept.letter.cut_from, Some(bytes));
    assert!((bytes - 1_000..bytes).contains(&kept.letter.payload.len()), "{} bytes", kept.letter.payload.len());
    assert_eq!(headers(&engine, &["Tw-Payload-Bytes"]).await, [[Some(bytes.to_string())]]);
    let gateway = Gateway::of(&engine).await;
    assert_eq!(gateway.json("/api/v1/dead/1").await["payload_bytes"], bytes);
    let replayed = gateway.post("/api/v1/dead/1/replay", &json!({})).await;
    assert_eq!(replayed.status(), 422, "a cut payload cannot be replayed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letter_that_the_queue_never_takes_holds_up_its_own_lane_alone() {
    let model = ScriptedModel::answering(vec![plan(json!("您好"), &answer("好的"))]).await;
    let engine = Engine::watching(backend::cluster().await, model).await;
    engine.apply(sales()).await;
    let jetstream = async_nats::jetstream::new(async_nats::connect(&engine.settings.nats.url).await.unwrap());
    let stream = jetstream.get_stream(format!("{}_DEAD", engine.settings.namespace.to_uppercase())).await.unwrap();
    let mut config = stream.cached_info().config.clone();
    // Less than the headers of a dead letter need.
    config.max_message_size = 50;
    jetstream.update_stream(config).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let _worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    engine.publish_job("s1", json!({"type": "no such type", "session_id": "s1", "job_id": "bad"})).await;
    let left =
        |log: &str| log.lines().any(|line| line.contains("jobs wait until this is repaired") && line.contains("s1"));
    eventually(DEADLINE, "the lane is released", || async { left(&Process::log(dir.path())) }).await;
    engine.say("s2", "m-1", "你好").await;
    assert!(!Process::log(dir.path()).contains("job intake paused"), "queue and store are reachable");
    assert!(engine.queue.next_in_lane("s1", 0, 0).await.unwrap().is_some(), "the job is not lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_fields_of_a_job_are_ignored_and_logged() {
    let model = ScriptedModel::answering(vec![plan(json!("您好"), &answer("好的"))]).await;
    let engine = Engine::watching(backend::cluster().await, model).await;
    engine.apply(sales()).await;
    let dir = tempfile::tempdir().unwrap();
    let _worker = Process::start(dir.path(), &engine.settings, &["--log", "debug", "worker"]);
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "m-1", "text": "x",
                     "priority": 3});
    engine.publish_job("s1", job).await;
    engine.turn("s1", "m-1").await;
    let log = Process::log(dir.path());
    let line = log.lines().find(|line| line.contains("an unknown field of a job is ignored")).unwrap_or_default();
    assert!(["priority", "s1", "m-1"].iter().all(|part| line.contains(part)), "{line}");
    assert!(!log.contains("field=metadata") && !log.contains("field=text"), "{log}");
}
