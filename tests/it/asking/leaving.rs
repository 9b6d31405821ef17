//! The ways in which a waiting flow is left: by a word of the user, by a timeout, by an operator.

use super::*;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE};
use crate::support::eventually;
use types::job::Command;
use types::outcome::Outcome;

on_both_backends!(
    a_word_leaves_the_flow_in_either_language,
    a_word_that_is_a_choice_is_an_answer,
    a_flow_is_forgotten_when_nobody_answers_in_time,
    operators_take_a_session_out_of_a_flow,
    a_takeover_takes_a_session_out_of_a_flow,
    a_message_for_another_agent_leaves_the_flow,
    cancelling_timers_leaves_the_wait_alone,
);

async fn a_word_leaves_the_flow_in_either_language(backend: Backend) {
    let (engine, done) = engine(backend, json!({"cancel_words": ["取消", "Never mind", "cancel"]})).await;
    engine.start_worker();
    for (at, (word, told)) in
        [(" 取消。", "取消"), ("CANCEL!", "cancelled"), ("never, mind", "cancelled")].into_iter().enumerate()
    {
        engine.say("s1", &format!("a-{at}"), "售后").await;
        assert!(waiting(&engine).await.is_some());
        let turn = engine.say("s1", &format!("b-{at}"), word).await;
        let text = last_of(&engine, ReplyKind::Final).await;
        assert!(turn.outcome == Outcome::Flow && text.contains(told), "{word}: {text}");
        assert!(waiting(&engine).await.is_none() && engine.session("s1").await.timers.is_empty());
    }
    engine.say("s1", "m-1", "售后").await;
    engine.say("s1", "m-2", "取消订单 A1001").await;
    assert_eq!(done.all(), ["look up 取消订单 A1001"], "a longer message is an answer");
    engine.say("s1", "m-3", "退出").await;
    assert_eq!(done.all()[1], "book 退出", "the agent file replaces the words");
}

async fn a_word_that_is_a_choice_is_an_answer(backend: Backend) {
    let (mut engine, _) = engine(backend, json!({})).await;
    engine.flows = engine.flows.clone().with("after_sales", async |flow: FlowContext| {
        let which = flow.ask(Question::new("继续还是取消？").choices(["继续", "取消"])).await?;
        Ok::<_, FlowError>(format!("选了{which}"))
    });
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    engine.say("s1", "m-2", "取消！").await;
    assert_eq!(last_of(&engine, ReplyKind::Final).await, "选了取消");
}

async fn a_flow_is_forgotten_when_nobody_answers_in_time(backend: Backend) {
    let (engine, done) = engine(backend, json!({"flow_timeout": "1s"})).await;
    engine.start_worker();
    engine.start_scheduler();
    engine.say("s1", "m-1", "售后").await;
    let said = engine.said("s1").await.len();
    eventually(DEADLINE, "the flow is forgotten", || async {
        let session = engine.session("s1").await;
        session.waiting.is_none() && session.timers.is_empty() && session.turn.is_none()
    })
    .await;
    assert_eq!((engine.said("s1").await.len(), decisions(&engine)), (said, 1), "no reply and no model call");
    engine.say("s1", "m-2", "A1001").await;
    assert_eq!(last_of(&engine, ReplyKind::Response).await, "说：A1001");
    assert!(done.all().is_empty());
}

async fn operators_take_a_session_out_of_a_flow(backend: Backend) {
    let (engine, done) = engine(backend, json!({})).await;
    engine.start_worker();
    for (command, status) in
        [(Command::Release, Status::Ready), (Command::Close, Status::Ready), (Command::Cancel, Status::Cancelled)]
    {
        let name = json!(command).as_str().unwrap().to_owned();
        engine.say("s1", &format!("a-{name}"), "售后").await;
        let job = format!("c-{name}");
        let order = json!({"type": "control", "session_id": "s1", "job_id": job, "command": command, "by": "op"});
        engine.publish_job("s1", order).await;
        engine.turn("s1", &job).await;
        let session = engine.session("s1").await;
        assert!(session.waiting.is_none() && session.timers.is_empty(), "{name}: {session:?}");
        assert_eq!(session.workflow_state.status, status, "{name}");
        engine.say("s1", &format!("b-{name}"), "A1001").await;
        assert_eq!(last_of(&engine, ReplyKind::Response).await, "说：A1001");
    }
    assert!(done.all().is_empty());
}

async fn a_takeover_takes_a_session_out_of_a_flow(backend: Backend) {
    let (engine, done) = engine(backend, json!({})).await;
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    let order = json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": "claim", "by": "li",
                       "take_over": true});
    engine.publish_job("s1", order).await;
    engine.turn("s1", "c-1").await;
    let session = engine.session("s1").await;
    assert!(session.waiting.is_none() && session.timers.iter().all(|timer| timer.name != "flow_timeout"));
    assert_eq!(session.workflow_state.status, Status::Transferred);
    let said = engine.said("s1").await.len();
    engine.say("s1", "m-2", "A1001").await;
    assert_eq!((engine.said("s1").await.len(), done.all().len()), (said, 0), "neither the flow nor the agent answers");
}

async fn a_message_for_another_agent_leaves_the_flow(backend: Backend) {
    let (engine, done) = engine(backend, json!({})).await;
    engine.apply(agent(json!({"id": "support"}))).await;
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    let mut job = message("m-2", "A1001");
    job["agent_id"] = "support".into();
    engine.publish_job("s1", job).await;
    engine.turn("s1", "m-2").await;
    let reply = last(&engine).await;
    assert_eq!((reply.agent_id.as_str(), reply.text.as_str()), ("support", "说：A1001"));
    assert!(waiting(&engine).await.is_none() && done.all().is_empty());
}

async fn cancelling_timers_leaves_the_wait_alone(backend: Backend) {
    let (engine, _) = engine(backend, json!({})).await;
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    for (job, name) in [("c-1", None), ("c-2", Some("flow_timeout"))] {
        let order =
            json!({"type": "control", "session_id": "s1", "job_id": job, "command": "cancel_timers", "name": name});
        engine.publish_job("s1", order).await;
        engine.turn("s1", job).await;
        assert_eq!(engine.session("s1").await.timers.len(), usize::from(name.is_none()));
    }
    engine.say("s1", "m-2", "A1001").await;
    assert_eq!(last_of(&engine, ReplyKind::Final).await, "退款还是换货？");
}
