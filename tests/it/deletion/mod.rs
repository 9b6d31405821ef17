//! Deletion of sessions, users, agents and dead letters, while workers run. Afterwards nothing holds the user's words.

mod files;
pub mod search;

use crate::scenarios::{answer, engine, on_both_backends, sales, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, Asked, plan};
use commands::definition_deletion;
use commands::deletion::{DeletedData, Deletion};
use commands::runs::{NewRun, start_run};
use search::WORD;
use serde_json::json;
use std::sync::Arc;
use storage::queue::Publish;
use tokio::sync::Semaphore;
use types::session::Role;

on_both_backends!(
    nothing_is_left_of_a_session_and_a_later_message_begins_a_new_one,
    a_running_turn_ends_and_writes_nothing_back,
    a_message_in_the_hands_of_a_worker_creates_nothing,
    runs_go_with_their_session,
    all_sessions_of_a_user_go_and_others_stay,
    an_agent_in_use_is_deleted_on_demand_only,
    one_dead_letter_is_deleted,
);

fn deletion(engine: &Engine) -> Deletion<'_> {
    Deletion::new(engine.queue.as_ref(), engine.store.as_ref(), engine.settings.worker.ack_wait.0)
}

/// A reply in the form that is asked for.
fn replies(asked: &Asked, text: &str) -> Answer {
    let decided = answer(text);
    Answer::json(&if asked.schema == "plan_and_decision" { plan(json!("您好"), &decided) } else { decided })
}

async fn delete(engine: &Engine, session_id: &str) -> DeletedData {
    deletion(engine).session(session_id).await.unwrap().deleted
}

/// Publishes a job that is nested too deeply, and waits for its dead letter.
async fn dead_letter(engine: &Engine, session_id: &str) {
    let before = engine.dead_letters().await.len();
    let deep = (0..100).fold(json!(WORD), |inner, _| json!([inner]));
    let job = json!({"type": "user_message", "session_id": session_id, "agent_id": "sales", "text": WORD, "metadata": {"deep": deep}});
    engine.publish_job(session_id, job).await;
    eventually(DEADLINE, "the job is a dead letter", || async { engine.dead_letters().await.len() > before }).await;
}

async fn nothing_is_left_of_a_session_and_a_later_message_begins_a_new_one(backend: Backend) {
    let engine = engine(backend, answer(&format!("您说：{WORD}")), vec![answer("好的")]).await;
    engine.say("s1", "m-1", &format!("我的名字是{WORD}")).await;
    engine.say("s1", "m-2", WORD).await;
    dead_letter(&engine, "s1").await;
    engine.say("s2", "m-1", "别的").await;
    assert!(!search::everywhere(&engine).await.is_empty(), "the search finds what is there");

    let deleted = delete(&engine, "s1").await;
    // Before the searches, which mark the end of the events with an event of their own.
    let again = deletion(&engine).session("s1").await.unwrap_err();
    assert_eq!(again.code, "unknown_session");
    assert_eq!((deleted.sessions, deleted.turns, deleted.dead_letters), (1, 2, 1), "{deleted:?}");
    assert!(deleted.events >= 4 && deleted.steps >= 2, "{deleted:?}");
    assert_eq!(search::everywhere(&engine).await, [""; 0]);
    assert!(engine.store.session("s1").await.unwrap().is_none() && engine.events("s1").await.is_empty());
    assert_eq!(engine.session("s2").await.history.len(), 3, "another session stays");

    engine.say("s1", "m-3", "你好").await;
    let session = engine.session("s1").await;
    let said: Vec<_> =
        session.history.iter().filter(|entry| entry.role == Role::User).map(|entry| &*entry.text).collect();
    assert_eq!(said, ["你好"]);
    assert!(session.recent_jobs.iter().all(|job| job == "m-3"));
    let seen = engine.model.asked().into_iter().next_back().unwrap().system;
    assert!(!seen.contains(WORD), "the model reads nothing of the old session: {seen}");
}

async fn a_running_turn_ends_and_writes_nothing_back(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.say("s1", "m-1", "你好").await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.model.script(move |asked| replies(asked, WORD).gated(&held));
    engine.publish("s1", "m-2", WORD).await;
    eventually(DEADLINE, "the model is asked", || async {
        engine.model.asked().iter().any(|asked| asked.user == WORD)
    })
    .await;
    engine.publish("s1", "m-3", WORD).await;

    delete(&engine, "s1").await;
    gate.add_permits(1_000);
    engine.model.script(|asked| replies(asked, "新的"));
    engine.say("s1", "m-4", "再来").await;
    assert_eq!(search::everywhere(&engine).await, [""; 0]);
    let session = engine.session("s1").await;
    assert!(session.history.iter().all(|entry| entry.turn_id == "m-4"), "{:?}", session.history);
    assert!(engine.dead_letters().await.is_empty());
}

async fn a_message_in_the_hands_of_a_worker_creates_nothing(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.say("s2", "m-1", "你好").await;
    // As if a worker had taken the message and the deletion had ended before it asks for the lane.
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "text": WORD, "user_id": "u1"});
    let wish = crate::conformance::kit::acquire("s1", 1_000_000, "slow");
    engine.store.acquire(wish).await.unwrap();
    engine
        .queue
        .publish(Publish { session_id: "s1".into(), msg_id: None, payload: job.to_string().into() })
        .await
        .unwrap();
    delete(&engine, "s1").await;
    assert!(engine.store.session("s1").await.unwrap().is_none());
    assert_eq!(search::everywhere(&engine).await, [""; 0]);
}

async fn runs_go_with_their_session(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.apply(json!({"id": "writer", "system_prompt": "写"})).await;
    engine.say("s1", "m-1", "你好").await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.model.script(move |asked| replies(asked, WORD).gated(&held));
    let new = NewRun {
        workflow_id: "writer".into(),
        query: WORD.into(),
        run_id: Some("r1".into()),
        session_id: Some("s1".into()),
        ..NewRun::default()
    };
    start_run(engine.queue.as_ref(), engine.store.as_ref(), new).await.unwrap();
    eventually(DEADLINE, "the run's model is asked", || async {
        engine.model.asked().iter().any(|asked| asked.user.contains(WORD))
    })
    .await;
    let deleted = delete(&engine, "s1").await;
    {
        let mut events = engine.queue.events("s1", storage::queue::From::After(0)).await.unwrap();
        while let Ok(Some(Ok(event))) =
            tokio::time::timeout(std::time::Duration::from_secs(1), futures::StreamExt::next(&mut events)).await
        {
            eprintln!("EVENT0 {} {:?} {}", event.seq, event.event_type, String::from_utf8_lossy(&event.payload));
        }
    }
    assert_eq!((deleted.sessions, deleted.runs), (2, 1), "{deleted:?}");
    gate.add_permits(1_000);
    engine.model.script(|asked| replies(asked, "新的"));
    engine.say("s1", "m-2", "再来").await;
    assert!(engine.store.run("r1").await.unwrap().is_none() && engine.store.session("r1").await.unwrap().is_none());
    assert_eq!(search::everywhere(&engine).await, [""; 0]);
}

async fn all_sessions_of_a_user_go_and_others_stay(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.model.script(|asked| replies(asked, "好"));
    for session in ["s1", "s2", "s3"] {
        engine.say(session, "m-1", WORD).await;
    }
    let other = |text: &str| {
        json!({"type": "user_message", "session_id": "s4", "agent_id": "sales", "job_id": "m-1", "user_id": "u2",
               "channel": "web", "text": text})
    };
    engine.publish_job("s4", other("别的")).await;
    engine.turn("s4", "m-1").await;
    // Of a session that never began: only the letter names the user.
    let lost = json!({"type": "user_message", "session_id": "s5", "agent_id": "nobody", "user_id": "u1", "text": WORD});
    engine.publish_job("s5", lost).await;
    eventually(DEADLINE, "the message is a dead letter", || async { engine.dead_letters().await.len() == 1 }).await;

    let deleted = deletion(&engine).user("u1").await.unwrap();
    assert!(deleted.complete);
    assert_eq!((deleted.deleted.sessions, deleted.deleted.turns, deleted.deleted.dead_letters), (3, 3, 1));
    assert_eq!(search::everywhere(&engine).await, [""; 0]);
    assert!(engine.store.session("s4").await.unwrap().is_some());
    assert_eq!(deletion(&engine).user("u1").await.unwrap_err().code, "unknown_user");
}

async fn an_agent_in_use_is_deleted_on_demand_only(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.apply(sales_with(&json!({"id": "unused"}))).await;
    engine.say("s1", "m-1", "你好").await;
    let store = engine.store.as_ref();
    let delete = async |id: &str, force| definition_deletion::agent(store, id, force).await;
    assert_eq!(delete("unused", false).await.unwrap().versions, 1);
    let refused = delete("sales", false).await.unwrap_err();
    assert_eq!(refused.code, "agent_in_use");
    assert!(refused.message.contains("session `s1`"), "{refused}");
    assert!(store.agent("sales").await.unwrap().is_some(), "nothing was deleted");
    delete("sales", true).await.unwrap();
    assert_eq!(delete("sales", true).await.unwrap_err().code, "unknown_agent");
    engine.publish("s1", "m-2", "还在吗").await;
    eventually(DEADLINE, "the message is a dead letter", || async { engine.dead_letters().await.len() == 1 }).await;
    engine.apply(sales()).await;
    assert!(store.agent("sales").await.unwrap().is_some());
}

async fn one_dead_letter_is_deleted(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    for session in ["s1", "s2"] {
        dead_letter(&engine, session).await;
    }
    let first = engine.queue.dead_letters(0, 1).await.unwrap().remove(0).seq;
    let deleted = deletion(&engine).letter(&first.to_string()).await.unwrap();
    assert_eq!((deleted.seq, deleted.session_id.as_str()), (first, "s1"));
    assert_eq!(deletion(&engine).letter(&first.to_string()).await.unwrap_err().code, "unknown_letter");
    assert_eq!(engine.dead_letters().await.len(), 1);
}
