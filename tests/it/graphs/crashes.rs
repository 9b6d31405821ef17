//! Worker processes that are killed in the middle of recoveries and replans.

use super::{ended, engine, is_replan, output, recovers, register, replans, start};
use crate::support::backend::cluster;
use crate::support::engine::DEADLINE;
use crate::support::eventually;
use crate::support::process::Process;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use types::run::RunStatus;

/// a; then b and c; d after both. b times out and is changed; c fails and is replaced.
fn graph() -> Value {
    let node = |id: &str| json!({"node_id": id, "type": "HTTP", "name": id, "config": {"url": format!("{{api}}/{id}"), "method": "POST"}});
    let edge = |source: &str, target: &str| json!({"source": source, "target": target});
    json!({"id": "g", "nodes": [node("a"), node("b"), node("c"), node("d")],
        "edges": [edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d")]})
}

/// Kills the worker at each call of the API and of the model in turn. The next worker repeats at most the call in flight,
/// under its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_at_any_call_of_a_recovery_repeats_no_other() {
    let engine = engine(cluster().await, |asked| {
        let url = asked.system.split("\"url\": \"").nth(1).unwrap().split('"').next().unwrap().replace("<\\/", "</");
        let url = url.rsplit_once('/').unwrap().0.to_owned();
        if is_replan(asked) || asked.system.contains("HTTP_404") {
            let spare = json!({"node_id": "e", "type": "HTTP", "name": "e", "config": {"url": format!("{url}/e"), "method": "POST"}});
            return replans(&json!({"remove_nodes": ["c"], "add_nodes": [spare],
                "update_edges": [{"source": "a", "target": "e"}, {"source": "e", "target": "d"}]}));
        }
        let changes = json!({"config.url": format!("{url}/b2")});
        recovers("b", &json!({"action": "RETRY", "max_attempts": 2, "delay": 0.1, "modifications": changes}))
    })
    .await;
    register(&engine, graph()).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let hangs = Arc::new(AtomicUsize::new(usize::MAX));
    let at = Arc::clone(&hangs);
    engine.api.script(move |path, _| {
        if counted.fetch_add(1, Ordering::SeqCst) == at.load(Ordering::SeqCst) {
            return crate::support::api::Answer::Hang;
        }
        match path {
            "/b" => (503, json!({})).into(),
            "/c" => (404, json!({})).into(),
            path => crate::support::api::Answer::Now(200, json!({"path": path})),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let mut worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    for kill_at in 0..6 {
        engine.api.forget();
        engine.model.forget();
        calls.store(0, Ordering::SeqCst);
        hangs.store(kill_at, Ordering::SeqCst);
        let run_id = start(&engine).await;
        eventually(DEADLINE, "the call hangs", || async { calls.load(Ordering::SeqCst) > kill_at }).await;
        worker.kill();
        worker = Process::start(dir.path(), &engine.settings, &["worker"]);
        let run = ended(&engine, &run_id).await;
        assert_eq!(run.status, RunStatus::Completed, "{kill_at}: {run:?}");
        assert_eq!(output(&run)["data"], json!({"path": "/d"}), "{kill_at}");
        let mut by_key = BTreeMap::<String, usize>::new();
        engine.api.calls("").into_iter().for_each(|call| *by_key.entry(call.idempotency_key).or_default() += 1);
        let repeated = by_key.values().filter(|count| **count > 1).count();
        assert_eq!(by_key.len(), 6, "{kill_at}: every request has one key: {by_key:?}");
        // Two nodes are in flight together.
        assert!(repeated <= 2, "{kill_at}: {by_key:?}");
        let mut asked = BTreeMap::<String, usize>::new();
        engine.model.asked().into_iter().for_each(|asked_| *asked.entry(asked_.idempotency_key).or_default() += 1);
        assert!(asked.len() >= 2 && asked.values().all(|count| *count <= 2), "{kill_at}: {asked:?}");
    }
}
