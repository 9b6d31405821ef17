//! Rules of workflows: conditionals, parallel branches, failures, and functions registered in Rust.

use super::*;
use crate::scenarios::on_both_backends;
use engine::workflow::{FlowContext, FlowError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use types::outcome::Outcome;
use types::run::RunStatus;

on_both_backends!(
    a_conditional_hands_on_its_output_alone,
    a_conditional_without_a_fitting_route_leaves_nothing,
    a_branch_that_fails_ends_the_others_and_is_named,
    a_branch_that_is_skipped_is_absent_or_empty,
    the_end_of_a_failed_run_names_the_stage_that_failed,
    a_function_counts_against_the_limits_of_its_run,
    a_file_cannot_remove_the_token_limit_of_the_settings,
    a_function_asks_the_model_of_its_stage,
    a_function_may_call_its_step_as_the_engine_calls_its_own,
    a_planner_whose_budget_is_spent_is_not_asked_again,
);

fn stage(id: &str, runnable: impl Into<Value>, input: &str) -> Value {
    json!({"id": id, "runnable": runnable.into(), "input": input})
}

/// Runs a workflow until it ends.
async fn ran(engine: &Engine, document: Value) -> RunRecord {
    let id = document["id"].as_str().unwrap().to_owned();
    register(engine, document).await;
    ended(engine, &start(engine, NewRun::new(id, "问")).await).await
}

async fn output(engine: &Engine, document: Value) -> String {
    let run = ran(engine, document).await;
    run.output.unwrap_or_else(|| panic!("{:?}", run.error))
}

async fn a_conditional_hands_on_its_output_alone(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.start_worker();
    let both = json!({"type": "parallel", "id": "p", "branches": [stage("plan", "a", "X")]});
    let route = json!({"condition": "true", "stage": stage("both", both, "x")});
    let choose = json!({"type": "conditional", "id": "c", "routes": [route]});
    let stages = [stage("plan", "a", "P"), stage("choose", choose, "x"), stage("end", "b", "{plan}")];
    assert_eq!(output(&engine, json!({"id": "w", "stages": stages})).await, "b(a(P))");
    let run_id = &engine.store.runs(types::run::RunQuery::default()).await.unwrap()[0].run_id;
    let looped = json!({"type": "loop", "id": "l", "max_iterations": 2, "stages": [stage("x", "a", "x")]});
    let route = json!({"condition": "true", "stage": stage("again", looped, "x")});
    ran(&engine, json!({"id": "v", "type": "conditional", "routes": [route]})).await;
    let runs = engine.store.runs(types::run::RunQuery::default()).await.unwrap();
    assert_ne!(&runs[0].run_id, run_id);
    let events = told(&engine, &runs[0].run_id, &runs[0].run_id).await;
    let data = events.last().unwrap().data.clone().unwrap();
    assert!(data.contains_key("output") && !data.contains_key("iterations"), "{data:?}");
}

async fn a_conditional_without_a_fitting_route_leaves_nothing(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.start_worker();
    let route = json!({"condition": "{query} contains '没有'", "stage": stage("one", "a", "x")});
    let choose = json!({"type": "conditional", "id": "c", "routes": [route]});
    let run = ran(&engine, choose.clone()).await;
    assert_eq!((run.status, run.output.as_deref()), (RunStatus::Completed, Some("")));
    let events = told(&engine, &run.run_id, &run.run_id).await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [RunEventType::RunStarted, RunEventType::RunCompleted]);
    assert_eq!(events[1].data.as_ref().unwrap()["output"], "");
    let stages = [stage("choose", choose, "x"), stage("end", "b", "<{choose}>")];
    assert_eq!(output(&engine, json!({"id": "w", "stages": stages})).await, "b(<>)");
}

async fn a_branch_that_fails_ends_the_others_and_is_named(backend: Backend) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let engine = engine(backend, move |asked| match asked.system.as_str() {
        "a" => Answer::Hang,
        "b" => Answer::status(418, "scripted").gated(&held),
        _ => echo(asked),
    })
    .await;
    engine.start_worker();
    let branches = [stage("waits", "a", "x"), stage("fails", "b", "x")];
    let both = json!({"type": "parallel", "id": "p", "branches": branches});
    let document = json!({"id": "w", "stages": [stage("both", both, "x"), stage("end", "c", "x")]});
    // One branch fails while the other one waits for its model.
    let failing = async {
        is_asked(&engine, "a").await;
        gate.add_permits(1);
    };
    let (run, ()) = tokio::join!(ran(&engine, document), failing);
    let error = run.error.unwrap();
    assert_eq!((run.status, error.path.as_str()), (RunStatus::Failed, "both/fails"), "{error}");
    assert_eq!(asked(&engine).iter().filter(|agent| *agent == "c").count(), 0);
    let events = told(&engine, &run.run_id, &run.run_id).await;
    let ends = events.iter().filter(|event| event.kind == RunEventType::RunFailed && event.stage_id.is_some());
    let ends: Vec<_> = ends.map(|event| (event.depth, event.stage_id.as_deref(), event.branch_id.as_deref())).collect();
    assert_eq!(ends, [(2, Some("both"), Some("fails")), (1, Some("both"), Some("fails")), (0, Some("both"), None)]);
}

async fn a_branch_that_is_skipped_is_absent_or_empty(backend: Backend) {
    let engine = engine(backend, echo).await;
    engine.start_worker();
    let skipped = json!({"id": "no", "runnable": "b", "input": "x", "condition": "{query} contains '没有'"});
    let parallel = |id: &str, merge: Value| {
        let branches = [stage("yes", "a", "x"), skipped.clone()];
        json!({"type": "parallel", "id": id, "branches": branches, "merge_template": merge})
    };
    let run = ran(&engine, parallel("plain", Value::Null)).await;
    assert_eq!(run.output.as_deref(), Some("[yes]:\na(x)"));
    let events = told(&engine, &run.run_id, &run.run_id).await;
    assert!(events.iter().all(|event| event.branch_id.as_deref() != Some("no")), "a skipped branch has no events");
    assert_eq!(events.last().unwrap().data.as_ref().unwrap()["branch_outputs"], json!({"yes": "a(x)"}));
    assert_eq!(output(&engine, parallel("merged", json!("{yes}|{no}|"))).await, "a(x)||");
    assert_eq!(asked(&engine), ["a", "a"]);
}

async fn the_end_of_a_failed_run_names_the_stage_that_failed(backend: Backend) {
    let refuses = |asked: &Asked| if asked.system == "b" { Answer::status(418, "scripted") } else { echo(asked) };
    let engine = engine(backend, refuses).await;
    engine.start_worker();
    let inner = json!({"type": "loop", "id": "l", "stages": [stage("fine", "a", "x"), stage("bad", "b", "x")]});
    let run = ran(&engine, json!({"id": "w", "stages": [stage("first", "a", "x"), stage("again", inner, "x")]})).await;
    let events = told(&engine, &run.run_id, &run.run_id).await;
    let last = events.last().unwrap();
    assert_eq!((last.kind, last.depth, last.path.as_str()), (RunEventType::RunFailed, 0, ""));
    assert_eq!((last.stage_id.as_deref(), last.branch_id.as_deref()), (Some("again"), None), "{last:?}");
    let parallel = json!({"type": "parallel", "id": "p", "branches": [stage("one", "a", "x"), stage("two", "b", "x")]});
    let run = ran(&engine, parallel).await;
    let last = told(&engine, &run.run_id, &run.run_id).await.pop().unwrap();
    assert_eq!((last.stage_id.as_deref(), last.branch_id.as_deref()), (None, Some("two")), "{last:?}");
}

/// Adds a function that calls its model twice.
fn with_asking(mut engine: Engine) -> Engine {
    engine.flows = engine.flows.clone().with("asks", async |context: FlowContext| {
        let first = context.ask_model("first", "b", &context.input).await?;
        context.ask_model("second", "c", &first).await
    });
    engine.start_worker();
    engine
}

async fn a_function_counts_against_the_limits_of_its_run(backend: Backend) {
    let engine = with_asking(engine(backend, echo).await);
    let of = |limits: Value| json!({"id": "w", "limits": limits, "stages": [stage("s", "asks", "{query}")]});
    let run = ran(&engine, of(json!({}))).await;
    assert_eq!(run.output.as_deref(), Some("c(b(问))"));
    assert_eq!(run.usage.model_calls, 2);
    assert!(run.usage.tokens > 0, "{:?}", run.usage);
    let mut document = of(json!({"max_model_calls": 1}));
    document["stages"][0]["retry"] = json!({"max_attempts": 3, "backoff": "1ms"});
    let error = ran(&engine, document).await.error.unwrap();
    assert!(error.cause.contains("max_model_calls") && error.attempts == 1, "{error:?}");
    let error = ran(&engine, of(json!({"max_tokens": 1}))).await.error.unwrap();
    assert!(error.cause.contains("max_tokens"), "{error:?}");
}

async fn a_file_cannot_remove_the_token_limit_of_the_settings(mut backend: Backend) {
    backend.settings.workflow.max_tokens = 1;
    let engine = engine(backend, echo).await;
    engine.start_worker();
    for limits in [json!({}), json!({"max_tokens": 0}), json!({"max_tokens": 1_000_000})] {
        let document = json!({"id": "w", "limits": limits, "stages": [stage("s", "a", "{query}")]});
        let error = ran(&engine, document).await.error.unwrap_or_else(|| panic!("{limits} removes the limit"));
        assert!(error.cause.contains("(1)") && error.cause.contains("max_tokens"), "{limits}: {error:?}");
    }
}

async fn a_function_asks_the_model_of_its_stage(mut backend: Backend) {
    let other = ScriptedModel::start(|asked| Answer::Content(format!("other {}", asked.user))).await;
    backend.settings.models.insert("other".to_owned(), crate::support::engine::scripted(&other));
    let engine = with_asking(engine(backend, echo).await);
    let mut document = json!({"id": "w", "stages": [stage("s", "asks", "{query}")]});
    document["stages"][0]["model"] = json!("other");
    assert_eq!(output(&engine, document).await, "other other 问");
}

async fn a_function_may_call_its_step_as_the_engine_calls_its_own(backend: Backend) {
    let mut engine = engine(backend, echo).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    engine.flows = engine.flows.clone().with("names", move |context: FlowContext| {
        let counted = Arc::clone(&counted);
        async move {
            context.step("failed", "own", async |_| Ok::<_, String>("ja".to_owned())).await?;
            context.step("ask[1]", "own", async |_| Ok::<_, String>("ja".to_owned())).await?;
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => Err(FlowError::failed("the first time")),
                _ => Ok("the second time".to_owned()),
            }
        }
    });
    engine.start_worker();
    let mut document = json!({"id": "w", "stages": [stage("s", "names", "{query}")]});
    document["stages"][0]["retry"] = json!({"max_attempts": 2, "backoff": "1ms"});
    assert_eq!(output(&engine, document).await, "the second time");
    assert_eq!((tries.load(Ordering::SeqCst), engine.dead_letters().await.len()), (2, 0));
}

async fn a_planner_whose_budget_is_spent_is_not_asked_again(backend: Backend) {
    let rejects = json!({"action": "reject", "reject_reason": "不", "plan": [], "plan_reason": ""});
    let engine = engine(backend, move |asked| match asked.schema.as_str() {
        "triage_plan" => Answer::json(&rejects),
        _ => echo(asked),
    })
    .await;
    engine.apply(json!({"id": "planner", "model": "default", "system_prompt": "p", "budget": {"day": 1}})).await;
    engine.start_worker();
    let role = |agent: &str| json!({"agent": agent});
    let dynamic = json!({"type": "dynamic", "id": "d", "plan": role("planner"), "replan": role("a"), "review": role("a"),
        "summary": role("a"), "agents": [{"name": "x", "runnable": "a", "description": "y"}]});
    let mut document = json!({"id": "w", "stages": [stage("s", dynamic, "{query}")]});
    document["stages"][0]["retry"] = json!({"max_attempts": 3, "backoff": "1ms"});
    let first = ran(&engine, document.clone()).await;
    assert_eq!(first.status, RunStatus::Completed, "{:?}", first.error);
    let second = ran(&engine, document).await;
    let error = second.error.expect("the budget of the day is used up");
    assert!(error.cause.contains("budget") && error.attempts == 1, "{error:?}");
    let turn = engine.store.turn(&second.run_id, &second.run_id).await.unwrap().unwrap();
    assert_eq!(turn.outcome, Outcome::Cancelled);
}
