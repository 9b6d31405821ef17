//! One agent that floods a worker, and the other agents.

use crate::scenarios::{answer, engine, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, plan};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Sessions of the agent that floods.
const FLOOD: usize = 24;

async fn send(engine: &Engine, agent: &str, session_id: &str, job_id: &str) {
    let job =
        json!({"type": "user_message", "session_id": session_id, "agent_id": agent, "job_id": job_id, "text": "在吗"});
    engine.publish_job(session_id, job).await;
}

/// Both agents use the same model, so only `worker.agent_concurrency` keeps places free for the second one.
async fn an_agent_that_floods_leaves_places_to_the_others(mut backend: Backend) {
    backend.settings.worker.concurrency = 8;
    backend.settings.worker.agent_concurrency = 4;
    let engine = engine(backend, answer("好"), vec![]).await;
    engine.apply(sales_with(&json!({"id": "loud", "name": "大嗓门"}))).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.model.script(move |asked| {
        let first = Answer::json(&plan(json!("您好"), &answer("好")));
        if asked.system.contains("大嗓门") { first.gated(&held) } else { first }
    });
    for number in 0..FLOOD {
        send(&engine, "loud", &format!("loud-{number}"), "m-1").await;
    }
    eventually(DEADLINE, "the flood has its places", || async {
        (engine.model.asked().iter().filter(|asked| asked.ended.is_none()).count() >= 4).then_some(())
    })
    .await;
    // The flood waits on its model, and these do not wait for it.
    for number in 0..3 {
        let session_id = format!("calm-{number}");
        send(&engine, "sales", &session_id, "m-1").await;
        engine.turn(&session_id, "m-1").await;
    }
    let held = engine.model.asked().iter().filter(|asked| asked.system.contains("大嗓门")).count();
    assert_eq!(held, 4, "no more of the flood runs at the same time");
    gate.add_permits(FLOOD * 2);
    for number in 0..FLOOD {
        engine.turn(&format!("loud-{number}"), "m-1").await;
    }
}

crate::scenarios::on_both_backends!(an_agent_that_floods_leaves_places_to_the_others);
