//! Runs that are abandoned after their end was recorded: their plans follow that end.

use super::background::{gated, noticed, run, start};
use super::plans::{execute, report};
use super::*;
use crate::conformance::kit;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use decisions::world::WorkflowStatus;
use storage::store::records::Record;
use types::run::RunRecord;

on_both_backends!(
    a_replan_of_a_run_that_is_given_up_after_its_recorded_end_becomes_the_stored_version,
    a_replan_of_a_run_whose_turn_is_given_up_after_its_recorded_end_becomes_the_stored_version,
);

/// Records the end of the run as if a worker had died right after it. The run has replaced its plan's nodes by `spare`.
async fn record_end(engine: &Engine, lane: &str, run: &RunRecord) {
    let id = &run.run_id;
    let event = json!({"type": "run_completed", "run_id": id, "root_run_id": id, "event_id": format!("{id}/run_completed"),
        "depth": 0, "data": {"output": "做好了"}, "at": base::clock::now()});
    let config = json!({"url": format!("{}/spare", engine.api.base_url), "method": "POST"});
    let spare = json!({"node_id": "spare", "type": "HTTP", "name": "备用", "config": config});
    let states = json!([{"node_id": "spare", "type": "HTTP", "status": "completed", "attempts": 1, "ms": 5}]);
    let end = json!({"output": "做好了", "failure": null, "usage": run.usage, "event": event,
        "revised": {"number": 1, "plan": {"nodes": [spare], "edges": []}}, "graph": states});
    let key = if run.prefix.is_empty() { "end".to_owned() } else { format!("{}/end", run.prefix) };
    let record = Record {
        session_id: lane.to_owned(),
        epoch: engine.session(lane).await.epoch,
        turn_id: run.turn_id.clone(),
        steps: vec![kit::step(&key, end)],
        status: None,
    };
    engine.store.record(record).await.unwrap();
}

async fn hangs(engine: &Engine) -> RunRecord {
    eventually(DEADLINE, "the run calls", || async { engine.api.is_asked() }).await;
    run(engine).await
}

async fn cancel(engine: &Engine, run: &RunRecord) {
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    ::commands::runs::cancel_run(queue, store, &run.run_id, None, None).await.unwrap();
}

/// The run has ended as recorded, and its plan has the replan.
async fn is_as_recorded(engine: &Engine) {
    let ended = run(engine).await;
    assert_eq!((ended.status, ended.output.as_deref()), (RunStatus::Completed, Some("做好了")));
    let plan = plans_of(engine, "s1").await.remove(0);
    assert_eq!(plan.state.status, WorkflowStatus::Completed);
    assert_eq!(plan.workflow.document["nodes"][0]["node_id"], "spare", "{}", plan.workflow.document);
    assert_ne!(plan.workflow.hash, ended.hash);
    let nodes: Vec<_> = ended.graph.iter().flatten().map(|node| node.node_id.as_str()).collect();
    assert_eq!((ended.revision, &nodes[..]), (Some(1), &["spare"][..]));
}

async fn a_replan_of_a_run_that_is_given_up_after_its_recorded_end_becomes_the_stored_version(backend: Backend) {
    let (engine, _gate) = gated(backend, vec![answer(&[report()]), answer(&[start(true)])]).await;
    engine.say("s1", "m-1", "执行").await;
    let begun = hangs(&engine).await;
    record_end(&engine, &begun.run_id, &begun).await;
    cancel(&engine, &begun).await;
    assert_eq!(noticed(&engine).await.metadata["status"], "completed");
    is_as_recorded(&engine).await;
}

async fn a_replan_of_a_run_whose_turn_is_given_up_after_its_recorded_end_becomes_the_stored_version(backend: Backend) {
    let (engine, _gate) = gated(backend, vec![answer(&[report()]), answer(&[execute(json!({}))])]).await;
    engine.publish("s1", "m-1", "执行").await;
    let begun = hangs(&engine).await;
    record_end(&engine, "s1", &begun).await;
    cancel(&engine, &begun).await;
    assert_eq!(engine.turn("s1", "m-1").await.outcome, Outcome::Cancelled);
    is_as_recorded(&engine).await;
}
