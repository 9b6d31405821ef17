//! Greetings: to which session, how often, and with which text.

use super::{answer, engine, on_both_backends, sales, sales_with};
use crate::conformance::kit;
use crate::support::engine::{Backend, DEADLINE, Engine, statuses};
use crate::support::script::{Answer, ScriptedModel, plan};
use serde_json::{Value, json};
use types::event::ReplyKind::Greeting;
use types::outcome::Outcome;
use types::session::Status::{Acknowledged, Processing, Ready, Typing};

on_both_backends!(
    a_greeting_is_the_file_s_whatever_the_model_writes,
    without_regreeting_a_changed_agent_greets_nobody_again_and_another_agent_once,
    a_configuration_that_comes_back_greets_nobody_twice,
    a_plan_that_is_gone_is_made_anew_without_a_greeting,
    a_placeholder_is_no_reply,
    timers_of_the_model_are_armed_as_far_as_they_can_be_fired,
);

async fn greetings(engine: &Engine, session_id: &str) -> Vec<String> {
    let said = engine.said(session_id).await;
    said.into_iter().filter(|(kind, _)| *kind == Greeting).map(|(_, text)| text).collect()
}

/// A model whose plans all have this greeting, and whose decisions all reply.
fn greets(engine: &Engine, greeting: Value) {
    engine.model.script(move |asked| {
        let first = plan(greeting.clone(), &answer("好的"));
        Answer::json(&if asked.schema == "plan_and_decision" { first } else { answer("好的") })
    });
}

async fn say_to(engine: &Engine, agent_id: &str, job_id: &str) {
    let job =
        json!({"type": "user_message", "session_id": "s1", "agent_id": agent_id, "job_id": job_id, "text": "你好"});
    engine.publish_job("s1", job).await;
    assert_eq!(engine.turn("s1", job_id).await.outcome, Outcome::Answered);
}

async fn a_greeting_is_the_file_s_whatever_the_model_writes(backend: Backend) {
    let engine = engine(backend, answer("好的"), vec![]).await;
    for (session_id, written) in [("s1", json!("…")), ("s2", json!("Hello!")), ("s3", Value::Null)] {
        engine.apply(sales_with(&json!({"tone": session_id}))).await;
        greets(&engine, written);
        engine.say(session_id, "m-1", "你好").await;
        assert_eq!(greetings(&engine, session_id).await, ["您好，我是小智"]);
    }
    let hash = engine.session("s3").await.workflow_state.hash;
    let stored = engine.store.plan("sales", &hash).await.unwrap().unwrap();
    assert_eq!(
        (stored.name.as_str(), stored.tone.as_str()),
        ("小智", "s3"),
        "name and tone are the file's, not the model's"
    );
    // If the file has no greeting, a placeholder of the model does not become one.
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    greets(&engine, json!("<greeting>"));
    engine.say("s4", "m-1", "你好").await;
    assert!(greetings(&engine, "s4").await.is_empty());
}

async fn without_regreeting_a_changed_agent_greets_nobody_again_and_another_agent_once(backend: Backend) {
    let engine = engine(backend, answer("好的"), vec![]).await;
    greets(&engine, json!("x"));
    let quiet = |fields: Value| {
        let mut agent = sales_with(&json!({"regreet_on_change": false}));
        agent.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        agent
    };
    engine.apply(quiet(json!({}))).await;
    engine.apply(quiet(json!({"id": "second", "greeting": "我是二号"}))).await;
    say_to(&engine, "sales", "m-1").await;
    assert_eq!(greetings(&engine, "s1").await, ["您好，我是小智"]);
    engine.apply(quiet(json!({"sop": "改了"}))).await;
    say_to(&engine, "sales", "m-2").await;
    assert_eq!(greetings(&engine, "s1").await.len(), 1, "a changed agent does not greet again");
    say_to(&engine, "second", "m-3").await;
    assert_eq!(greetings(&engine, "s1").await, ["您好，我是小智", "我是二号"], "another agent's first greeting");
    engine.apply(quiet(json!({"id": "second", "greeting": "我是二号", "sop": "改了"}))).await;
    for (agent_id, job_id) in [("second", "m-4"), ("sales", "m-5"), ("second", "m-6")] {
        say_to(&engine, agent_id, job_id).await;
    }
    assert_eq!(greetings(&engine, "s1").await.len(), 2);
}

async fn a_configuration_that_comes_back_greets_nobody_twice(backend: Backend) {
    let engine = engine(backend, answer("好的"), vec![]).await;
    greets(&engine, json!("x"));
    let changed = sales_with(&json!({"sop": "改了", "greeting": "您好，新的"}));
    for (job_id, agent) in [("m-1", sales()), ("m-2", changed.clone()), ("m-3", sales()), ("m-4", changed)] {
        engine.apply(agent).await;
        say_to(&engine, "sales", job_id).await;
    }
    assert_eq!(greetings(&engine, "s1").await, ["您好，我是小智", "您好，新的"], "one greeting for each configuration");
}

async fn a_plan_that_is_gone_is_made_anew_without_a_greeting(backend: Backend) {
    let engine = Engine::watching(backend, ScriptedModel::answering(vec![answer("好的")]).await).await;
    engine.apply(sales()).await;
    greets(&engine, json!("x"));
    let hash = engine.store.agent("sales").await.unwrap().unwrap().hash.clone();
    // A session that has used this configuration, whose plan is not in the cache.
    engine.publish("s1", "m-1", "你好").await;
    let first = engine.queue.pull(1, DEADLINE).await.unwrap().remove(0);
    kit::run_turn(&engine.store, "s1", first.message.seq, |change| change.workflow_state.hash.clone_from(&hash)).await;
    engine.queue.ack(&first.token).await.unwrap();
    engine.start_worker();
    let turn = engine.say("s1", "m-2", "在吗").await;
    assert_eq!(engine.model.asked()[0].schema, "plan_and_decision", "the plan is made again");
    assert_eq!(statuses(&turn), [Processing, Typing, Ready], "the configuration is not new to the session");
    assert!(greetings(&engine, "s1").await.is_empty());
    assert!(engine.store.plan("sales", &hash).await.unwrap().is_some());
}

async fn a_placeholder_is_no_reply(backend: Backend) {
    let engine = engine(backend, answer("…"), vec![answer("您要查什么？")]).await;
    let first = plan(json!("…"), &answer("…"));
    engine.model.script(move |asked| {
        Answer::json(&if asked.index == 0 { first.clone() } else { plan(json!("…"), &answer("您要查什么？")) })
    });
    let turn = engine.say("s1", "m-1", "你好").await;
    assert_eq!(statuses(&turn), [Acknowledged, Processing, Typing, Ready]);
    assert!(engine.model.asked()[1].user.contains("`response` is the placeholder `…`"));
    let texts: Vec<String> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["您好，我是小智", "您要查什么？"]);
}

async fn timers_of_the_model_are_armed_as_far_as_they_can_be_fired(backend: Backend) {
    let act = |kind: &str, target: &str| json!({"type": kind, "target": target, "params": {}});
    let mut first = plan(json!(null), &answer("好的"));
    first["plan"]["timers"] = json!([
        {"name": "ask", "delay": "1h", "message": "还在吗？"},
        {"name": "made up", "delay": "1h", "action": act("TOOL", "send_email")},
        {"name": "log", "delay": 7200, "action": act("TOOL", "log_followup")},
        {"name": "empty", "delay": "1h", "message": ""},
    ]);
    let engine = engine(backend, answer("好的"), vec![]).await;
    engine.model.script(move |_| Answer::json(&first));
    engine.say("s1", "m-1", "你好").await;
    let session = engine.session("s1").await;
    let names: Vec<&str> = session.timers.iter().map(|timer| timer.name.as_str()).collect();
    assert_eq!(names, ["ask", "log"]);
    let own = json!({"timers": [{"name": "mine", "delay": "1h", "message": "还在吗？"}]});
    engine.apply(sales_with(&own)).await;
    engine.say("s2", "m-1", "你好").await;
    assert_eq!(engine.session("s2").await.timers.len(), 1, "the file's timers are used unchanged");
}
