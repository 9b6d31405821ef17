//! Events that a worker has committed but not published are published by the next holder, once and in order. The
//! embedded file has no such gap: the commit publishes the events.

use crate::conformance::kit;
use crate::scenarios::{answer, on_both_backends, sales};
use crate::support::backend::{cluster, cluster_of, embedded};
use crate::support::engine::{Backend, DEADLINE, Engine, quick};
use crate::support::eventually;
use crate::support::script::ScriptedModel;
use crate::support::servers::{self, ClusterHandles, Server};
use base::clock;
use serde_json::json;
use storage::store::records::{Acquire, Change, Commit, Committed};
use types::cause::Cause;
use types::event::{EventType, OutEvent, Reply, ReplyKind, StatusEvent, TurnEnd};
use types::outcome::Outcome;
use types::session::Status;

on_both_backends!(
    next_turn_publishes_first_what_the_one_before_has_said,
    redelivered_message_publishes_what_its_turn_has_said,
);

/// The outbox of the dead worker's turn.
pub fn outbox() -> Vec<OutEvent> {
    saying("第一句")
}

fn saying(text: &str) -> Vec<OutEvent> {
    let event = |event_type, key: &str, payload: serde_json::Value| OutEvent {
        channel: "web".into(),
        session_id: "s".into(),
        event_type,
        msg_id: Some(format!("s/m-1/{key}")),
        payload: payload.to_string().into(),
    };
    let status = |previous, status| StatusEvent {
        session_id: "s".into(),
        turn_id: "m-1".into(),
        status,
        previous,
        reason: None,
        at: clock::now(),
        turn: None,
    };
    let reply = Reply {
        reply_id: "s/m-1/0/respond".into(),
        session_id: "s".into(),
        agent_id: "sales".into(),
        user_id: "u1".into(),
        channel: "web".into(),
        turn_id: "m-1".into(),
        kind: ReplyKind::Response,
        text: text.into(),
        seq: 0,
        stream_id: None,
        supersedes: None,
        at: clock::now(),
        metadata: serde_json::Map::new(),
    };
    let end = TurnEnd { jobs: vec!["m-1".into()], outcome: Outcome::Answered, replies: 1, attempts: 1 };
    let last = StatusEvent { turn: Some(end), ..status(Status::Processing, Status::Ready) };
    vec![
        event(EventType::Status, "status/0", json!(status(Status::Ready, Status::Processing))),
        event(EventType::Reply, "0/respond", json!(reply)),
        event(EventType::Status, "ended", json!(last)),
    ]
}

/// An engine whose only worker so far has died between the commit of m-1 and the publication of its events.
async fn left_behind(backend: Backend) -> Engine {
    left(backend, outbox()).await
}

async fn left(backend: Backend, outbox: Vec<OutEvent>) -> Engine {
    let engine = Engine::watching(backend, ScriptedModel::answering(vec![answer("第二句")]).await).await;
    engine.apply(sales()).await;
    let agent = engine.store.agent("sales").await.unwrap().unwrap();
    let plan = crate::conformance::catalog::plan("sales", &agent.hash, "您好");
    engine.store.put_plan(plan).await.unwrap();
    engine.publish("s", "m-1", "在吗").await;
    let taken = engine.queue.pull(1, DEADLINE).await.unwrap();
    let message = &taken[0].message;
    let wish = Acquire { stream: message.stream, ..kit::acquire("s", message.seq, "w1") };
    let grant = kit::granted(engine.store.acquire(wish).await.unwrap());
    let mut change = Change { outbox: outbox.into(), ..kit::change(&grant.session, "m-1") };
    change.workflow_state.hash.clone_from(&agent.hash);
    let commit = kit::commit(&grant, message.seq, Some(change));
    let commit = Commit { stream: message.stream, at: message.at, ..commit };
    assert_eq!(engine.store.commit(commit).await.unwrap(), Committed::Released);
    engine
}

async fn says(engine: &Engine, texts: &[&str]) {
    let said: Vec<String> = engine.said("s").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, texts);
}

async fn next_turn_publishes_first_what_the_one_before_has_said(backend: Backend) {
    let engine = left_behind(backend).await;
    engine.start_worker();
    engine.say("s", "m-2", "还在吗").await;
    says(&engine, &["第一句", "第二句"]).await;
    let last = outbox().len();
    let turns: Vec<String> = engine.events("s").await.iter().filter_map(turn_of).collect();
    let second = turns.iter().position(|turn| turn == "m-2").unwrap();
    assert_eq!(second, last, "all events of m-1 precede those of m-2: {turns:?}");
    assert!(turns[second..].iter().all(|turn| turn == "m-2"), "each event of m-1 is published once: {turns:?}");
}

fn turn_of(event: &types::event::Event) -> Option<String> {
    match event {
        types::event::Event::Reply(reply) => Some(reply.turn_id.clone()),
        types::event::Event::Status(status) => Some(status.turn_id.clone()),
        types::event::Event::Step(step) => Some(step.turn_id.clone()),
        types::event::Event::Turn(turn) => Some(turn.turn_id.clone()),
        types::event::Event::Authoring(event) => Some(event.turn_id.clone()),
        types::event::Event::Handoff(event) => Some(event.turn_id.clone()),
        types::event::Event::Run(_) | types::event::Event::Decision(_) => None,
    }
}

async fn redelivered_message_publishes_what_its_turn_has_said(backend: Backend) {
    let engine = left_behind(backend).await;
    engine.start_worker();
    engine.turn("s", "m-1").await;
    says(&engine, &["第一句"]).await;
    engine.say("s", "m-2", "还在吗").await;
    says(&engine, &["第一句", "第二句"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_was_removed_leaves_nothing_to_publish() {
    let engine = left_behind(cluster().await).await;
    // Acknowledges the message, as after its publication, so that the stream no longer has it.
    let again = engine.queue.pull(1, DEADLINE).await.unwrap();
    engine.queue.ack(&again[0].token).await.unwrap();
    eventually(DEADLINE, "the message is removed", || async {
        engine.queue.next_in_lane("s", 0, 0).await.unwrap().is_none()
    })
    .await;
    engine.start_worker();
    engine.say("s", "m-2", "还在吗").await;
    says(&engine, &["第二句"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_to_the_embedded_file_publishes_what_its_turn_has_said() {
    let engine = left_behind(embedded().await).await;
    assert!(engine.session("s").await.outbox.is_empty(), "the outbox is empty");
    let published = engine.events("s").await;
    assert_eq!(published.iter().filter_map(turn_of).collect::<Vec<_>>(), ["m-1"; 3]);
    // Publishes again, as a worker does after each commit, and as the next holder does after a crash.
    engine.queue.emit(outbox().into()).await.unwrap();
    assert_eq!(engine.events("s").await, published, "once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_that_the_server_takes_no_more_is_dead_lettered_and_the_lane_goes_on() {
    let server = Server::nats_with("max_payload: 1MB");
    let handles = ClusterHandles { nats_url: server.address(), ..servers::cluster().await };
    let engine = left(cluster_of(quick(handles.settings())).await, saying(&"长".repeat(70_000))).await;
    server.kill();
    server.configure("max_payload: 100KB");
    server.restart();
    eventually(DEADLINE, "the restored server is ready", || async {
        engine.queue.ping().await.is_ok() && engine.queue.max_payload() < 100 * 1024
    })
    .await;
    engine.start_worker();
    engine.say("s", "m-2", "还在吗").await;
    says(&engine, &["第二句"]).await;
    let turns: Vec<String> = engine.events("s").await.iter().filter_map(turn_of).collect();
    assert_eq!(turns.iter().filter(|turn| *turn == "m-1").count(), 2, "its statuses are published: {turns:?}");
    let letters = engine.queue.dead_letters(0, 10).await.unwrap();
    let [kept] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((kept.letter.cause, kept.letter.job_id.as_deref()), (Cause::Attempts, Some("m-1")));
    assert!(kept.letter.reason.contains("s/m-1/0/respond (") && kept.letter.reason.contains("max_payload"), "{kept:?}");
}
