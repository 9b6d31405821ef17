//! LOOP over a list ("map"): the order of outputs, the limit of concurrent iterations, failures, and repeated runs.

use super::*;
use crate::scenarios::on_both_backends;
use crate::support::api::Answer as Called;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

on_both_backends!(
    items_run_together_up_to_a_limit_and_keep_their_order,
    a_long_list_runs_without_a_limit_of_iterations,
    the_failure_of_one_item_fails_the_loop,
    a_killed_worker_repeats_no_item_that_was_recorded,
);

/// A LOOP over the input `list` that calls the API for each item.
fn each(config: Value) -> Value {
    let mut config = config;
    config["items"] = json!("${input.list}");
    config["body"] = json!({"nodes": [call("one", "item", "${loop.item}/${loop.iteration}")]});
    graph(json!([node("each", "LOOP", config)]), &[])
}

fn outputs(run: &RunRecord) -> Value {
    let output: Value = serde_json::from_str(run.output.as_deref().unwrap_or_default()).unwrap_or_default();
    output["outputs"].clone()
}

async fn items_run_together_up_to_a_limit_and_keep_their_order(backend: Backend) {
    let engine = engine(backend).await;
    let (gate, most, now) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (held, seen, running) = (Arc::clone(&gate), Arc::clone(&most), Arc::clone(&now));
    engine.api.script(move |_, body| {
        seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Called::Gated(Arc::clone(&held), 200, body["x"].clone())
    });
    register(&engine, each(json!({"max_concurrency": 3}))).await;
    let run_id = start(&engine, with_input(json!({"list": ["a", "b", "c", "d", "e"]}))).await;
    eventually(DEADLINE, "three items are called", || async { engine.api.calls("/item").len() == 3 }).await;
    // The third item ends first, and the next one may begin only when the first has ended.
    gate.add_permits(1);
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    let data: Vec<Value> = outputs(&run).as_array().unwrap().iter().map(|output| output["data"].clone()).collect();
    assert_eq!(data, ["a/1", "b/2", "c/3", "d/4", "e/5"]);
    assert_eq!(engine.api.calls("/item").len(), 5);
}

async fn a_long_list_runs_without_a_limit_of_iterations(backend: Backend) {
    let engine = engine(backend).await;
    register(&engine, each(json!({"max_concurrency": 20}))).await;
    let list: Vec<usize> = (0..150).collect();
    let run = ended(&engine, &start(&engine, with_input(json!({"list": list}))).await).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    assert_eq!(outputs(&run).as_array().unwrap().len(), 150);
    assert_eq!(engine.api.calls("/item").len(), 150);
    let empty = ended(&engine, &start(&engine, with_input(json!({"list": []}))).await).await;
    assert_eq!((empty.status, outputs(&empty)), (RunStatus::Completed, json!([])));
    register(&engine, each(json!({"max_iterations": 2}))).await;
    let run = ended(&engine, &start(&engine, with_input(json!({"list": [1, 2, 3]}))).await).await;
    assert!(run.error.unwrap().cause.contains("`items` has 3 items, and `max_iterations` is 2"));
    let run = ended(&engine, &start(&engine, with_input(json!({"list": "abc"}))).await).await;
    assert!(run.error.unwrap().cause.contains("give a list"));
}

async fn the_failure_of_one_item_fails_the_loop(backend: Backend) {
    let engine = engine(backend).await;
    engine.api.script(|_, body| (if body["x"] == "b/2" { 404 } else { 200 }, json!({})));
    register(&engine, each(json!({"max_concurrency": 2}))).await;
    let run = ended(&engine, &start(&engine, with_input(json!({"list": ["a", "b"]}))).await).await;
    let failure = run.error.unwrap();
    assert_eq!((run.status, failure.path.as_str()), (RunStatus::Failed, "each"));
    assert!(failure.cause.contains("HTTP_404") && failure.cause.contains("each[2]/one"), "{failure:?}");
    let node = run.graph.unwrap().remove(0);
    assert_eq!(node.error_code.as_deref(), Some("LOOP"));
}

async fn a_killed_worker_repeats_no_item_that_was_recorded(mut backend: Backend) {
    backend.settings.worker.drain_timeout = types::duration::Text(std::time::Duration::from_millis(100));
    let engine = Engine::watching(backend, ScriptedModel::start(echo).await).await;
    let (gate, held) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let holding = Arc::clone(&gate);
    drop(held);
    engine.api.script(move |_, body| match body["x"].as_str() {
        Some("c/3") => Called::Gated(Arc::clone(&holding), 200, json!({})),
        _ => Called::Now(200, json!({})),
    });
    register(&engine, each(json!({"max_concurrency": 2}))).await;
    let worker = engine.start_worker();
    let run_id = start(&engine, with_input(json!({"list": ["a", "b", "c", "d"]}))).await;
    let called =
        |item: &str| engine.api.calls("/item").into_iter().filter(|call| call.body["x"] == item).collect::<Vec<_>>();
    let recorded =
        async |key: &str| engine.store.steps(&run_id, &run_id).await.unwrap().iter().any(|step| step.key == key);
    eventually(DEADLINE, "the third item hangs and the others are recorded", || async {
        called("c/3").len() == 1
            && recorded("each[1]/one/run").await
            && recorded("each[2]/one/run").await
            && recorded("each[4]/one/run").await
    })
    .await;
    worker.cancel();
    gate.add_permits(1);
    engine.start_worker();
    let run = ended(&engine, &run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
    for item in ["a/1", "b/2", "d/4"] {
        assert_eq!(called(item).len(), 1, "{item}");
    }
    let keys: Vec<_> = called("c/3").into_iter().map(|call| call.idempotency_key).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "the same request: {keys:?}");
}
