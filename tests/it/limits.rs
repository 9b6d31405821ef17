//! Back-pressure and limits: floods, slow models, oversized data.

use crate::gateway::Gateway;
use crate::scenarios::{acts, answer, engine, on_both_backends, sales, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine, quick, scripted};
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use crate::support::servers::{self, ClusterHandles, Server};
use crate::support::{backend, eventually};
use ::cluster::nats::NatsQueue;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use base::config;
use engine::workflow::{FlowContext, FlowError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{From, Publish, Queue, QueueError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::duration::Text;
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::session::Status;

on_both_backends!(
    hung_model_does_not_stop_sessions_of_another,
    crowded_jobs_do_not_starve_another_model,
    flooded_session_does_not_starve_others,
    worker_runs_no_more_turns_than_its_concurrency,
    a_megabyte_of_text_is_answered,
    oversized_answers_are_cut_and_say_so,
    oversized_text_of_a_flow_is_cut_and_says_so,
    session_document_does_not_grow_past_its_bounds,
);

/// A model that plans in the first call and replies `好的` in all.
async fn answering() -> ScriptedModel {
    gated(&Arc::new(Semaphore::new(1))).await
}

/// The same model, which responds once the gate has a permit.
async fn gated(gate: &Arc<Semaphore>) -> ScriptedModel {
    let held = Arc::clone(gate);
    ScriptedModel::start(move |asked| {
        let reply = answer("好的");
        let content = if asked.schema == "plan_and_decision" { plan(json!(null), &reply) } else { reply };
        Answer::json(&content).gated(&held)
    })
    .await
}

fn quiet(fields: &Value) -> Value {
    let mut agent = sales_with(fields);
    agent.as_object_mut().unwrap().remove("greeting");
    agent
}

/// An engine whose worker has `places` places for each model, and `sessions` sessions with a model that never responds. No other model
/// was used before.
async fn crowded(mut backend: Backend, places: usize, sessions: usize) -> (Engine, ScriptedModel) {
    let hung = ScriptedModel::start(|_| Answer::Hang).await;
    // Longer than a test takes on a slow machine, so that no call is retried.
    let (timeout, idle_timeout) = (Text(Duration::from_secs(600)), Text(Duration::from_secs(600)));
    backend.settings.worker.concurrency = places;
    backend.settings.models.insert("hung".into(), config::Model { timeout, idle_timeout, ..scripted(&hung) });
    let engine = Engine::start(backend, answering().await, 1).await;
    engine.apply(quiet(&json!({}))).await;
    engine.apply(quiet(&json!({"id": "stuck", "model": "hung"}))).await;
    for number in 0..sessions {
        let session_id = format!("stuck-{number}");
        let job = json!({"type": "user_message", "session_id": session_id, "agent_id": "stuck", "job_id": "m-1", "text": "在吗"});
        engine.publish_job(&session_id, job).await;
    }
    (engine, hung)
}

async fn hung_model_does_not_stop_sessions_of_another(backend: Backend) {
    let (engine, hung) = crowded(backend, 8, 30).await;
    eventually(DEADLINE, "the hung model has its share", || async { hung.asked().len() >= 8 }).await;
    for message in 1..5 {
        engine.say("quick", &format!("m-{message}"), "你好").await;
    }
    assert_eq!(hung.asked().len(), 8, "one place more is kept for other models");
}

async fn crowded_jobs_do_not_starve_another_model(backend: Backend) {
    let (engine, hung) = crowded(backend, 2, 1_500).await;
    for message in 1..10 {
        engine.say("quick", &format!("m-{message}"), "你好").await;
    }
    assert_eq!(hung.asked().len(), 2);
}

async fn flooded_session_does_not_starve_others(backend: Backend) {
    let gate = Arc::new(Semaphore::new(0));
    let engine = Engine::start(backend, gated(&gate).await, 1).await;
    engine.apply(quiet(&json!({}))).await;
    for number in 0..100 {
        engine.publish("flooded", &format!("m-{number}"), "又来了").await;
    }
    for number in 0..5 {
        engine.publish(&format!("other-{number}"), "m-1", "你好").await;
    }
    // While the first message of the flood waits for the model, and 99 wait for it.
    let of_others = |asked: &Asked| asked.user == "你好";
    eventually(DEADLINE, "the others have their turns", || async {
        engine.model.asked().iter().filter(|asked| of_others(asked)).count() == 5
    })
    .await;
    assert!(engine.model.asked().len() <= 6, "the flooded session has one turn at a time");
    gate.add_permits(1);
    engine.turn("flooded", "m-99").await;
    assert_eq!(engine.said("flooded").await.len(), 100, "no message of the flood is lost");
}

async fn worker_runs_no_more_turns_than_its_concurrency(mut backend: Backend) {
    backend.settings.worker.concurrency = 4;
    let gate = Arc::new(Semaphore::new(0));
    let engine = Engine::start(backend, gated(&gate).await, 1).await;
    engine.apply(quiet(&json!({}))).await;
    for number in 0..40 {
        engine.publish(&format!("s{number}"), "m-1", "你好").await;
    }
    eventually(DEADLINE, "the model has its places", || async { engine.model.asked().len() >= 4 }).await;
    gate.add_permits(1);
    for number in 0..40 {
        engine.turn(&format!("s{number}"), "m-1").await;
    }
    let calls = engine.model.asked();
    let at_once = |began| calls.iter().filter(|call| call.began <= began && call.ended.unwrap() > began).count();
    let most = calls.iter().map(|call| at_once(call.began)).max().unwrap();
    assert!(most <= 4, "{most} concurrent turns");
}

async fn a_megabyte_of_text_is_answered(backend: Backend) {
    let engine = Engine::start(backend, answering().await, 1).await;
    engine.apply(quiet(&json!({}))).await;
    let gateway = Gateway::of(&engine).await;
    let text = "x".repeat(1_000_000);
    let message = json!({"session_id": "s1", "agent_id": "sales", "job_id": "m-1", "text": text});
    assert_eq!(gateway.post("/api/v1/messages", &message).await.status(), 202);
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Answered);
    assert!(engine.model.asked()[0].user.contains(&text), "the model gets the whole text");
    let history = &engine.session("s1").await.history;
    assert!(history[0].text.len() < 70_000 && history[1].text == "好的");
}

async fn oversized_answers_are_cut_and_say_so(backend: Backend) {
    let long = "长".repeat(400_000);
    let order = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}));
    let eta = acts("processing", "TOOL", "eta", &json!({"order_id": "A1"}));
    let engine = engine(backend, order, vec![eta, answer(&long)]).await;
    engine.api.script(move |path, _| match path {
        path if path.starts_with("/eta") => (200, json!({"text": "x".repeat(3 << 20)})),
        _ => (200, json!({"text": "y".repeat(600_000)})),
    });
    engine.say("s1", "m-1", "查订单").await;
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    let output = |key: &str| steps.iter().find(|step| step.key == key).unwrap().output.clone();
    let order = output("0/act");
    assert_eq!((&order["ok"], &order["result"]["truncated"]), (&json!(true), &json!(true)));
    assert_eq!(order["result"]["bytes"], 600_011);
    let eta = output("1/act");
    assert!(eta["ok"] == false && eta["error"].as_str().unwrap().contains("larger than 1 MiB"), "{eta}");
    let reply = engine.replies("s1").await.pop().unwrap();
    let (kind, text) = (reply.kind, &reply.text);
    assert_eq!((&reply.metadata["truncated"], &reply.metadata["bytes"]), (&json!(true), &json!(1_200_000)));
    assert_eq!(kind, ReplyKind::Response);
    assert!(text.len() < 300_000 && text.ends_with("of 1200000 bytes]"), "{} bytes", text.len());
    let session = engine.session("s1").await;
    assert!(session.history.last().unwrap().text.len() < 70_000);
}

async fn oversized_text_of_a_flow_is_cut_and_says_so(backend: Backend) {
    let model = ScriptedModel::answering(vec![plan(json!(null), &acts("processing", "FLOW", "long", &json!({})))]);
    let mut engine = Engine::watching(backend, model.await).await;
    engine.flows = engine.flows.clone().with("long", async |_: FlowContext| Ok::<_, FlowError>("长".repeat(400_000)));
    engine.apply(quiet(&json!({"flows": ["long"]}))).await;
    engine.start_worker();
    engine.say("s1", "m-1", "写长一点").await;
    let reply = engine.replies("s1").await.pop().unwrap();
    assert_eq!((&reply.metadata["truncated"], &reply.metadata["bytes"]), (&json!(true), &json!(1_200_000)));
    assert_eq!(reply.kind, ReplyKind::Final);
    assert!(reply.text.len() < 300_000 && reply.text.ends_with("of 1200000 bytes]"), "{} bytes", reply.text.len());
}

async fn session_document_does_not_grow_past_its_bounds(backend: Backend) {
    let update = |n: usize| {
        let params = json!({ format!("note{n}"): "备".repeat(10_000) });
        acts("ready", "SYSTEM", "update_profile", &params)
    };
    let engine = engine(backend, update(0), (1..20).map(update).collect()).await;
    let text = "说".repeat(40_000);
    for number in 0..20 {
        engine.say("s1", &format!("m-{number}"), &text).await;
    }
    let session = engine.session("s1").await;
    assert_eq!(session.profile.len(), 2, "updates beyond 64 KiB are refused");
    let bytes = serde_json::to_vec(&session).unwrap().len();
    assert!(bytes < 400_000, "{bytes} bytes");
    assert_eq!(session.workflow_state.status, Status::Ready);
    let history: usize = session.history.iter().map(|entry| entry.text.len()).sum();
    assert!((128 * 1024..=256 * 1024).contains(&history), "{history} bytes of history");
    let steps = engine.store.steps("s1", "m-5").await.unwrap();
    let refused = steps.iter().find(|step| step.kind == "system").unwrap();
    assert!(refused.output["error"].as_str().unwrap().contains("65536"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_stream_refuses_publishers_and_takes_jobs_again_when_there_is_room() {
    let settings = servers::cluster().await.settings();
    let jetstream = async_nats::jetstream::new(async_nats::connect(&settings.nats.url).await.unwrap());
    let jobs = Config {
        name: format!("{}_JOBS", settings.namespace.to_uppercase()),
        subjects: vec![format!("{}.jobs.*", settings.namespace)],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        max_messages: 3,
        allow_direct: true,
        ..Config::default()
    };
    jetstream.create_stream(jobs).await.unwrap();
    let queue = NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap();
    let job = |n: usize| Publish { session_id: format!("s{n}"), msg_id: None, payload: "{}".into() };
    for number in 0..3 {
        queue.publish(job(number)).await.unwrap();
    }
    let refused = queue.publish(job(3)).await.unwrap_err();
    assert!(matches!(refused, QueueError::Full(_)), "{refused}");
    for delivery in queue.pull(3, DEADLINE).await.unwrap() {
        queue.ack(&delivery.token).await.unwrap();
    }
    eventually(DEADLINE, "there is room", || async { queue.publish(job(4)).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_a_thousand_readers_follow_their_sessions() {
    let settings = servers::cluster().await.settings();
    let queue = NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap();
    let mut readers = Vec::new();
    for number in 0..1_100 {
        readers.push(queue.events(&format!("s{number}"), From::Now).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_model_is_not_waited_for_by_every_turn_anew() {
    let model = ScriptedModel::start(|_| Answer::status(503, "down")).await;
    let engine = Engine::start(backend::embedded().await, model, 1).await;
    engine.apply(sales()).await;
    for number in 0..10 {
        let turn = engine.say(&format!("s{number}"), "m-1", "你好").await;
        assert_eq!(turn.statuses.last().unwrap().status, Status::Cancelled);
        assert!(turn.reason.unwrap().starts_with("model_unavailable"));
    }
    assert_eq!(engine.model.asked().len(), 5 * 2, "five turns with a retry; the others fail immediately");
    assert!(engine.said("s9").await.iter().any(|(kind, _)| *kind == ReplyKind::Apology));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mebibyte_of_text_goes_through_nats_worker_and_mongodb() {
    let server = Server::nats_with("max_payload: 4MB");
    let handles = ClusterHandles { nats_url: server.address(), ..servers::cluster().await };
    let engine = engine(backend::cluster_of(quick(handles.settings())).await, answer("您好"), vec![]).await;
    let gateway = Gateway::of(&engine).await;
    let text = "长".repeat(1024 * 1024 / 3);
    let message = json!({"session_id": "s1", "agent_id": "sales", "job_id": "m-1", "text": text});
    assert_eq!(gateway.post("/api/v1/messages", &message).await.status(), 202);
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!(turn.statuses.last().unwrap().status, Status::Ready, "{:?}", turn.reason);
    assert!(turn.job.user_message().unwrap().text == text, "the record has the whole text");
    assert!(engine.model.asked()[0].user.contains(&text), "the model gets the whole text");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_max_payload_of_nats_is_413_with_a_hint() {
    let gateway = Gateway::idle(&backend::cluster().await).await;
    // The gateway's limit for a body is higher than the server's limit.
    let message = json!({"session_id": "s1", "agent_id": "sales", "text": "x".repeat(1024 * 1024)});
    let refused = gateway.post("/api/v1/messages", &message).await;
    assert_eq!(refused.status(), 413);
    let error = refused.json::<Value>().await.unwrap()["error"].clone();
    assert_eq!(error["code"], "too_large");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("less text")), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("1048576")), "{error}");
}
