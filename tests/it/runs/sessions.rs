//! Runs and conversations: what a run knows of one, and a workflow as the flow of a turn.

use super::*;
use crate::scenarios::{acts, answer, on_both_backends, sales_with};
use crate::support::script::plan;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use turnwheel::queue::ReplyKind;
use turnwheel::store::{Outcome, RunQuery, RunStatus};
use turnwheel::workflow::FlowContext;

on_both_backends!(
    a_run_of_a_session_knows_its_conversation,
    a_flow_action_runs_a_workflow_within_the_turn,
    a_workflow_that_fails_is_for_the_agent_to_tell,
    a_workflow_is_cancelled_with_its_turn,
    a_panic_beside_a_workflow_ends_its_run,
);

/// Decides as scripted, and answers task agents by name.
fn decides(asked: &Asked) -> Answer {
    match asked.schema.as_str() {
        "" => echo(asked),
        _ if asked.user.contains("流程") && !asked.system.contains("\"ok\"") => {
            decided(asked, acts("processing", "FLOW", "steps", &json!({"input": "做"})))
        }
        _ => decided(asked, answer("好的")),
    }
}

fn decided(asked: &Asked, decision: Value) -> Answer {
    Answer::json(&if asked.schema == "plan_and_decision" { plan(json!("您好"), &decision) } else { decision })
}

async fn with_agent(backend: Backend, model: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Engine {
    let engine = engine(backend, model).await;
    engine.apply(sales_with(&json!({"flows": ["steps"]}))).await;
    engine.start_worker();
    engine
}

async fn a_run_of_a_session_knows_its_conversation(backend: Backend) {
    let engine = with_agent(backend, decides).await;
    let route = |word: &str| json!({"condition": format!("{{query}} contains '{word}'"), "stage": {"id": word, "runnable": "a", "input": "{query}"}});
    let default = json!({"id": "other", "runnable": "b", "input": "{query}"});
    register(&engine, json!({"id": "router", "type": "conditional", "routes": [route("代码")], "default": default}))
        .await;
    engine.say("s1", "m-1", "写代码吗").await;
    let new = NewRun { session_id: Some("s1".into()), channel: Some("web".into()), ..NewRun::new("router", "你好") };
    let run_id = start(&engine, new).await;
    let run = ended(&engine, &run_id).await;
    let output = run.output.unwrap();
    assert!(output.starts_with("b(用户: 写代码吗\n助手: "), "conditions see the request alone: {output}");
    assert!(output.ends_with("\n\n当前请求: 你好)"), "{output}");
    assert_eq!((run.origin_session.as_deref(), run.lane.as_str()), (Some("s1"), run_id.as_str()));
    let events = told(&engine, "s1", &run_id).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunCompleted], "on the session's stream");
    assert!(told(&engine, &run_id, &run_id).await.is_empty());
    let of_session = RunQuery { origin_session: Some("s1".into()), ..RunQuery::default() };
    assert_eq!(engine.store.runs(of_session).await.unwrap().len(), 1);
}

async fn a_flow_action_runs_a_workflow_within_the_turn(backend: Backend) {
    let engine = with_agent(backend, decides).await;
    let turn = engine.say("s1", "m-1", "走流程").await;
    assert_eq!(turn.outcome, Outcome::Flow);
    let said = engine.said("s1").await;
    assert_eq!(said.last().unwrap(), &(ReplyKind::Final, "c(b(a(做)))".to_owned()));
    let runs = engine.store.runs(RunQuery::default()).await.unwrap();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((run.status, run.output.as_deref()), (RunStatus::Completed, Some("c(b(a(做)))")));
    assert_eq!((run.lane.as_str(), run.turn_id.as_str(), run.prefix.as_str()), ("s1", "m-1", "0/steps"));
    let events = told(&engine, "s1", &run.run_id).await;
    assert_once(&events);
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunCompleted]);
    let steps = engine.store.steps("s1", "m-1").await.unwrap();
    assert!(steps.iter().any(|step| step.key.starts_with("0/steps/first/")), "its steps are the turn's");
    // It can be repeated as a run of its own.
    let from = NewRun { from_run: Some(run.run_id.clone()), from_stage: Some("third".into()), ..NewRun::default() };
    let again = ended(&engine, &start(&engine, from).await).await;
    assert_eq!(again.output.as_deref(), Some("c(b(a(做)))"), "{:?}", again.error);
    let plain: Vec<_> = engine.model.asked().into_iter().filter(|asked| asked.schema.is_empty()).collect();
    assert_eq!(plain.iter().map(|asked| asked.system.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "c"]);
}

async fn a_workflow_that_fails_is_for_the_agent_to_tell(backend: Backend) {
    let model = |asked: &Asked| match asked.system.as_str() {
        "b" => Answer::status(418, "scripted"),
        _ => decides(asked),
    };
    let engine = with_agent(backend, model).await;
    let turn = engine.say("s1", "m-1", "走流程").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert_eq!(engine.said("s1").await.last().unwrap().1, "好的");
    let told_agent = engine.model.asked().last().unwrap().system.clone();
    assert!(told_agent.contains("flow `steps`: second"), "{told_agent}");
    let run = engine.store.runs(RunQuery::default()).await.unwrap().remove(0);
    assert_eq!((run.status, run.error.unwrap().path.as_str()), (RunStatus::Failed, "second"));
    let events = told(&engine, "s1", &run.run_id).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunFailed]);
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    assert_eq!(intake::resume_run(queue, store, &run.run_id).await.unwrap_err().code, "run_of_turn");
}

async fn a_workflow_is_cancelled_with_its_turn(backend: Backend) {
    let hangs = |asked: &Asked| if asked.system == "b" { Answer::Hang } else { decides(asked) };
    let engine = with_agent(backend, hangs).await;
    engine.publish("s1", "m-1", "走流程").await;
    is_asked(&engine, "b").await;
    let run = engine.store.runs(RunQuery::default()).await.unwrap().remove(0);
    assert_eq!(run.status, RunStatus::Running);
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    intake::cancel_run(queue, store, &run.run_id, None, Some("op".into())).await.unwrap();
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
    let run = ended(&engine, &run.run_id).await;
    assert_eq!((run.status, run.error.unwrap().cause.as_str()), (RunStatus::Cancelled, "operator: op"));
    let events = told(&engine, "s1", &run.run_id).await;
    assert_eq!(outermost(&events), [RunEventType::RunStarted, RunEventType::RunFailed]);
}

async fn a_panic_beside_a_workflow_ends_its_run(backend: Backend) {
    let panics = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&panics);
    let mut engine = engine(backend, decides).await;
    engine.flows = engine.flows.clone().with("panics", move |_: FlowContext| {
        let panics = Arc::clone(&asked);
        async move {
            assert!(!panics.load(Ordering::SeqCst), "by plan");
            Ok::<_, String>("done".to_owned())
        }
    });
    let stages = json!([
        {"id": "first", "runnable": "a", "input": "{query}"},
        {"id": "second", "runnable": "panics", "input": "{first}"},
    ]);
    register(&engine, json!({"id": "steps", "stages": stages})).await;
    engine.apply(sales_with(&json!({"flows": ["steps"]}))).await;
    engine.start_worker();
    assert_eq!(engine.say("s1", "m-1", "走流程").await.outcome, Outcome::Cancelled);
    let run = engine.store.runs(RunQuery::default()).await.unwrap().remove(0);
    assert_eq!(run.status, RunStatus::Failed);
    assert!(run.error.unwrap().cause.starts_with("panic: "));
    // In a lane of its own, too.
    let run = ended(&engine, &start(&engine, NewRun::new("steps", "问")).await).await;
    assert_eq!(run.status, RunStatus::Failed);
    panics.store(false, Ordering::SeqCst);
    resume(&engine, &run.run_id).await;
    eventually(DEADLINE, "it goes on", || async {
        ended(&engine, &run.run_id).await.output.as_deref() == Some("done")
    })
    .await;
}
