//! Runs of a turn that is cancelled: each ends, and its end is published once.

use super::*;
use crate::conformance::kit;
use crate::scenarios::{acts, answer, on_both_backends, sales_with};
use crate::support::script::plan;
use storage::store::records::Record;
use types::outcome::Outcome;
use types::run::{RunQuery, RunStatus};
use types::run_outcome::RunFailure;

on_both_backends!(
    every_run_of_a_cancelled_turn_ends,
    a_run_that_an_earlier_attempt_has_ended_is_published,
    a_run_that_has_ended_by_itself_is_published_as_recorded,
);

/// More runs than a page of a listing has.
const MANY: usize = 60;

/// An engine whose turn `m-1` runs the workflow `steps`, which hangs in its second stage. Also returns the run.
async fn hanging(backend: Backend) -> (Engine, RunRecord) {
    let decides = |asked: &Asked| match (asked.system.as_str(), asked.schema.as_str()) {
        ("b", _) => Answer::Hang,
        (_, "") => echo(asked),
        (_, "plan_and_decision") => {
            Answer::json(&plan(json!("您好"), &acts("processing", "FLOW", "steps", &json!({}))))
        }
        _ => Answer::json(&answer("好的")),
    };
    let engine = engine(backend, decides).await;
    engine.apply(sales_with(&json!({"flows": ["steps"]}))).await;
    engine.start_worker();
    engine.publish("s1", "m-1", "走流程").await;
    is_asked(&engine, "b").await;
    let run = engine.store.runs(RunQuery::default()).await.unwrap().remove(0);
    assert_eq!((run.status, run.turn_id.as_str()), (RunStatus::Running, "m-1"));
    (engine, run)
}

/// Cancels the turn, and returns after its commit.
async fn cancel(engine: &Engine, run: &RunRecord) {
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    run_commands::cancel_run(queue, store, &run.run_id, None, Some("op".into())).await.unwrap();
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
}

/// The run's published ends, with their reasons.
async fn ends(engine: &Engine, run_id: &str) -> Vec<Option<String>> {
    let failed = told(engine, "s1", run_id).await.into_iter().filter(|event| event.kind == RunEventType::RunFailed);
    failed.map(|event| event.error).collect()
}

async fn every_run_of_a_cancelled_turn_ends(backend: Backend) {
    let (engine, run) = hanging(backend).await;
    let numbered = |number: usize| (format!("r{number}"), format!("{number}/other"));
    for (run_id, prefix) in (1..=MANY).map(numbered) {
        let status = if run_id.ends_with('7') { RunStatus::Waiting } else { RunStatus::Running };
        assert!(engine.store.put_run(RunRecord { run_id, prefix, status, ..run.clone() }).await.unwrap());
    }
    let of_other_turn = RunRecord { run_id: "other".into(), turn_id: "m-0".into(), ..run.clone() };
    engine.store.put_run(of_other_turn.clone()).await.unwrap();
    cancel(&engine, &run).await;
    for (run_id, _) in (1..=MANY).map(numbered).chain([(run.run_id.clone(), String::new())]) {
        let ended = run_of(&engine, &run_id).await;
        assert_eq!((ended.status, ended.ended_at.is_some()), (RunStatus::Cancelled, true), "{run_id}");
        assert_eq!(ends(&engine, &run_id).await, [Some("operator: op".to_owned())], "{run_id}");
    }
    assert_eq!(run_of(&engine, "other").await, of_other_turn, "a run of another turn is unchanged");
}

async fn a_run_that_an_earlier_attempt_has_ended_is_published(backend: Backend) {
    let (engine, run) = hanging(backend).await;
    // An attempt to cancel the turn ended the first run, and did not commit. The second run completed within the turn.
    let error = RunFailure { path: String::new(), cause: "attempts: 5".into(), attempts: 1 };
    let (run_id, prefix, ended_at) = ("cancelled".to_owned(), "8/other".to_owned(), Some(clock::now()));
    let cancelled =
        RunRecord { run_id, prefix, ended_at, status: RunStatus::Cancelled, error: Some(error), ..run.clone() };
    let (run_id, prefix) = ("completed".to_owned(), "9/other".to_owned());
    let completed = RunRecord { run_id, prefix, ended_at, status: RunStatus::Completed, ..run.clone() };
    for ended in [&cancelled, &completed] {
        engine.store.put_run(ended.clone()).await.unwrap();
    }
    cancel(&engine, &run).await;
    assert_eq!(ends(&engine, "cancelled").await, [Some("attempts: 5".to_owned())]);
    assert!(told(&engine, "s1", "completed").await.is_empty());
    for ended in [cancelled, completed] {
        assert_eq!(run_of(&engine, &ended.run_id).await, ended, "the record is unchanged");
    }
}

async fn a_run_that_has_ended_by_itself_is_published_as_recorded(backend: Backend) {
    let (engine, run) = hanging(backend).await;
    let (run_id, prefix, ended_at) = ("completed".to_owned(), "9/other".to_owned(), Some(clock::now()));
    let completed = RunRecord { run_id, prefix, ended_at, status: RunStatus::Completed, ..run.clone() };
    engine.store.put_run(completed.clone()).await.unwrap();
    let event = json!({"type": "run_completed", "run_id": "completed", "root_run_id": "completed",
        "event_id": "completed/end", "depth": 0, "data": {"output": "做好了"}, "at": clock::now()});
    let end = json!({"output": "做好了", "failure": null, "usage": run.usage, "event": event});
    let session = engine.session("s1").await;
    let record = Record {
        session_id: "s1".into(),
        epoch: session.epoch,
        turn_id: "m-1".into(),
        steps: vec![kit::step("9/other/end", end)],
        status: None,
    };
    engine.store.record(record).await.unwrap();
    cancel(&engine, &run).await;
    let told = told(&engine, "s1", "completed").await;
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (told.kind, told.data.as_ref().unwrap()["output"].as_str()),
        (RunEventType::RunCompleted, Some("做好了"))
    );
    assert_eq!(run_of(&engine, "completed").await, completed, "the record is unchanged");
}
