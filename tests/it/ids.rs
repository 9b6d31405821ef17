//! Ids as messaging platforms produce them, in all places: HTTP and NATS, turns, idempotency keys, dead letters.

use crate::gateway::Gateway;
use crate::scenarios::{acts, answer, engine, on_both_backends};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use serde_json::json;
use types::cause::Cause;
use types::outcome::Outcome;

on_both_backends!(
    ids_of_slack_whatsapp_and_mail_name_turns_over_http,
    ids_of_slack_whatsapp_and_mail_name_turns_on_the_queue,
    a_dead_letter_is_found_by_such_an_id,
);

/// Ids of Slack, WhatsApp and e-mail, a URL with a query, leading dots.
const IDS: [&str; 5] =
    ["1699999999.000100", "wamid.HBgNODYxMzg9", "CAF=x.1@mail.example.com", "a:b=c&d?e#f%2F+", "..hidden."];

async fn ids_of_slack_whatsapp_and_mail_name_turns_over_http(backend: Backend) {
    let acting = acts("processing", "SKILL", "query_order", &json!({"order_id": "A1"}));
    let rest = (0..IDS.len()).flat_map(|_| [acting.clone(), answer("好的")]).collect();
    let engine = engine(backend, answer("您好"), rest).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "first", "你好").await;
    for job_id in IDS {
        let body = json!({"session_id": "s1", "agent_id": "sales", "job_id": job_id, "user_id": "li.si@example.com", "text": "查"});
        for _ in 0..2 {
            assert_eq!(gateway.post("/api/v1/messages", &body).await.status(), 202, "{job_id}");
        }
        assert_eq!(engine.turn("s1", job_id).await.outcome, Outcome::Answered);
        let mut path = url::Url::parse("http://x/api/v1/sessions/s1/turns").unwrap();
        path.path_segments_mut().unwrap().push(job_id);
        let turn = gateway.json(path.path()).await;
        assert_eq!(turn["turn_id"], job_id, "{turn}");
        let steps = turn["steps"].as_array().unwrap();
        assert!(steps.iter().any(|step| step["key"] == "0/act"), "{turn}");
        let call = engine.api.calls("/orders").pop().unwrap();
        assert_eq!(call.idempotency_key, format!("s1/{job_id}/0/act"));
        let reply = engine.replies("s1").await.pop().unwrap();
        assert_eq!((reply.turn_id.as_str(), reply.reply_id.as_str()), (job_id, &*format!("s1/{job_id}/1/respond")));
    }
    assert_eq!(engine.api.calls("/orders").len(), IDS.len(), "each id is sent twice and has one turn");
    for (job_id, user_id) in [("..", "u1"), (".", "u1"), ("a/b", "u1"), ("m", "$li"), ("m", "."), ("a b", "u1")] {
        let body = json!({"session_id": "s1", "agent_id": "sales", "job_id": job_id, "user_id": user_id, "text": "查"});
        assert_eq!(gateway.post("/api/v1/messages", &body).await.status(), 400, "{job_id} {user_id}");
    }
}

/// Publishes like a channel on NATS: the id is in the payload, or only in the message id.
async fn ids_of_slack_whatsapp_and_mail_name_turns_on_the_queue(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("好的")]).await;
    for job_id in IDS {
        assert_eq!(engine.say("s1", job_id, "你好").await.outcome, Outcome::Answered);
        let payload = json!({"type": "user_message", "session_id": "s2", "agent_id": "sales", "text": "你好"});
        let publish = storage::queue::Publish {
            session_id: "s2".into(),
            msg_id: Some(job_id.into()),
            payload: payload.to_string().into_bytes().into(),
        };
        engine.queue.publish(publish).await.unwrap();
        assert_eq!(engine.turn("s2", job_id).await.outcome, Outcome::Answered);
    }
    assert_eq!(engine.dead_letters().await, []);
}

async fn a_dead_letter_is_found_by_such_an_id(backend: Backend) {
    let engine: Engine = engine(backend, answer("您好"), vec![answer("好的")]).await;
    let gateway = Gateway::of(&engine).await;
    let job =
        json!({"type": "user_message", "session_id": "s1", "agent_id": "nobody", "job_id": IDS[0], "text": "在吗"});
    engine.publish_job("s1", job).await;
    let expected = (Cause::UnknownAgent, Some(IDS[0].to_owned()));
    eventually(DEADLINE, "the job is dead-lettered", || async { engine.dead_letters().await == [expected.clone()] })
        .await;
    let letter = gateway.json(&format!("/api/v1/dead/{}", IDS[0])).await;
    assert_eq!((&letter["job_id"], &letter["cause"]), (&json!(IDS[0]), &json!("unknown_agent")), "{letter}");
    engine.apply(crate::scenarios::sales_with(&json!({"id": "nobody"}))).await;
    let replayed = gateway.post(&format!("/api/v1/dead/{}/replay", IDS[0]), &json!({})).await;
    assert_eq!(replayed.status(), 202);
    let replayed: serde_json::Value = replayed.json().await.unwrap();
    assert_eq!(engine.turn("s1", replayed["job_id"].as_str().unwrap()).await.outcome, Outcome::Answered);
}
