//! The clarify path within a conversation: the run waits for the user's answer and continues with it.

use super::{DynamicScript, SUMMARY, plan};
use crate::scenarios::{acts, on_both_backends, sales_with};
use crate::support::backend;
use crate::support::engine::{Backend, Engine};
use crate::support::process::Process;
use crate::support::script::{Answer, Asked, ScriptedModel, plan as planned};
use engine::workflow::orchestration::event::RunEventType;
use lab::invariants;
use serde_json::json;
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::run::{RunQuery, RunStatus};

on_both_backends!(s19_in_a_session_the_answer_goes_on_in_the_same_run);

/// An engine without workers, and an agent that routes to `dynamic_ops`, whose plan agent asks back until the user
/// names 支付.
async fn asking(backend: Backend) -> Engine {
    let script = DynamicScript::new(plan(&[(1, "servicenow", "支付的工单")]));
    let model = move |asked: &Asked| match asked.schema.as_str() {
        "plan_and_decision" => {
            let flow = acts("processing", "FLOW", "dynamic_ops", &json!({}));
            Answer::json(&planned(json!("您好"), &flow))
        }
        "triage_plan" if !asked.user.contains("支付") => {
            Answer::json(&json!({"action": "clarify", "plan_reason": "哪个服务？"}))
        }
        _ => script.answer(asked),
    };
    let engine = Engine::watching(backend, ScriptedModel::start(model).await).await;
    engine.apply(sales_with(&json!({"flows": ["dynamic_ops"]}))).await;
    engine
}

/// Sends a question about which the plan agent asks back. Returns the id of the waiting run.
async fn ask(engine: &Engine) -> String {
    assert_eq!(engine.say("s1", "m-1", "查一下问题").await.outcome, Outcome::Flow);
    let question = engine.replies("s1").await.pop().unwrap();
    assert_eq!((question.kind, question.text.as_str()), (ReplyKind::Final, "哪个服务？"));
    assert_eq!(question.metadata["awaits"], "answer");
    let run_id = engine.session("s1").await.waiting.and_then(|waiting| waiting.run_id).unwrap();
    assert_eq!(engine.store.run(&run_id).await.unwrap().unwrap().status, RunStatus::Waiting);
    run_id
}

/// Answers the question, and checks that every part of `run_id` has happened once.
async fn answer(engine: &Engine, run_id: &str) {
    assert_eq!(engine.say("s1", "m-2", "支付").await.outcome, Outcome::Flow);
    let whole = engine.replies("s1").await.pop().unwrap();
    assert_eq!((whole.kind, whole.text.as_str(), whole.turn_id.as_str()), (ReplyKind::Final, SUMMARY, "m-2"));
    assert!(whole.stream_id.is_some(), "the text was streamed");
    assert!(engine.session("s1").await.waiting.is_none());
    let runs = engine.store.runs(RunQuery::default()).await.unwrap();
    let runs: Vec<_> = runs.iter().map(|run| (run.run_id.as_str(), run.status)).collect();
    assert_eq!(runs, [(run_id, RunStatus::Completed)]);
    let events = invariants::run_events(engine.queue.as_ref(), "s1").await.unwrap();
    let begun = events.iter().filter(|event| event.kind == RunEventType::StageStarted);
    let nodes = ["store_query", "triage", "clarify_executor", "triage[2]", "orchestrator", "review_executor"];
    assert_eq!(begun.map(|event| event.path.as_str()).collect::<Vec<_>>(), nodes);
    let asked = engine.model.asked();
    let plans: Vec<_> = asked.iter().filter(|asked| asked.schema == "triage_plan").collect();
    assert_eq!(plans.len(), 2, "no model call is repeated");
    let given = &plans[1].user;
    assert!(["查一下问题", "哪个服务？", "支付"].iter().all(|part| given.contains(part)), "{given}");
    assert_eq!(asked.iter().filter(|asked| asked.schema == "plan_and_decision").count(), 1);
}

async fn s19_in_a_session_the_answer_goes_on_in_the_same_run(backend: Backend) {
    let engine = asking(backend).await;
    engine.start_worker();
    let run_id = ask(&engine).await;
    answer(&engine, &run_id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s19_another_process_takes_the_answer_when_the_one_that_asked_is_killed() {
    let engine = asking(backend::cluster().await).await;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = &dirs;
    let worker = Process::start(first.path(), &engine.settings, &["worker"]);
    let run_id = ask(&engine).await;
    worker.kill();
    let _worker = Process::start(second.path(), &engine.settings, &["worker"]);
    answer(&engine, &run_id).await;
}
