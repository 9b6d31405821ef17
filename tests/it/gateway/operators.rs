//! Endpoints for operators, and for humans at the service desk.

use super::{Gateway, refusal};
use crate::scenarios::{answer, engine, sales_with};
use crate::support::backend::embedded;
use crate::support::engine::{DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{ScriptedModel, decision, plan};
use serde_json::{Value, json};
use types::job::{Command, Control, JobBody};
use types::session::{Role, Status};

#[tokio::test]
async fn operators_commands_go_onto_the_lane() {
    for (verb, command) in [("cancel", Command::Cancel), ("release", Command::Release), ("close", Command::Close)] {
        let backend = embedded().await;
        let gateway = Gateway::idle(&backend).await;
        gateway.say("s1", "m-1", "hi").await;
        let response =
            gateway.post(&format!("/api/v1/sessions/s1/{verb}"), &json!({"reason": "错单", "by": "li"})).await;
        assert_eq!(response.status(), 202);
        let answer: Value = response.json().await.unwrap();
        let first = backend.queue.next_in_lane("s1", 0, 0).await.unwrap().unwrap();
        let job = backend.queue.next_in_lane("s1", first.seq, 0).await.unwrap().unwrap().job().unwrap();
        assert_eq!(answer["job_id"], job.job_id.as_str());
        let expected = Control { reason: Some("错单".into()), by: Some("li".into()), ..Control::new(command) };
        assert_eq!(job.body, JobBody::Control(expected));
        let url = format!("{}/api/v1/sessions/s1/{verb}", gateway.base);
        assert_eq!(gateway.client.post(&url).send().await.unwrap().status(), 202, "the body is optional");
        let list = gateway.client.post(url).json(&json!([null, "错单"])).send().await.unwrap();
        assert_eq!(refusal(list).await, (400, "invalid_json".to_owned()), "the body must be an object");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_human_speaks_only_while_the_session_is_transferred() {
    let answers =
        vec![plan(json!("您好"), &answer("请讲")), decision("transferred", Value::Null, json!("正在为您转接"))];
    let engine = Engine::start(embedded().await, ScriptedModel::answering(answers).await, 1).await;
    engine.apply(sales_with(&json!({"handoff": {"mode": "hold"}}))).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "你好").await;
    let words = json!({"text": "我来处理", "by": "李雷"});
    let early = gateway.post("/api/v1/sessions/s1/reply", &words).await;
    assert_eq!(refusal(early).await, (409, "not_transferred".to_owned()));

    engine.say("s1", "m-2", "转人工").await;
    eventually(DEADLINE, "the session is transferred", || async {
        (engine.session("s1").await.workflow_state.status == Status::Transferred).then_some(())
    })
    .await;
    let mut events = gateway.events("s1", None).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let spoken = gateway.post("/api/v1/sessions/s1/reply", &words).await;
        assert_eq!(spoken.status(), 202);
        let reply = events.reply().await;
        assert_eq!((&reply["kind"], &reply["text"]), (&json!("handoff"), &json!("我来处理")));
        assert_eq!(reply["metadata"]["by"], "李雷");
        assert_eq!(spoken.json::<Value>().await.unwrap()["reply_id"], reply["reply_id"]);
        ids.push(reply["reply_id"].clone());
    }
    assert_ne!(ids[0], ids[1], "the same text twice is two replies");
    let human = eventually(DEADLINE, "the human's reply is in the history", || async {
        let session = engine.session("s1").await;
        (session.history.iter().filter(|entry| entry.role == Role::Human).count() == 2).then_some(session)
    })
    .await;
    assert_eq!(human.workflow_state.status, Status::Transferred);
    let empty = gateway.post("/api/v1/sessions/s1/reply", &json!({"text": ""})).await;
    assert_eq!(refusal(empty).await.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_are_listed_and_cancelled() {
    let engine = engine(embedded().await, answer("您好"), vec![answer("在的")]).await;
    let gateway = Gateway::of(&engine).await;
    let timer = |name: &str, delay: &str| json!({"name": name, "delay": delay, "message": "还在吗？"});
    engine.apply(sales_with(&json!({"timers": [timer("late", "2h"), timer("soon", "1h")]}))).await;
    engine.say("s1", "m-1", "你好").await;
    engine.say("s2", "m-1", "你好").await;
    let names = async |path: &str| -> Vec<String> {
        let listed = gateway.json(path).await;
        let timers = listed["timers"].as_array().unwrap().iter();
        timers
            .map(|timer| format!("{}/{}", timer["session_id"].as_str().unwrap(), timer["name"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(names("/api/v1/timers").await, ["s1/soon", "s2/soon", "s1/late", "s2/late"], "ordered by due time");
    assert_eq!(names("/api/v1/timers?session_id=s2&limit=1").await, ["s2/soon"]);
    let unknown = gateway.get("/api/v1/timers?session_id=nobody").await;
    assert_eq!(refusal(unknown).await, (404, "unknown_session".to_owned()));
    let accepted = gateway.post("/api/v1/sessions/s1/timers/cancel", &json!({"name": "soon", "by": "li"})).await;
    assert_eq!(accepted.status(), 202);
    let accepted: Value = accepted.json().await.unwrap();
    engine.turn("s1", accepted["job_id"].as_str().unwrap()).await;
    assert_eq!(names("/api/v1/timers?session_id=s1").await, ["s1/late"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_read_and_replayed() {
    let engine = engine(embedded().await, answer("您好"), vec![]).await;
    let gateway = Gateway::of(&engine).await;
    for session_id in ["s1", "s2"] {
        let job = json!({"type": "user_message", "session_id": session_id, "agent_id": "helper", "job_id": "m-1", "text": "你好"});
        engine.publish_job(session_id, job).await;
    }
    eventually(DEADLINE, "both jobs are dead-lettered", || async { engine.dead_letters().await.len() == 2 }).await;
    let listed = gateway.json("/api/v1/dead?limit=1").await;
    assert_eq!((&listed["letters"][0]["seq"], &listed["letters"][0]["cause"]), (&json!(2), &json!("unknown_agent")));
    let letter = gateway.json("/api/v1/dead/1").await;
    assert_eq!(letter["payload"]["agent_id"], "helper");
    let several = gateway.get("/api/v1/dead/m-1").await;
    assert_eq!(refusal(several).await, (409, "several_letters".to_owned()));
    let unknown = gateway.get("/api/v1/dead/9").await;
    assert_eq!(refusal(unknown).await, (404, "unknown_letter".to_owned()));
    let replay = async |which: &str| gateway.post(&format!("/api/v1/dead/{which}/replay"), &json!({})).await;
    assert_eq!(refusal(replay("1").await).await, (404, "unknown_agent".to_owned()));
    engine.apply(sales_with(&json!({"id": "helper"}))).await;
    let session_id = letter["session_id"].as_str().unwrap();
    let replayed: Value = replay("1").await.json().await.unwrap();
    assert_eq!(replayed, json!({"seq": 1, "job_id": "m-1-replay-1", "session_id": session_id}));
    engine.turn(session_id, "m-1-replay-1").await;
    assert_eq!(gateway.json("/api/v1/dead").await["letters"].as_array().unwrap().len(), 1);
    let doctor = gateway.json("/api/v1/doctor").await;
    let letters = doctor["findings"].as_array().unwrap().iter().find(|one| one["where"] == "dead letters").unwrap();
    assert_eq!(letters["level"], "advice", "{doctor}");
}
