//! Clarifications: a coordinator suspends its task until the user answers.

use super::*;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use types::job::Command;

on_both_backends!(
    s25_a_question_suspends_the_task_for_another_worker,
    a_cancel_word_drops_the_task,
    a_task_that_nobody_answers_is_dropped_by_its_timer,
    an_operator_who_cancels_drops_the_task,
);

fn question() -> Value {
    let payload = json!({"question": "哪个月？", "options": ["十月", "十一月"], "required_fields": ["month"],
        "context": {"已知": "销售报告"}});
    decision("request_clarification", payload)
}

async fn s25_a_question_suspends_the_task_for_another_worker(backend: Backend) {
    let engine = Engine::watching(
        backend,
        ScriptedModel::start(script(vec![answer(&[spawn("报价"), question()]), answer(&[respond("十月的在这里")])]))
            .await,
    )
    .await;
    engine.apply(json!({"id": "searcher", "model": "default", "system_prompt": "查资料"})).await;
    engine.apply(coordinator()).await;
    let worker = engine.start_worker();
    engine.say("s1", "m-1", "做销售报告").await;
    let asked = engine.replies("s1").await.pop().unwrap();
    assert_eq!((asked.kind, asked.text.as_str()), (ReplyKind::Response, "哪个月？"));
    assert_eq!(asked.metadata["awaits"], "answer");
    assert_eq!(asked.metadata["choices"], json!(["十月", "十一月"]));
    assert_eq!(asked.metadata["required_fields"], json!(["month"]));
    let task = engine.session("s1").await.task.unwrap();
    assert_eq!((task.turn_id.as_str(), &task.context["已知"]), ("m-1", &json!("销售报告")));
    assert_eq!(task.blocked[0]["decision_type"], "spawn_subagent", "a question goes first");
    let expected = ["decision_made request_clarification", "decision_validated request_clarification"];
    assert_eq!(told(&engine, "s1").await, expected, "the other decision waits");
    assert!(engine.model.asked().iter().all(|asked| asked.system != "查资料"), "nothing was carried out");
    worker.cancel();
    engine.start_worker();
    engine.say("s1", "m-2", "十月").await;
    let second = prompts(&engine).pop().unwrap();
    for part in ["哪个月？", "销售报告", "spawn_subagent", "十月"] {
        assert!(second.contains(part), "{part}: {second}");
    }
    assert_eq!(engine.session("s1").await.task, None);
    assert_eq!(engine.replies("s1").await.pop().unwrap().text, "十月的在这里");
}

async fn a_cancel_word_drops_the_task(backend: Backend) {
    let engine = engine(backend, vec![answer(&[question()])]).await;
    engine.say("s1", "m-1", "做销售报告").await;
    engine.say("s1", "m-2", "取消").await;
    assert_eq!(engine.session("s1").await.task, None);
    assert_eq!(engine.replies("s1").await.pop().unwrap().kind, ReplyKind::Final);
    assert_eq!(prompts(&engine).len(), 1, "the model is not asked");
}

async fn a_task_that_nobody_answers_is_dropped_by_its_timer(backend: Backend) {
    let engine = engine(backend, vec![answer(&[question()])]).await;
    let mut agent = coordinator();
    agent["flow_timeout"] = json!("300ms");
    engine.apply(agent).await;
    engine.start_scheduler();
    engine.say("s1", "m-1", "做销售报告").await;
    eventually(DEADLINE, "the task is dropped", || async { engine.session("s1").await.task.is_none() }).await;
    assert_eq!(engine.session("s1").await.workflow_state.status, Status::Ready);
    assert_eq!(engine.replies("s1").await.pop().unwrap().text, "哪个月？", "without a reply");
}

async fn an_operator_who_cancels_drops_the_task(backend: Backend) {
    let engine = engine(backend, vec![answer(&[question()])]).await;
    engine.say("s1", "m-1", "做销售报告").await;
    let job = json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": Command::Cancel});
    engine.publish_job("s1", job).await;
    engine.turn("s1", "c-1").await;
    assert_eq!(engine.session("s1").await.task, None);
}
