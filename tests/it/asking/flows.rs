//! Flows registered in Rust that ask the user: the answers, the workers that process them, and their order.

use super::*;
use crate::scenarios::on_both_backends;
use crate::support::engine::{Backend, DEADLINE, statuses};
use crate::support::eventually;
use engine::worker::Worker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use types::duration::Text;
use types::outcome::Outcome;

on_both_backends!(
    three_questions_are_answered_on_three_workers_and_no_step_runs_twice,
    a_worker_killed_in_mid_answer_is_followed_by_another,
    the_same_answer_twice_is_one_turn,
    answers_that_come_together_are_one,
    a_flow_that_fails_after_its_answer_is_for_the_agent_to_tell,
    a_new_configuration_does_not_disturb_a_flow_that_waits,
    a_flow_that_is_gone_is_told_and_the_message_is_answered,
    a_flow_that_was_changed_is_told_and_the_message_is_answered,
    no_question_waits_longer_than_steps_are_kept,
);

async fn three_questions_are_answered_on_three_workers_and_no_step_runs_twice(backend: Backend) {
    let (engine, done) = engine(backend, json!({})).await;
    let mut worker = engine.start_worker();
    let turn = engine.say("s1", "m-1", "售后").await;
    assert_eq!((turn.outcome, statuses(&turn).last()), (Outcome::Flow, Some(&Status::Ready)));
    let question = last(&engine).await;
    assert_eq!((question.kind, question.text.as_str()), (ReplyKind::Final, "哪个订单？"));
    assert_eq!(json!(question.metadata), json!({"awaits": "answer", "flow": "after_sales"}));
    let asked = waiting(&engine).await.unwrap();
    assert_eq!(
        (asked.flow.as_str(), asked.turn_id.as_str(), asked.prefix.as_str()),
        ("after_sales", "m-1", "0/after_sales")
    );
    assert_eq!((asked.question.as_str(), asked.run_id, asked.asked), ("哪个订单？", None, 1));
    assert_eq!(asked.asked_at.until(asked.until), Duration::from_secs(24 * 3600));
    let timers = engine.session("s1").await.timers;
    assert_eq!(timers.iter().map(|timer| timer.name.as_str()).collect::<Vec<_>>(), ["flow_timeout"]);

    let answers = [
        ("m-2", "A1001", "退款还是换货？", vec!["look up A1001"]),
        ("m-3", " 退款！", "确定吗？", vec!["look up A1001", "book 退款"]),
        ("m-4", "对", "A1001 退款 对", vec!["look up A1001", "book 退款"]),
    ];
    for (job, text, next, so_far) in answers {
        worker.cancel();
        worker = engine.start_worker();
        let turn = engine.say("s1", job, text).await;
        assert_eq!((turn.outcome, statuses(&turn)), (Outcome::Flow, vec![Status::Processing, Status::Ready]), "{job}");
        assert_eq!(last_of(&engine, ReplyKind::Final).await, next);
        assert_eq!(done.all(), so_far, "{job}");
        let choices = last(&engine).await.metadata.get("choices").cloned();
        assert_eq!(choices, (job == "m-2").then(|| json!(["退款", "换货"])));
    }
    assert_eq!(decisions(&engine), 1, "answers do not go to the model");
    let session = engine.session("s1").await;
    assert!(session.waiting.is_none() && session.timers.is_empty());
    let spoken: Vec<_> = session.history.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(spoken, ["售后", "哪个订单？", "A1001", "退款还是换货？", " 退款！", "确定吗？", "对", "A1001 退款 对"]);
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    for key in ["ask[1]", "look_up", "ask[2]", "book", "ask[3]"] {
        assert!(steps.iter().any(|step| step.key == format!("0/after_sales/{key}")), "{key}: {steps:?}");
    }
    let of_answer = engine.store.steps("s1", "m-4").await.unwrap();
    let answered = of_answer.iter().find(|step| step.kind == "answer").expect("the turn records the answered question");
    assert_eq!((answered.target.as_str(), &answered.output["turn_id"]), ("after_sales", &json!("m-1")));
    engine.say("s1", "m-5", "谢谢").await;
    assert_eq!(last_of(&engine, ReplyKind::Response).await, "说：谢谢");
}

async fn a_worker_killed_in_mid_answer_is_followed_by_another(backend: Backend) {
    let (mut engine, done) = engine(backend, json!({})).await;
    let (seen, killed) = (done.clone(), Arc::new(AtomicBool::new(false)));
    let dead = Arc::clone(&killed);
    engine.flows = engine.flows.clone().with("after_sales", move |flow: FlowContext| {
        let (done, dead) = (seen.clone(), Arc::clone(&dead));
        async move {
            let order = flow.ask("哪个订单？").await?;
            flow.step("look_up", &order, |_| noted(&done, format!("look up {order}"))).await?;
            let hangs = |key: String| async move {
                done.add(&key);
                if !dead.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                Ok::<_, String>(())
            };
            flow.step("book", &order, hangs).await?;
            Ok::<_, FlowError>(format!("{order}已办"))
        }
    });
    let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (worker, settings) = (Worker::new(engine.services(), &engine.settings), engine.settings.clone());
    doomed.spawn(async move { worker.run(&settings, CancellationToken::new()).await });
    engine.say("s1", "m-1", "售后").await;
    engine.publish("s1", "m-2", "A1001").await;
    eventually(DEADLINE, "the flow is in its last step", || async { done.all().len() == 2 }).await;
    // Drops all tasks. Lease and delivery remain, as after a kill.
    doomed.shutdown_background();
    killed.store(true, Ordering::SeqCst);
    engine.start_worker();
    engine.start_scheduler();
    let turn = engine.turn("s1", "m-2").await;
    assert_eq!((turn.attempts, turn.outcome), (2, Outcome::Flow));
    let key = "s1/m-1/0/after_sales/book";
    assert_eq!(done.all(), ["look up A1001", key, key], "recorded steps do not run again");
    let said: Vec<_> = engine.said("s1").await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["哪个订单？", "A1001已办"], "each reply once");
}

async fn the_same_answer_twice_is_one_turn(backend: Backend) {
    let (engine, done) = engine(backend, json!({})).await;
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    for _ in 0..2 {
        engine.publish_job("s1", message("m-2", "A1001")).await;
    }
    engine.publish_job("s1", message("m-1", "售后")).await;
    engine.say("s1", "m-3", "换货").await;
    assert_eq!(last_of(&engine, ReplyKind::Final).await, "确定吗？");
    assert_eq!(done.all(), ["look up A1001", "book 换货"]);
    assert_eq!(engine.replies("s1").await.len(), 3);
}

async fn answers_that_come_together_are_one(backend: Backend) {
    let (engine, done) = engine(backend, json!({"double_text": "merge"})).await;
    let worker = engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    worker.cancel();
    engine.publish("s1", "m-2", "A1001").await;
    engine.publish("s1", "m-3", "很急").await;
    engine.start_worker();
    engine.turn("s1", "m-2").await;
    // If no worker runs in between, the answers are one turn. A worker that stopped late may have processed the first
    // one alone.
    let done = done.all();
    assert!(done == ["look up A1001\n很急"] || done[0] == "look up A1001", "{done:?}");
}

async fn a_flow_that_fails_after_its_answer_is_for_the_agent_to_tell(backend: Backend) {
    let (mut engine, _) = engine(backend, json!({})).await;
    engine.flows = engine.flows.clone().with("after_sales", async |flow: FlowContext| {
        let order = flow.ask("哪个订单？").await?;
        Err::<String, _>(FlowError::failed(format!("没有订单 {order}")))
    });
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    let turn = engine.say("s1", "m-2", "B7").await;
    assert_eq!((turn.outcome, last_of(&engine, ReplyKind::Response).await.as_str()), (Outcome::Answered, "没办成"));
    let told = engine.model.asked().pop().unwrap();
    assert!(told.system.contains("flow `after_sales`: 没有订单 B7") && told.user == "B7", "{}", told.system);
    assert!(waiting(&engine).await.is_none());
}

async fn a_new_configuration_does_not_disturb_a_flow_that_waits(backend: Backend) {
    let (engine, done) = engine(backend, json!({})).await;
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    engine.apply(agent(json!({"tone": "冷静", "greeting": "您好，我变了"}))).await;
    engine.say("s1", "m-2", "A1001").await;
    assert_eq!(last_of(&engine, ReplyKind::Final).await, "退款还是换货？");
    assert_eq!((done.all().len(), decisions(&engine)), (1, 1));
}

/// Checks that the user is told about the lost flow, and that the message is then answered like any other.
async fn is_lost(engine: &Engine) {
    let turn = engine.say("s1", "m-2", "A1001").await;
    assert_eq!(turn.outcome, Outcome::Answered, "{turn:?}");
    let said = engine.said("s1").await;
    let [.., (ReplyKind::Apology, sorry), (ReplyKind::Response, answered)] = &said[..] else { panic!("{said:?}") };
    assert!(sorry.contains("无法继续"), "{sorry}");
    assert_eq!(answered, "说：A1001");
    assert!(waiting(engine).await.is_none() && engine.session("s1").await.timers.is_empty());
    assert!(engine.dead_letters().await.is_empty());
}

async fn a_flow_that_is_gone_is_told_and_the_message_is_answered(backend: Backend) {
    let (engine, _) = engine(backend, json!({})).await;
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    engine.apply(agent(json!({"flows": ["steps"]}))).await;
    is_lost(&engine).await;
}

async fn a_flow_that_was_changed_is_told_and_the_message_is_answered(backend: Backend) {
    let (mut engine, _) = engine(backend, json!({})).await;
    let changed = Arc::new(AtomicBool::new(false));
    let is_changed = Arc::clone(&changed);
    engine.flows = engine.flows.clone().with("after_sales", move |flow: FlowContext| {
        let question = if is_changed.load(Ordering::SeqCst) { "您的姓名？" } else { "哪个订单？" };
        async move { flow.ask(question).await }
    });
    engine.start_worker();
    engine.say("s1", "m-1", "售后").await;
    changed.store(true, Ordering::SeqCst);
    is_lost(&engine).await;
}

async fn no_question_waits_longer_than_steps_are_kept(backend: Backend) {
    let (mut engine, _) = engine(backend, json!({"flow_timeout": "3d"})).await;
    engine.settings.retention.turns = Text(Duration::from_secs(24 * 3600));
    engine.start_worker();
    let turn = engine.say("s1", "m-1", "售后").await;
    let asked = waiting(&engine).await.unwrap();
    assert_eq!(turn.started_at.until(asked.until), Duration::from_secs(23 * 3600));
}
