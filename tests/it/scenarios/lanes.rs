//! Scenario S-11 and the lane: order, one turn at a time, duplicates.

use super::{answer, engine, on_both_backends, sales};
use crate::support::engine::{Backend, DEADLINE, Engine, statuses};
use crate::support::eventually;
use crate::support::script::{Answer, ScriptedModel, plan};
use futures::future::join_all;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use storage::queue::Publish;
use tokio::sync::Semaphore;
use types::event::ReplyKind::Response;
use types::session::Status::{Processing, Ready, Typing};

on_both_backends!(
    s10_same_job_twice_is_one_turn,
    s11_two_workers_keep_every_session_in_order_and_alone,
    messages_published_while_no_worker_runs_are_answered_in_order,
    message_that_arrives_before_the_one_that_makes_its_session_waits_for_it,
    same_job_twice_leaves_the_session_ready,
    job_without_an_id_has_that_of_its_message,
);

async fn s10_same_job_twice_is_one_turn(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("好的")]).await;
    engine.publish("s1", "m-1", "你好").await;
    engine.publish("s1", "m-1", "你好").await;
    engine.say("s1", "m-2", "在吗").await;
    let responses = engine.said("s1").await.into_iter().filter(|(kind, _)| *kind == Response).count();
    assert_eq!(responses, 2);
    assert_eq!(engine.model.asked().len(), 2);
}

/// An engine whose model replies `<message>!`.
async fn echo(backend: Backend, workers: usize) -> Engine {
    gated_echo(backend, workers, &Arc::new(Semaphore::new(1))).await
}

/// An engine whose model replies `<message>!` once the gate has a permit.
async fn gated_echo(backend: Backend, workers: usize, gate: &Arc<Semaphore>) -> Engine {
    let held = Arc::clone(gate);
    let model = ScriptedModel::start(move |asked| {
        let reply = answer(&format!("{}!", asked.user));
        let content = if asked.schema == "plan_and_decision" { plan(json!(null), &reply) } else { reply };
        Answer::json(&content).gated(&held)
    })
    .await;
    let engine = Engine::start(backend, model, workers).await;
    let mut agent = sales();
    agent.as_object_mut().unwrap().remove("greeting");
    engine.apply(agent).await;
    engine
}

async fn s11_two_workers_keep_every_session_in_order_and_alone(backend: Backend) {
    let gate = Arc::new(Semaphore::new(0));
    let engine = gated_echo(backend, 2, &gate).await;
    let sessions: Vec<String> = (0..20).map(|n| format!("会话-{n}")).collect();
    for message in 0..5 {
        join_all(sessions.iter().map(|id| {
            let (job_id, text) = (format!("m-{message}"), format!("{id} {message}"));
            let engine = &engine;
            async move { engine.publish(id, &job_id, &text).await }
        }))
        .await;
    }
    // Every session has a turn in flight, and four more messages.
    eventually(DEADLINE, "every session is asked for", || async { engine.model.asked().len() >= sessions.len() }).await;
    gate.add_permits(1);
    for id in &sessions {
        engine.turn(id, "m-4").await;
        let said: Vec<_> = engine.said(id).await.into_iter().map(|(_, text)| text).collect();
        let expected: Vec<_> = (0..5).map(|message| format!("{id} {message}!")).collect();
        assert_eq!(said, expected);
    }
    let mut by_session: HashMap<String, Vec<_>> = HashMap::new();
    for asked in engine.model.asked() {
        let session = asked.user.split(' ').next().unwrap().to_owned();
        by_session.entry(session).or_default().push((asked.began, asked.ended.unwrap()));
    }
    for calls in by_session.values() {
        assert!(calls.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two turns of a session overlap");
    }
}

async fn messages_published_while_no_worker_runs_are_answered_in_order(backend: Backend) {
    let engine = echo(backend, 0).await;
    for message in 0..10 {
        engine.publish("s1", &format!("m-{message}"), &message.to_string()).await;
    }
    engine.start_worker();
    engine.turn("s1", "m-9").await;
    let said: Vec<_> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    let expected: Vec<_> = (0..10).map(|message| format!("{message}!")).collect();
    assert_eq!(said, expected);
}

async fn message_that_arrives_before_the_one_that_makes_its_session_waits_for_it(backend: Backend) {
    let engine = echo(backend, 0).await;
    engine.publish("s1", "m-0", "0").await;
    let job = json!({"type": "user_message", "session_id": "s1", "job_id": "m-1", "text": "1"});
    engine.publish_job("s1", job).await;
    // A worker has pulled the first message and does not process it. The second names no agent, and the session does
    // not exist yet.
    let first = engine.queue.pull(1, DEADLINE).await.unwrap();
    assert_eq!(first.len(), 1);
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    let said: Vec<_> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["0!", "1!"]);
    assert_eq!(engine.dead_letters().await, []);
}

async fn same_job_twice_leaves_the_session_ready(backend: Backend) {
    let engine = echo(backend, 1).await;
    engine.say("s1", "m-1", "1").await;
    engine.publish("s1", "m-1", "1").await;
    eventually(DEADLINE, "the repeat is dropped", || async {
        engine.queue.next_in_lane("s1", 0, 0).await.unwrap().is_none()
    })
    .await;
    assert_eq!(engine.session("s1").await.workflow_state.status, Ready);
    let turn = engine.say("s1", "m-2", "2").await;
    assert_eq!(statuses(&turn), [Processing, Typing, Ready]);
}

async fn job_without_an_id_has_that_of_its_message(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("好的")]).await;
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "text": "你好"});
    let publish = async |msg_id: &str| {
        let payload = job.to_string().into();
        engine.queue.publish(Publish { session_id: "s1".into(), msg_id: Some(msg_id.into()), payload }).await.unwrap()
    };
    publish("by-header").await;
    engine.turn("s1", "by-header").await;
    // An illegal id is replaced by the default one.
    let seq = publish("not legal").await.seq;
    let session = eventually(DEADLINE, "the second turn is committed", || async {
        let session = engine.session("s1").await;
        (session.recent_jobs.len() == 2).then_some(session)
    })
    .await;
    let id = session.recent_jobs.last().unwrap();
    assert!(id.ends_with(&format!("-{seq}")) && !id.contains("not legal"), "{id}");
}
