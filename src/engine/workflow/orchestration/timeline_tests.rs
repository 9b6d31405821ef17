//! Tests of timelines: their entries, and that making one executes nothing.

use super::ground::Ground;
use super::run_tests::{FAILING, NESTED};
use super::timeline::{StageStatus, TimelineEntry, timeline};
use crate::journal::Journal;
use crate::workflow::{FlowContext, FlowError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use types::step::StepRecord;

/// Makes the timeline of a run of `id` from `steps`.
async fn look(ground: &Ground, id: &str, steps: Vec<StepRecord>) -> Vec<TimelineEntry> {
    let journal = Journal::read_only(Arc::clone(&ground.store), "r1", "t1", steps);
    timeline(ground.resolved(id).await, journal, Ground::services(), "q".into(), "q".into(), serde_json::Map::new())
        .await
        .0
}

#[tokio::test]
async fn a_timeline_has_every_stage_with_its_input_and_asks_nothing() {
    let ground = Ground::new(&[NESTED, FAILING]);
    ground.output("outer", "q").await;
    ground.calls();
    let steps = ground.store.steps("r1", "t1").await.unwrap();
    let whole = look(&ground, "outer", steps.clone()).await;
    let paths: Vec<_> = whole.iter().map(|entry| (entry.path.as_str(), entry.depth, entry.input.as_str())).collect();
    assert_eq!(paths[0], ("plan", 0, "plan q"));
    assert!(paths.contains(&("again[1]/both/right", 2, "R <plan q>")), "{paths:#?}");
    assert!(whole.iter().all(|entry| entry.status == StageStatus::Completed && entry.started_at.is_some()));
    let half = steps.into_iter().filter(|step| !step.key.starts_with("again[2]")).collect();
    let half = look(&ground, "outer", half).await;
    let running: Vec<_> = half.iter().filter(|entry| entry.status == StageStatus::Running).collect();
    let paths: Vec<_> = running.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["again", "again[2]/both", "again[2]/both/left", "again[2]/both/right"]);
    assert!(ground.calls().is_empty());
}

#[tokio::test]
async fn a_function_in_rust_is_not_called_for_a_timeline() {
    let mut ground = Ground::new(&["
id: w
stages:
  - {id: a, runnable: counted, input: '{query}'}
  - {id: b, runnable: echo, input: '{a}'}
"]);
    let called = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&called);
    // This flow has a side effect outside of steps, and returns another text each time.
    ground.flows = ground.flows.with("counted", move |context: FlowContext| {
        let nth = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, FlowError>(format!("{nth}. {}", context.input)) }
    });
    assert_eq!(ground.output("w", "q").await, "<1. q>");
    let steps = ground.store.steps("r1", "t1").await.unwrap();
    let shown = look(&ground, "w", steps.clone()).await;
    let outputs: Vec<_> = shown.iter().map(|entry| (entry.status, entry.output.as_deref())).collect();
    assert_eq!(outputs, [(StageStatus::Completed, Some("1. q")), (StageStatus::Completed, Some("<1. q>"))]);
    let begun = look(&ground, "w", Vec::new()).await;
    assert_eq!(begun.iter().map(|entry| entry.status).collect::<Vec<_>>(), [StageStatus::Running]);
    assert_eq!(called.load(Ordering::SeqCst), 1, "a timeline calls nothing");
    assert_eq!(ground.output("w", "q").await, "<1. q>", "a repeated run continues with the recorded output");
}
