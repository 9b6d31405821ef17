//! Messages that name a version of their agent.

use super::{body, shop};
use crate::gateway::{Gateway, refusal};
use crate::scenarios::{answer, engine, on_both_backends};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use serde_json::{Value, json};
use std::time::Duration;
use types::cause::Cause;
use types::job::JobBody;
use types::outcome::Outcome;

on_both_backends!(
    a_draft_answers_the_messages_that_name_it_and_their_timers_and_no_others,
    messages_for_different_versions_are_never_one_turn,
    a_version_that_does_not_exist_is_refused_and_in_the_lane_a_dead_letter,
    a_draft_stays_while_an_open_conversation_uses_it,
    a_check_counts_the_conversations_that_plan_again,
);

/// An engine with the applied agent, and the hash of a draft.
async fn with_draft(backend: Backend, draft: &Value) -> (Engine, Gateway, String) {
    let engine = engine(backend, answer("没有用"), vec![]).await;
    engine.apply(shop("已发布")).await;
    let gateway = Gateway::of(&engine).await;
    let stored = body(gateway.post("/api/v1/agents/shop/versions", draft).await, 201).await;
    (engine, gateway, stored["hash"].as_str().unwrap().to_owned())
}

async fn say(gateway: &Gateway, job_id: &str, version: Option<&str>) {
    let message =
        json!({"session_id": "s1", "agent_id": "shop", "job_id": job_id, "text": "你好", "agent_version": version});
    assert_eq!(gateway.post("/api/v1/messages", &message).await.status(), 202);
}

async fn last_words(engine: &Engine) -> String {
    engine.said("s1").await.pop().unwrap().1
}

async fn a_draft_answers_the_messages_that_name_it_and_their_timers_and_no_others(backend: Backend) {
    let mut draft = shop("草稿");
    draft["timers"] = json!([{"name": "ask", "delay": "1s", "message": "草稿还在"}]);
    let (engine, gateway, hash) = with_draft(backend, &draft).await;
    let applied = engine.store.agent("shop").await.unwrap().unwrap().hash.clone();
    say(&gateway, "m-1", None).await;
    assert_eq!(engine.turn("s1", "m-1").await.hash, applied);
    assert_eq!(last_words(&engine).await, "已发布");
    say(&gateway, "m-2", Some(&hash)).await;
    assert_eq!(engine.turn("s1", "m-2").await.hash, hash);
    let timer = eventually(DEADLINE, "the timer of the draft fires", || async {
        let turns = engine.store.turns("s1", 10).await.unwrap();
        turns.into_iter().find(|turn| matches!(turn.job.body, JobBody::Timer { .. }) && turn.outcome != Outcome::Noop)
    })
    .await;
    assert_eq!(timer.hash, hash, "a timer belongs to the version that planned it");
    let said = eventually(DEADLINE, "the follow-up is published", || async {
        let said: Vec<String> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
        said.contains(&"草稿还在".to_owned()).then_some(said)
    })
    .await;
    assert!(said.contains(&"草稿".to_owned()), "{said:?}");
    say(&gateway, "m-3", None).await;
    assert_eq!(engine.turn("s1", "m-3").await.hash, applied, "a message that names no version");
    // Without an agent, the version is one of the session's agent.
    let message = json!({"session_id": "s1", "job_id": "m-4", "text": "你好", "agent_version": hash});
    assert_eq!(gateway.post("/api/v1/messages", &message).await.status(), 202);
    assert_eq!(engine.turn("s1", "m-4").await.hash, hash);
    assert_eq!(engine.store.agent("shop").await.unwrap().unwrap().hash, applied, "nothing was applied");
}

async fn messages_for_different_versions_are_never_one_turn(backend: Backend) {
    let (mut applied, mut draft) = (shop("已发布"), shop("草稿"));
    (applied["double_text"], draft["double_text"]) = (json!("merge"), json!("merge"));
    let engine = engine(backend, answer("没有用"), vec![]).await;
    engine.apply(applied).await;
    let gateway = Gateway::of(&engine).await;
    let stored = body(gateway.post("/api/v1/agents/shop/versions", &draft).await, 201).await;
    let hash = stored["hash"].as_str().unwrap();
    for (job_id, version) in [("m-1", Some(hash)), ("m-2", None), ("m-3", Some(hash))] {
        say(&gateway, job_id, version).await;
    }
    let applied = engine.store.agent("shop").await.unwrap().unwrap().hash.clone();
    for (job_id, version) in [("m-1", hash), ("m-2", applied.as_str()), ("m-3", hash)] {
        assert_eq!(engine.turn("s1", job_id).await.hash, version, "{job_id}");
    }
}

async fn a_version_that_does_not_exist_is_refused_and_in_the_lane_a_dead_letter(backend: Backend) {
    let (engine, gateway, hash) = with_draft(backend, &shop("草稿")).await;
    let message = json!({"session_id": "s1", "agent_id": "shop", "text": "你好", "agent_version": "0123"});
    assert_eq!(refusal(gateway.post("/api/v1/messages", &message).await).await, (404, "unknown_version".to_owned()));
    let new = json!({"session_id": "s9", "text": "你好", "agent_version": hash});
    assert_eq!(refusal(gateway.post("/api/v1/messages", &new).await).await, (400, "missing_agent".to_owned()));
    let other = json!({"session_id": "s1", "agent_id": "nobody", "text": "你好", "agent_version": hash});
    assert_eq!(refusal(gateway.post("/api/v1/messages", &other).await).await, (404, "unknown_version".to_owned()));
    let mut job = message;
    (job["type"], job["job_id"]) = (json!("user_message"), json!("m-1"));
    engine.publish_job("s1", job).await;
    eventually(DEADLINE, "the job is a dead letter", || async {
        let letters = engine.dead_letters().await;
        letters.contains(&(Cause::UnknownAgent, Some("m-1".to_owned()))).then_some(())
    })
    .await;
    say(&gateway, "m-2", Some(&hash)).await;
    assert_eq!(engine.turn("s1", "m-2").await.hash, hash, "the lane goes on");
}

async fn a_draft_stays_while_an_open_conversation_uses_it(backend: Backend) {
    let (engine, gateway, used) = with_draft(backend, &shop("草稿")).await;
    let unused = body(gateway.post("/api/v1/agents/shop/versions", &shop("没人用")).await, 201).await;
    let unused = unused["hash"].as_str().unwrap();
    say(&gateway, "m-1", Some(&used)).await;
    engine.turn("s1", "m-1").await;
    let exists = async |hash: &str| engine.store.agent_version("shop", hash).await.unwrap().is_some();
    eventually(DEADLINE, "the draft that nothing uses expires", || async {
        engine.store.expire_versions(Duration::ZERO, 100).await.unwrap();
        (!exists(unused).await).then_some(())
    })
    .await;
    for _ in 0..3 {
        engine.store.expire_versions(Duration::ZERO, 100).await.unwrap();
    }
    assert!(exists(&used).await, "the conversation has it");
    say(&gateway, "m-2", Some(&used)).await;
    assert_eq!(engine.turn("s1", "m-2").await.hash, used);
}

async fn a_check_counts_the_conversations_that_plan_again(backend: Backend) {
    let (engine, gateway, draft) = with_draft(backend, &shop("草稿")).await;
    for (session, version) in [("s1", None), ("s2", None), ("s3", Some(draft.as_str()))] {
        let mut message = json!({"session_id": session, "agent_id": "shop", "job_id": "m-1", "text": "你好"});
        message["agent_version"] = json!(version);
        assert_eq!(gateway.post("/api/v1/messages", &message).await.status(), 202);
        engine.turn(session, "m-1").await;
    }
    let count = async |words: &str| {
        let checked = gateway.post("/api/v1/agents/validate", &shop(words)).await;
        body(checked, 200).await["open_sessions"].clone()
    };
    assert_eq!(count("已发布").await, 0, "it is the applied version");
    assert_eq!(count("新的").await, 3);
    assert_eq!(count("草稿").await, 2, "one of them has this version already");
    let closed = gateway.post("/api/v1/sessions/s1/close", &json!({})).await;
    assert_eq!(closed.status(), 202);
    eventually(DEADLINE, "a closed conversation does not count", || async {
        (count("新的").await == 2).then_some(())
    })
    .await;
}
