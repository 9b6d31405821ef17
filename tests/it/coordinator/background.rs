//! Runs that a coordinator starts in a lane of their own: the receipt, and the notice of the end.

use super::plans::{a_plan_and_its_change, execute, http, node, plan, report, statuses_of};
use super::*;
use crate::support::engine::DEADLINE;
use crate::support::{api, eventually};
use decisions::world::WorkflowStatus;
use lab::invariants::run_events;
use tokio::sync::Semaphore;
use types::event::Reply;
use types::run::RunRecord;

on_both_backends!(
    s24_an_asynchronous_run_gives_a_receipt_now_and_one_notice_at_its_end,
    the_events_of_a_plan_and_its_run_come_in_this_order,
    a_run_without_notification_ends_silently,
    a_failed_run_is_told_with_its_reason,
    a_cancelled_run_is_told_once,
    a_plan_that_runs_is_not_run_again,
    a_worker_that_stops_during_the_run_gives_one_notice,
    a_large_input_travels_in_the_record_of_the_run,
    a_notice_leaves_a_question_as_it_is,
    a_run_that_waits_and_asks_gives_one_notice_at_its_end,
    s24_a_run_in_hand_keeps_the_version_with_which_it_began,
);

pub fn start(notify: bool) -> Value {
    execute(json!({"execution_mode": "async", "notify_on_completion": notify}))
}

/// The run that the session's coordinator has started.
pub async fn run(engine: &Engine) -> RunRecord {
    let query = RunQuery { origin_session: Some("s1".into()), ..RunQuery::default() };
    let mut runs = engine.store.runs(query).await.unwrap();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

pub async fn notices(engine: &Engine) -> Vec<Reply> {
    engine.replies("s1").await.into_iter().filter(|reply| reply.kind == ReplyKind::Final).collect()
}

/// Waits for the notice of the run.
pub async fn noticed(engine: &Engine) -> Reply {
    let run = run(engine).await;
    engine.turn("s1", &format!("resume-{}", run.run_id)).await;
    let notices = notices(engine).await;
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    notice.clone()
}

/// An engine whose API waits for a permit.
pub async fn gated(backend: Backend, answers: Vec<Value>) -> (Engine, Arc<Semaphore>) {
    let engine = engine_with_ids(backend, answers).await;
    let gate = Arc::new(Semaphore::new(0));
    let of_api = Arc::clone(&gate);
    engine.api.script(move |_, _| api::Answer::Gated(Arc::clone(&of_api), 200, json!({"rows": [1]})));
    (engine, gate)
}

async fn s24_an_asynchronous_run_gives_a_receipt_now_and_one_notice_at_its_end(backend: Backend) {
    let answers = vec![answer(&[report()]), answer(&[respond("早了"), start(true)]), answer(&[respond("不客气")])];
    let (engine, gate) = gated(backend, answers).await;
    let turn = engine.say("s1", "m-1", "执行销售分析流程，好了告诉我").await;
    assert_eq!((turn.outcome, turn.statuses.last().unwrap().status), (Outcome::Answered, Status::Ready));
    let receipt = engine.replies("s1").await.pop().unwrap();
    let begun = run(&engine).await;
    assert_eq!((receipt.kind, &receipt.metadata["run_id"]), (ReplyKind::Response, &json!(begun.run_id)));
    assert_eq!(receipt.metadata["workflow_id"], json!(begun.workflow_id));
    assert!(receipt.text.contains("销售报告") && receipt.text.contains("通知"), "{}", receipt.text);
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Running]);
    assert!(notices(&engine).await.is_empty());
    assert_eq!(told(&engine, "s1").await.len(), 4, "the reply behind the run ends with the turn");
    gate.add_permits(2);
    let notice = noticed(&engine).await;
    let of_run = json!({"run_id": begun.run_id, "workflow_id": begun.workflow_id, "status": "completed"});
    assert_eq!(json!(notice.metadata), of_run);
    assert!(notice.text.contains("「销售报告」已经完成") && notice.text.contains(r#""rows":[1]"#), "{}", notice.text);
    let turn = engine.store.turn("s1", &notice.turn_id).await.unwrap().unwrap();
    let statuses: Vec<Status> = turn.statuses.iter().map(|at| at.status).collect();
    assert_eq!(
        (turn.outcome, &statuses[..]),
        (Outcome::Answered, &[Status::Processing, Status::Typing, Status::Ready][..])
    );
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Completed]);
    assert_eq!(run(&engine).await.status, RunStatus::Completed);
    assert_eq!(prompts(&engine).len(), 2, "no model is asked for the notice");
    engine.say("s1", "m-2", "谢谢").await;
    assert!(prompts(&engine)[2].contains("已经完成"), "the conversation has the notice");
    let roles: Vec<_> = engine.session("s1").await.history.iter().map(|entry| entry.turn_id.clone()).collect();
    assert_eq!(roles.iter().filter(|id| id.starts_with("resume-")).count(), 1, "only the notice");
}

/// A line for each event: its type and its subject.
fn line(event: &Event) -> String {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    match event {
        Event::Status(status) => format!("status {}", status.status),
        Event::Reply(reply) => format!("reply {} {}", reply.kind.as_str(), reply.reply_id.rsplit_once('/').unwrap().1),
        Event::Step(step) => format!("step {} {}", step.kind, step.key),
        Event::Decision(event) => format!("{} {}", text(event, "type"), text(event, "decision_type")),
        Event::Run(_) | Event::Turn(_) | Event::Authoring(_) | Event::Handoff(_) => "another event".to_owned(),
    }
}

async fn the_events_of_a_plan_and_its_run_come_in_this_order(backend: Backend) {
    let (engine, gate) = gated(backend, vec![answer(&[report()]), answer(&[start(true)])]).await;
    engine.say("s1", "m-1", "执行").await;
    gate.add_permits(2);
    noticed(&engine).await;
    let lines: Vec<String> = engine.events("s1").await.iter().map(line).collect();
    let expected = [
        "step model 0/decide",
        "status acknowledged",
        "reply greeting greet",
        "status processing",
        "decision_made create_workflow_plan",
        "decision_validated create_workflow_plan",
        "step model 1/decide",
        "decision_made execute_workflow",
        "decision_validated execute_workflow",
        "status typing",
        "reply response respond",
        "status ready",
        "status processing",
        "status typing",
        "reply final notice",
        "status ready",
    ];
    assert_eq!(lines, expected);
    // The stream of the session has the events of the run, too.
    let run = run_events(engine.queue.as_ref(), "s1").await.unwrap();
    let run: Vec<String> = run
        .iter()
        .map(|event| format!("{} {}", event.kind.as_str(), event.stage_id.as_deref().unwrap_or("-")))
        .collect();
    let expected = [
        "run_started -",
        "stage_started node_1",
        "stage_completed node_1",
        "stage_started node_2",
        "stage_completed node_2",
        "run_completed -",
    ];
    assert_eq!(run, expected);
}

async fn a_run_without_notification_ends_silently(backend: Backend) {
    let (engine, gate) = gated(backend, vec![answer(&[report()]), answer(&[start(false)])]).await;
    engine.say("s1", "m-1", "执行").await;
    assert!(!engine.replies("s1").await.pop().unwrap().text.contains("通知"));
    gate.add_permits(2);
    eventually(DEADLINE, "the run ends", || async { run(&engine).await.status.has_ended() }).await;
    eventually(DEADLINE, "the plan is complete", || async {
        statuses_of(&engine, "s1").await == [WorkflowStatus::Completed]
    })
    .await;
    engine.say("s1", "m-2", "好了吗").await;
    assert!(notices(&engine).await.is_empty());
    assert!(engine.session("s1").await.history.iter().all(|entry| !entry.turn_id.starts_with("resume-")));
}

async fn a_failed_run_is_told_with_its_reason(backend: Backend) {
    let engine = engine_with_ids(backend, vec![answer(&[report()]), answer(&[start(true)])]).await;
    engine.api.script(|path, _| if path == "/send" { (404, json!({})) } else { (200, json!({"rows": []})) });
    engine.say("s1", "m-1", "执行").await;
    let notice = noticed(&engine).await;
    assert_eq!(notice.metadata["status"], "failed");
    assert!(notice.text.contains("没有完成") && notice.text.contains("node_2"), "{}", notice.text);
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Failed]);
}

async fn a_cancelled_run_is_told_once(backend: Backend) {
    let (engine, _gate) = gated(backend, vec![answer(&[report()]), answer(&[start(true)])]).await;
    engine.say("s1", "m-1", "执行").await;
    eventually(DEADLINE, "the run calls", || async { engine.api.is_asked() }).await;
    let begun = run(&engine).await;
    ::commands::runs::cancel_run(engine.queue.as_ref(), engine.store.as_ref(), &begun.run_id, None, None)
        .await
        .unwrap();
    let notice = noticed(&engine).await;
    assert_eq!(notice.metadata["status"], "cancelled");
    assert!(notice.text.contains("已经取消"), "{}", notice.text);
    assert_eq!(statuses_of(&engine, "s1").await, [WorkflowStatus::Cancelled]);
}

async fn a_plan_that_runs_is_not_run_again(backend: Backend) {
    let answers =
        vec![answer(&[report()]), answer(&[start(true)]), answer(&[execute(json!({}))]), answer(&[respond("还在跑")])];
    let (engine, gate) = gated(backend, answers).await;
    engine.say("s1", "m-1", "执行").await;
    engine.say("s1", "m-2", "再执行一次").await;
    let rejected =
        decisions(&engine, "s1").await.into_iter().find(|event| event["type"] == "decision_rejected").unwrap();
    assert!(rejected["errors"][0].as_str().unwrap().contains("status is RUNNING"), "{rejected}");
    let workflow_id = run(&engine).await.workflow_id;
    let again =
        ::commands::runs::NewRun { session_id: Some("s1".into()), ..::commands::runs::NewRun::new(&workflow_id, "x") };
    let refused =
        ::commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), again.clone()).await.unwrap_err();
    assert_eq!(refused.code, "not_ready");
    let foreign = ::commands::runs::NewRun { session_id: None, ..again };
    let refused = ::commands::runs::start_run(engine.queue.as_ref(), engine.store.as_ref(), foreign).await.unwrap_err();
    assert_eq!(refused.code, "unknown_workflow");
    gate.add_permits(2);
    noticed(&engine).await;
}

async fn a_worker_that_stops_during_the_run_gives_one_notice(mut backend: Backend) {
    backend.settings.worker.drain_timeout = types::duration::Text(std::time::Duration::from_millis(100));
    let engine = Engine::watching(backend, ScriptedModel::start(|_| Answer::Hang).await).await;
    let answers =
        json!([answer(&[report()]), answer(&[start(true)])]).to_string().replace("{api}", &engine.api.base_url);
    engine.model.script(with_ids(serde_json::from_str(&answers).unwrap()));
    let gate = Arc::new(Semaphore::new(0));
    let of_api = Arc::clone(&gate);
    engine.api.script(move |path, _| match path {
        "/sales" => api::Answer::Now(200, json!({"rows": [1]})),
        _ => api::Answer::Gated(Arc::clone(&of_api), 200, json!({})),
    });
    engine.apply(coordinator()).await;
    let worker = engine.start_worker();
    engine.say("s1", "m-1", "执行").await;
    eventually(DEADLINE, "the second node calls", || async { !engine.api.calls("/send").is_empty() }).await;
    worker.cancel();
    gate.add_permits(10);
    engine.start_worker();
    let notice = noticed(&engine).await;
    assert_eq!(notice.metadata["status"], "completed");
    let (sales, send) = (engine.api.calls("/sales"), engine.api.calls("/send"));
    assert_eq!(sales.len(), 1, "a recorded node runs once");
    assert!(send.iter().all(|call| call.idempotency_key == send[0].idempotency_key), "{send:?}");
}

async fn a_large_input_travels_in_the_record_of_the_run(backend: Backend) {
    let big = "x".repeat(900_000);
    let send = plan(&[node("node_1", "HTTP", &http("/send", &json!({"text": "${input.text}"})))], &[]);
    let begin = execute(
        json!({"execution_mode": "async", "notify_on_completion": true, "input_params": {"text": big, "a.b": {"$c": 1}}}),
    );
    let engine = engine_with_ids(backend, vec![answer(&[send]), answer(&[begin])]).await;
    engine.say("s1", "m-1", "执行").await;
    assert_eq!(noticed(&engine).await.metadata["status"], "completed");
    assert_eq!(engine.api.calls("/send")[0].body["text"].as_str().map(str::len), Some(big.len()));
    let params = run(&engine).await.params.unwrap();
    assert_eq!((params["text"].as_str().map(str::len), &params["a.b"]), (Some(big.len()), &json!({"$c": 1})));
}

async fn a_notice_leaves_a_question_as_it_is(backend: Backend) {
    let question = decision("request_clarification", json!({"question": "哪个月？", "options": ["十月"]}));
    let answers = vec![answer(&[report()]), answer(&[start(true)]), answer(&[question]), answer(&[respond("十月的")])];
    let (engine, gate) = gated(backend, answers).await;
    engine.say("s1", "m-1", "执行").await;
    engine.say("s1", "m-2", "再做一个").await;
    let before = engine.session("s1").await;
    gate.add_permits(2);
    noticed(&engine).await;
    let after = engine.session("s1").await;
    assert_eq!((&after.task, &after.timers), (&before.task, &before.timers));
    engine.say("s1", "m-3", "十月").await;
    assert!(prompts(&engine).pop().unwrap().contains("哪个月？"));
}

/// Registers a graph that asks, waits and calls.
async fn register_approval(engine: &Engine) {
    let nodes = [
        node("ask", "ASK", &json!({"question": "发布吗？", "choices": ["好", "不好"]})),
        node("wait", "WAIT", &json!({"seconds": 2.5})),
        node("publish", "HTTP", &http("/publish", &json!({"answer": "${ask.output.answer}"}))),
    ];
    let edges = json!([{"source": "ask", "target": "wait"}, {"source": "wait", "target": "publish"}]);
    let graph = json!({"type": "graph", "id": "approval", "name": "发布", "nodes": nodes, "edges": edges});
    let text = graph.to_string().replace("{api}", &engine.api.base_url);
    let document = serde_json::from_str(&text).unwrap();
    let record = definitions::workflow::definition::WorkflowRecord::from_document(document, base::clock::now());
    engine.store.put_workflow(record.unwrap()).await.unwrap();
}

async fn a_run_that_waits_and_asks_gives_one_notice_at_its_end(backend: Backend) {
    let mut begin = start(true);
    begin["payload"]["workflow_id"] = json!("approval");
    let engine = engine_with_ids(backend, vec![answer(&[begin]), answer(&[respond("不客气")])]).await;
    let mut agent = coordinator();
    agent["coordinator"] = json!({"workflows": ["approval"]});
    engine.apply(agent).await;
    register_approval(&engine).await;
    engine.start_scheduler();
    engine.say("s1", "m-1", "发布").await;
    eventually(DEADLINE, "the run asks", || async { run(&engine).await.status == RunStatus::Waiting }).await;
    let begun = run(&engine).await;
    eventually(DEADLINE, "the turn that asks has ended", || async {
        engine.session(&begun.run_id).await.turn.is_none()
    })
    .await;
    assert!(notices(&engine).await.is_empty(), "a run that waits has not ended");
    let answered = ::commands::run_answers::NewAnswer::new("好");
    ::commands::run_answers::answer_run(engine.queue.as_ref(), engine.store.as_ref(), &begun.run_id, answered)
        .await
        .unwrap();
    let notice = noticed(&engine).await;
    assert_eq!((&notice.metadata["run_id"], &notice.metadata["status"]), (&json!(begun.run_id), &json!("completed")));
    assert_eq!(engine.store.turns(&begun.run_id, 10).await.unwrap().len(), 3, "it has asked, then waited, then ended");
    let calls: Vec<_> = engine.api.calls("/publish").into_iter().map(|call| call.body).collect();
    assert_eq!(calls, [json!({"answer": "好"})]);
    engine.say("s1", "m-2", "谢谢").await;
    assert_eq!(notices(&engine).await.len(), 1);
    let told = engine.session("s1").await.history.iter().filter(|entry| entry.turn_id.starts_with("resume-")).count();
    assert_eq!(told, 1);
}

async fn s24_a_run_in_hand_keeps_the_version_with_which_it_began(backend: Backend) {
    let (two, modify) = a_plan_and_its_change();
    let answers = vec![
        answer(&[two]),
        answer(&[start(true)]),
        answer(&[modify]),
        answer(&[respond("改好了")]),
        answer(&[execute(json!({}))]),
        answer(&[respond("跑了")]),
    ];
    let (engine, gate) = gated(backend, answers).await;
    engine.say("s1", "m-1", "执行").await;
    eventually(DEADLINE, "the run is in its first node", || async { !engine.api.calls("/sales").is_empty() }).await;
    let before = plans_of(&engine, "s1").await.remove(0).workflow;
    engine.say("s1", "m-2", "把LLM的温度参数调整为 0.9").await;
    let after = plans_of(&engine, "s1").await.remove(0);
    assert_ne!(after.workflow.hash, before.hash);
    assert_eq!(after.state.status, WorkflowStatus::Running, "the change ends no run");
    let temperatures = || {
        let asked = engine.model.asked().into_iter().filter(|asked| asked.user == "写小结");
        asked.map(|asked| asked.temperature.unwrap()).collect::<Vec<_>>()
    };
    assert!(temperatures().is_empty(), "the changed node has not run yet");
    gate.add_permits(1);
    assert_eq!(noticed(&engine).await.metadata["status"], "completed");
    assert_eq!((temperatures(), run(&engine).await.hash), (vec![0.2], before.hash.clone()));
    let plan = plans_of(&engine, "s1").await.remove(0);
    assert_eq!((plan.state.status, &plan.workflow.hash), (WorkflowStatus::Completed, &after.workflow.hash));
    engine.say("s1", "m-3", "再跑一次").await;
    assert_eq!(temperatures(), [0.2, 0.9]);
}
