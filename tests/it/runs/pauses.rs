//! A cancellation immediately reaches work that waits outside of a step: stages between two attempts, functions
//! registered in Rust.

use super::*;
use crate::scenarios::{acts, on_both_backends, sales_with};
use crate::support::script::plan;
use engine::workflow::{FlowContext, FlowError};
use std::time::Duration;
use types::job::Command;
use types::outcome::Outcome;
use types::run::{RunQuery, RunRecord, RunStatus};
use types::run_outcome::RunFailure;

on_both_backends!(
    a_cancellation_reaches_a_stage_that_pauses,
    a_cancellation_reaches_a_function_that_waits,
    a_run_of_a_cancelled_turn_ends_however_many_others_its_session_has,
    a_run_that_waits_on_the_queue_is_cancelled_and_never_begins,
);

/// Adds a function that never returns and waits outside of any step.
fn waiting(mut engine: Engine) -> Engine {
    engine.flows = engine.flows.clone().with("waits", async |context: FlowContext| {
        context.step("begun", "x", async |_| Ok::<_, String>("ja".to_owned())).await?;
        std::future::pending::<Result<String, FlowError>>().await
    });
    engine
}

/// An engine with that function and without workers, whose agent decides for the FLOW `target`.
async fn deciding_for(backend: Backend, target: &'static str) -> Engine {
    let decides = move |asked: &Asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(json!("您好"), &acts("processing", "FLOW", target, &json!({})))),
        _ => echo(asked),
    };
    let engine = waiting(engine(backend, decides).await);
    register(&engine, json!({"id": "w", "stages": [{"id": "s", "runnable": "waits", "input": "{query}"}]})).await;
    engine.apply(sales_with(&json!({"flows": [target]}))).await;
    engine
}

async fn cancel(engine: &Engine, run_id: &str) {
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    run_commands::cancel_run(queue, store, run_id, None, Some("op".into())).await.unwrap();
}

/// Waits for a recorded step that shows the progress of the turn.
async fn recorded(engine: &Engine, lane: &str, turn_id: &str, key: &str) {
    eventually(DEADLINE, key, || async {
        let steps = engine.store.steps(lane, turn_id).await.unwrap();
        steps.iter().any(|step| step.key == key)
    })
    .await;
}

async fn a_cancellation_reaches_a_stage_that_pauses(backend: Backend) {
    let engine = engine(backend, |asked| match asked.system.as_str() {
        "b" => Answer::status(418, "scripted"),
        _ => echo(asked),
    })
    .await;
    let retry = json!({"max_attempts": 5, "backoff": "10m"});
    register(&engine, json!({"id": "w", "stages": [{"id": "s", "runnable": "b", "input": "{query}", "retry": retry}]}))
        .await;
    engine.start_worker();
    let run_id = start(&engine, NewRun::new("w", "问")).await;
    recorded(&engine, &run_id, &run_id, "s/failed").await;
    cancel(&engine, &run_id).await;
    let run = ended(&engine, &run_id).await;
    assert_eq!((run.status, run.error.unwrap().cause.as_str()), (RunStatus::Cancelled, "operator: op"));
}

async fn a_cancellation_reaches_a_function_that_waits(backend: Backend) {
    let engine = deciding_for(backend, "waits").await;
    engine.start_worker();
    let run_id = start(&engine, NewRun::new("w", "问")).await;
    recorded(&engine, &run_id, &run_id, "s/begun").await;
    cancel(&engine, &run_id).await;
    assert_eq!(ended(&engine, &run_id).await.status, RunStatus::Cancelled);

    engine.publish("s1", "m-1", "走流程").await;
    recorded(&engine, "s1", "m-1", "0/waits/begun").await;
    let order = operator::OperatorCommand { command: Command::Cancel, name: None, reason: None, by: Some("op".into()) };
    operator::command(engine.queue.as_ref(), engine.store.as_ref(), "s1", order).await.unwrap();
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
}

async fn a_run_of_a_cancelled_turn_ends_however_many_others_its_session_has(backend: Backend) {
    let engine = deciding_for(backend, "w").await;
    engine.start_worker();
    engine.publish("s1", "m-1", "走流程").await;
    recorded(&engine, "s1", "m-1", "0/w/s/begun").await;
    let of_session = RunQuery { origin_session: Some("s1".into()), limit: 10, ..RunQuery::default() };
    let run = engine.store.runs(of_session).await.unwrap().remove(0);
    // Newer runs, which are in lanes of their own.
    for number in 1..=25 {
        let (run_id, created_at) = (format!("own-{number}"), run.created_at.plus(Duration::from_secs(number)));
        let (lane, turn_id) = (run_id.clone(), run_id.clone());
        let other = RunRecord { run_id, lane, turn_id, created_at, ..run.clone() };
        assert!(engine.store.put_run(other).await.unwrap());
    }
    cancel(&engine, &run.run_id).await;
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
    assert_eq!(run_of(&engine, &run.run_id).await.status, RunStatus::Cancelled);
}

async fn a_run_that_waits_on_the_queue_is_cancelled_and_never_begins(backend: Backend) {
    let engine = engine(backend, echo).await;
    let run_id = start(&engine, NewRun::new("steps", "问")).await;
    cancel(&engine, &run_id).await;
    let listed = run_of(&engine, &run_id).await;
    assert_eq!(
        (listed.status, listed.started_at),
        (RunStatus::Cancelled, None),
        "the run is cancelled before a worker has seen it"
    );
    // The record alone must suffice, because it may take long until a worker is free for the command.
    let other = start(&engine, NewRun::new("steps", "问")).await;
    let error = Some(RunFailure { path: String::new(), cause: "operator: op".into(), attempts: 1 });
    let (status, ended_at) = (RunStatus::Cancelled, Some(clock::now()));
    let record = RunRecord { status, error, ended_at, ..run_of(&engine, &other).await };
    engine.store.update_run(record, 0).await.unwrap();
    engine.start_worker();
    assert_eq!(ended(&engine, &other).await.status, RunStatus::Cancelled);
    eventually(DEADLINE, "the stream of its events has an end", || async {
        outermost(&told(&engine, &run_id, &run_id).await) == [RunEventType::RunFailed]
    })
    .await;
    let run = ended(&engine, &run_id).await;
    assert_eq!((run.status, run.error.unwrap().cause.as_str()), (RunStatus::Cancelled, "operator: op"));
    assert_eq!(asked(&engine), [""; 0]);
    // The run can be resumed like any other cancelled run.
    resume(&engine, &run_id).await;
    eventually(DEADLINE, "the run continues to its output", || async {
        ended(&engine, &run_id).await.output.as_deref() == Some("c(b(a(问)))")
    })
    .await;
}
