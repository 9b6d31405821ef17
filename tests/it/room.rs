//! Full lanes and full streams refuse messages but accept commands, and a full JetStream drains.

use crate::gateway::Gateway;
use crate::scenarios::{answer, sales_with};
use crate::support::backend::{cluster_of, cluster_with_short_lanes, embedded_with_short_lanes};
use crate::support::engine::{Backend, DEADLINE, Engine, quick};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use crate::support::servers::{ClusterHandles, Server, cluster};
use base::config::{Settings, Streams};
use serde_json::{Value, json};
use storage::queue::{LANE_RESERVE, Publish, QueueError, Storage};
use types::outcome::Outcome;

async fn refused(gateway: &Gateway, session_id: &str, job_id: &str) -> Option<String> {
    let body = json!({"session_id": session_id, "agent_id": "sales", "job_id": job_id, "text": "在吗"});
    let response = gateway.post("/api/v1/messages", &body).await;
    match response.status().as_u16() {
        202 => None,
        503 => Some(response.json::<Value>().await.unwrap()["error"]["message"].as_str().unwrap().to_owned()),
        other => panic!("{other}"),
    }
}

fn answering(asked: &Asked, text: &str) -> Value {
    let reply = answer(text);
    if asked.schema == "plan_and_decision" { plan(json!(null), &reply) } else { reply }
}

/// A hanging turn in a lane with one place, and control commands meanwhile.
async fn commands_fit_into_a_full_lane(backend: Backend) {
    let model = ScriptedModel::start(|_| Answer::Hang).await;
    let engine = Engine::start(backend, model, 1).await;
    engine.apply(sales_with(&json!({}))).await;
    let gateway = Gateway::of(&engine).await;
    assert_eq!(refused(&gateway, "s1", "m-1").await, None);
    eventually(DEADLINE, "the model is asked", || async { !engine.model.asked().is_empty() }).await;
    for job_id in ["m-2", "m-3"] {
        let problem = refused(&gateway, "s1", job_id).await.expect("the lane is full");
        assert!(problem.contains("lane.max_depth"), "{problem}");
    }
    for order in ["timers/cancel", "release", "cancel"] {
        let path = format!("/api/v1/sessions/s1/{order}");
        assert_eq!(gateway.post(&path, &json!({"by": "li"})).await.status(), 202, "{order}");
    }
    let turn = engine.turn("s1", "m-1").await;
    assert_eq!((turn.outcome, turn.reason.as_deref()), (Outcome::Cancelled, Some("operator: li")));
    engine.model.script(|asked| Answer::json(&answering(asked, "好的")));
    eventually(DEADLINE, "the lane takes messages again", || async { refused(&gateway, "s1", "m-4").await.is_none() })
        .await;
    assert_eq!(engine.turn("s1", "m-4").await.outcome, Outcome::Answered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_fit_into_a_full_lane_of_the_embedded_file() {
    commands_fit_into_a_full_lane(embedded_with_short_lanes().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_fit_into_a_full_lane_of_the_cluster() {
    commands_fit_into_a_full_lane(cluster_with_short_lanes().await).await;
}

/// The reserve for commands is limited, too.
async fn the_reserve_has_an_end(backend: Backend) {
    let job = || Publish { session_id: "s1".into(), msg_id: None, payload: "{}".into() };
    backend.queue.publish_message(job()).await.unwrap();
    for _ in 0..LANE_RESERVE {
        backend.queue.publish(job()).await.unwrap();
    }
    let full = backend.queue.publish(job()).await.unwrap_err();
    assert!(matches!(full, QueueError::Full(_)), "{full}");
    let full = backend.queue.publish_message(job()).await.unwrap_err();
    assert!(matches!(full, QueueError::Full(_)), "{full}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reserve_has_an_end_in_the_embedded_file() {
    the_reserve_has_an_end(embedded_with_short_lanes().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reserve_has_an_end_on_the_cluster() {
    the_reserve_has_an_end(cluster_with_short_lanes().await).await;
}

/// The shared MongoDB, and a NATS server whose streams may hold `bytes` in total.
async fn small(bytes: u64, streams: Streams) -> (Server, Settings) {
    let nats = Server::nats_holding(bytes);
    let handles = ClusterHandles { nats_url: nats.address(), ..cluster().await };
    (nats, quick(Settings { streams, ..handles.settings() }))
}

fn used(parts: &[Storage], part: &str) -> Storage {
    parts.iter().find(|storage| storage.part == part).unwrap().clone()
}

/// A model whose replies have 60 KB of text, so that the events exceed their stream, too.
async fn verbose() -> ScriptedModel {
    ScriptedModel::start(|asked| Answer::json(&answering(asked, &"说".repeat(20_000)))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooded_jetstream_refuses_messages_takes_commands_and_drains() {
    let streams = Streams { jobs_max_mib: 4, out_max_mib: 2, dead_max_mib: 1 };
    let (_nats, settings) = small(8 << 20, streams).await;
    let engine = Engine::watching(cluster_of(settings).await, verbose().await).await;
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    let gateway = Gateway::of(&engine).await;
    let mut accepted = Vec::new();
    let problem = loop {
        assert!(accepted.len() < 200, "the stream has a limit");
        let session_id = format!("s{}", accepted.len());
        let body = json!({"session_id": session_id, "agent_id": "sales", "job_id": "m-1", "text": "说".repeat(20_000)});
        let response = gateway.post("/api/v1/messages", &body).await;
        match response.status().as_u16() {
            202 => accepted.push(session_id),
            503 => break response.json::<Value>().await.unwrap()["error"].clone(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(problem["code"], "queue_full", "{problem}");
    assert!(problem["message"].as_str().unwrap().contains("streams.jobs_max_mib"), "{problem}");
    assert!(accepted.len() > 50, "{} messages of 60 KB", accepted.len());
    let order = gateway.post("/api/v1/sessions/s0/timers/cancel", &json!({})).await;
    assert_eq!(order.status(), 202, "the command is accepted");
    // For a channel on NATS the stream itself refuses the message.
    let large = |number: usize| Publish {
        session_id: format!("direct-{number}"),
        msg_id: None,
        payload: vec![b' '; 60_000].into(),
    };
    let mut direct = 0;
    while engine.queue.publish(large(direct)).await.is_ok() {
        direct += 1;
        assert!(direct < 100, "the stream has a limit");
    }
    let text = gateway.get("/metrics").await.text().await.unwrap();
    assert!(text.contains("turnwheel_storage_max_bytes{part=\"jobs\"} 4194304"), "{text}");

    engine.start_worker();
    engine.start_scheduler();
    // The events of early turns are dropped from their full stream.
    for session_id in &accepted {
        let what = format!("the turn of {session_id} is committed");
        let turn = eventually(DEADLINE, &what, || async { engine.store.turn(session_id, "m-1").await.ok()? }).await;
        assert_eq!(turn.outcome, Outcome::Answered, "{session_id}");
    }
    eventually(DEADLINE, "the stream of jobs is empty", || async { engine.queue.backlog().await.unwrap().jobs == 0 })
        .await;
    let parts = engine.queue.storage().await.unwrap();
    let out = used(&parts, "out");
    assert!(out.bytes <= out.max_bytes.unwrap() && out.max_bytes == Some(2 << 20), "{parts:?}");
    assert!(out.bytes > 1 << 20, "the events have filled their stream: {parts:?}");
    assert_eq!(refused(&gateway, "later", "m-1").await, None);
    assert_eq!(engine.turn("later", "m-1").await.outcome, Outcome::Answered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_smaller_where_the_server_has_too_little_room() {
    let (_nats, settings) = small(64 << 20, Streams::default()).await;
    let backend = cluster_of(settings).await;
    let parts = backend.queue.storage().await.unwrap();
    let limits: Vec<u64> = parts.iter().map(|storage| storage.max_bytes.expect("each has a limit")).collect();
    assert!(limits.iter().all(|limit| *limit >= 1 << 20) && limits.iter().sum::<u64>() <= 64 << 20, "{parts:?}");
}
