//! Closed conversations expire with everything that belongs to them, and no message is lost.

use crate::deletion::search::{WORD, everywhere};
use crate::scenarios::{answer, on_both_backends, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use base::metrics::{encode, metrics};
use engine::erasure::LaneErasure;
use serde_json::{Value, json};
use std::time::Duration;
use storage::queue::DeadLetter;
use types::cause::Cause;
use types::duration::Text;
use types::outcome::Outcome;
use types::timestamp::Timestamp;

on_both_backends!(
    a_closed_conversation_expires_with_all_that_belongs_to_it,
    a_conversation_with_a_waiting_message_stays,
    a_message_that_arrives_meanwhile_begins_a_new_conversation,
);

/// A reply in the form that is asked for.
fn replies(asked: &Asked, text: &str) -> Answer {
    let decided = answer(text);
    Answer::json(&if asked.schema == "plan_and_decision" { plan(Value::Null, &decided) } else { decided })
}

/// A worker and no scheduler. Each reply repeats the user.
async fn engine(mut backend: Backend, closed_for: Duration) -> Engine {
    backend.settings.retention.closed_sessions = Text(closed_for);
    let model = ScriptedModel::start(|asked| replies(asked, &asked.user)).await;
    let engine = Engine::watching(backend, model).await;
    engine.apply(sales_with(&json!({"greeting": null, "mode": "actions"}))).await;
    engine
}

async fn close(engine: &Engine, session_id: &str) -> Timestamp {
    let job = json!({"type": "control", "session_id": session_id, "command": "close", "job_id": "close-1"});
    engine.publish_job(session_id, job).await;
    eventually(DEADLINE, "the conversation is closed", || async {
        let waits = engine.queue.next_in_lane(session_id, 0, 0).await.unwrap().is_some();
        let session = engine.session(session_id).await;
        let found = engine.store.closed_sessions(Duration::from_millis(1), 10).await.unwrap();
        session.closed_at.filter(|_| !waits && found.iter().any(|(id, _)| id == session_id))
    })
    .await
}

async fn is_gone(engine: &Engine, session_id: &str) -> bool {
    engine.store.session(session_id).await.unwrap().is_none()
}

async fn a_closed_conversation_expires_with_all_that_belongs_to_it(backend: Backend) {
    let engine = engine(backend, Duration::from_millis(1)).await;
    engine.start_worker();
    engine.say("s1", "m-1", WORD).await;
    engine.say("s2", "m-1", "别的").await;
    let letter = DeadLetter {
        cause: Cause::Attempts,
        reason: WORD.into(),
        subject: "tw.jobs.s1".into(),
        attempts: 1,
        job_id: None,
        msg_id: "s1/letter".into(),
        payload: json!({"text": WORD}).to_string().into(),
        cut_from: None,
    };
    engine.queue.publish_dead_letter(letter).await.unwrap();
    close(&engine, "s1").await;
    assert!(!everywhere(&engine).await.is_empty());
    engine.start_scheduler();
    eventually(DEADLINE, "the closed conversation is gone", || is_gone(&engine, "s1")).await;
    eventually(DEADLINE, "its letter is gone", || async { engine.dead_letters().await.is_empty() }).await;
    assert_eq!(everywhere(&engine).await, [""; 0]);
    assert_eq!(engine.session("s2").await.history.len(), 2, "an open conversation stays");
    assert!(encode(&metrics().registry).contains("turnwheel_expired_total{kind=\"sessions\"}"));
    engine.say("s1", "m-2", "再来").await;
    assert_eq!(engine.session("s1").await.history.len(), 2, "a later message begins a new conversation");
}

async fn a_conversation_with_a_waiting_message_stays(backend: Backend) {
    let engine = engine(backend, Duration::from_millis(1)).await;
    let worker = engine.start_worker();
    for session in ["s1", "s2"] {
        engine.say(session, "m-1", "你好").await;
        close(&engine, session).await;
    }
    worker.cancel();
    engine.publish("s1", "m-2", "还在吗").await;
    engine.start_scheduler();
    eventually(DEADLINE, "the other conversation is gone", || is_gone(&engine, "s2")).await;
    engine.start_worker();
    assert_eq!(engine.turn("s1", "m-2").await.outcome, Outcome::Answered);
    assert_eq!(engine.session("s1").await.history.len(), 4, "with what was said before");
}

async fn a_message_that_arrives_meanwhile_begins_a_new_conversation(backend: Backend) {
    let engine = engine(backend, Duration::ZERO).await;
    engine.start_worker();
    engine.say("s1", "m-1", "你好").await;
    let closed_at = close(&engine, "s1").await;
    // The steps of an expiry, with a message in between.
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    let seized = store.seize_closed("s1", closed_at, "expiry", DEADLINE).await.unwrap().unwrap();
    engine.publish("s1", "m-2", "在吗").await;
    eventually(DEADLINE, "a worker has asked for the lane", || async {
        let session = engine.session("s1").await;
        session.pending_seq > session.last_seq
    })
    .await;
    store.erase_records("s1").await.unwrap();
    queue.purge_events("s1").await.unwrap();
    assert!(store.erase_lane("s1", seized.epoch).await.unwrap());
    assert_eq!(engine.turn("s1", "m-2").await.outcome, Outcome::Answered);
    assert_eq!(engine.session("s1").await.history.len(), 2);
    let again = LaneErasure::new(queue, store, Duration::from_secs(2)).expired("s1", closed_at).await.unwrap();
    assert_eq!(again, None, "the new conversation is open");
}
