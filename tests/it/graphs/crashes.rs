//! Worker processes that are killed in the middle of recoveries and replans.

use super::{edge, ended, engine, http, is_replan, output, recovers, register, replans, start};
use crate::crash::seen;
use crate::support::backend::cluster;
use crate::support::engine::{DEADLINE, Engine};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::script::Asked;
use base::config::Environment;
use lab::invariants::{self, AcceptedMessage, Evidence};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use storage::queue::Publish;
use types::run::RunStatus;

/// a; then b and c; d after both. b times out and is changed; c fails and is replaced.
fn graph() -> Value {
    let node = |id: &str| json!({"node_id": id, "type": "HTTP", "name": id, "config": {"url": format!("{{api}}/{id}"), "method": "POST"}});
    let edge = |source: &str, target: &str| json!({"source": source, "target": target});
    json!({"id": "g", "nodes": [node("a"), node("b"), node("c"), node("d")],
        "edges": [edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d")]})
}

/// The address of the API in a question.
fn server(asked: &Asked) -> String {
    let url = asked.system.split("\"url\": \"").nth(1).unwrap().split('"').next().unwrap().replace("<\\/", "</");
    url.rsplit_once('/').unwrap().0.to_owned()
}

/// Kills the worker at each call of the API and of the model in turn. The next worker repeats at most the call in flight,
/// under its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_at_any_call_of_a_recovery_repeats_no_other() {
    let engine = engine(cluster().await, |asked| {
        let url = server(asked);
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

/// How many workers are killed.
const MOMENTS: usize = 10;
/// More moments are drawn than kill a worker: a run may end while its worker is killed.
const MOST_RUNS: usize = 60;

/// rows; then trend and chart, which are scripts; then send. rows is busy until its address is changed, and mail takes the
/// place of send.
fn sales_plan() -> Value {
    let script = |id: &str, name: &str, from: &str, code: &str| json!({"node_id": id, "type": "PYTHON", "name": id, "config": {"code": code}, "input_mapping": {name: from}});
    let sum = "total = 0\nfor row in rows:\n    total = total + row['amount']\nreturn {'total': total}";
    let trend = script("trend", "rows", "${rows.output.data.rows}", sum);
    let chart =
        script("chart", "total", "${trend.output.total}", "return {'chart_path': 'charts/' + str(total) + '.png'}");
    json!({"id": "g", "nodes": [http("rows", "busy"), trend, chart, http("send", "gone")],
        "edges": [edge("rows", "trend"), edge("trend", "chart"), edge("chart", "send")]})
}

/// Recovers rows, and replaces send by mail.
fn mends(asked: &Asked) -> Value {
    let url = server(asked);
    if is_replan(asked) || asked.system.contains("HTTP_404") {
        let config = json!({"url": format!("{url}/mail"), "method": "POST",
            "body": {"attachments": ["${chart.output.chart_path}"]}});
        let mail = json!({"node_id": "mail", "type": "HTTP", "name": "mail", "config": config});
        return replans(
            &json!({"remove_nodes": ["send"], "add_nodes": [mail], "update_edges": [edge("chart", "mail")]}),
        );
    }
    let changes = json!({"config.url": format!("{url}/rows")});
    recovers("rows", &json!({"action": "RETRY", "max_attempts": 2, "delay": 0.05, "modifications": changes}))
}

/// Starts a run, and returns once a worker has begun it.
async fn begin(engine: &Engine, run_id: &str) -> AcceptedMessage {
    let job = json!({"type": "run", "session_id": run_id, "job_id": run_id, "workflow_id": "g", "query": "开始"});
    let payload: bytes::Bytes = serde_json::to_vec(&job).unwrap().into();
    let publish = Publish { session_id: run_id.into(), msg_id: None, payload: payload.clone() };
    let seq = engine.queue.publish(publish).await.unwrap().seq;
    eventually(DEADLINE, "the run begins", || async { engine.store.run(run_id).await.unwrap().is_some() }).await;
    AcceptedMessage { session_id: run_id.into(), seq, payload }
}

/// The run has ended with the outputs of the recovered rows and of the scripts.
async fn is_complete(engine: &Engine, run_id: &str, seed: u64) {
    let run = ended(engine, run_id).await;
    assert_eq!(run.status, RunStatus::Completed, "seed {seed}, {run_id}: {run:?}");
    let of_run = |call: &crate::support::api::Called| call.idempotency_key.starts_with(&format!("{run_id}/"));
    let mails: Vec<_> = engine.api.calls("/mail").into_iter().filter(of_run).collect();
    assert!(!mails.is_empty() && mails.iter().all(|mail| mail.body == json!({"attachments": ["charts/7.png"]})));
    assert_eq!(output(&run)["data"], json!({"rows": [{"amount": 3}, {"amount": 4}]}), "seed {seed}, {run_id}");
}

/// How far a run is: the number of its recorded steps, of its calls of APIs and of its questions to the model.
async fn progress(engine: &Engine, run_id: &str) -> usize {
    let of_run = |key: &str| key.starts_with(&format!("{run_id}/"));
    let run = engine.store.run(run_id).await.unwrap().unwrap();
    let steps = engine.store.steps(&run.lane, &run.turn_id).await.unwrap().len();
    let calls = engine.api.calls("").iter().filter(|call| of_run(&call.idempotency_key)).count();
    steps + calls + engine.model.asked().iter().filter(|asked| of_run(&asked.idempotency_key)).count()
}

/// The environment variable `TURNWHEEL_TEST_SEED` repeats the moments of a failed test.
fn seed() -> u64 {
    let given = Environment::from_process();
    let seed = given.get("TURNWHEEL_TEST_SEED").map_or_else(rand::random, |seed| seed.parse().unwrap());
    println!("seed {seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_killed_at_ten_random_moments_of_a_run_repeat_nothing_that_is_recorded() {
    let engine = engine(cluster().await, mends).await;
    register(&engine, sales_plan()).await;
    engine.api.script(|path, _| match path {
        "/busy" => (503, json!({})),
        "/gone" => (404, json!({})),
        _ => (200, json!({"rows": [{"amount": 3}, {"amount": 4}]})),
    });
    let (seed, dir) = (seed(), tempfile::tempdir().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let mut worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    let mut sent = vec![begin(&engine, "r0").await];
    is_complete(&engine, "r0", seed).await;
    let (whole, mut killed) = (progress(&engine, "r0").await, 0);
    assert!(whole >= MOMENTS, "a run has {whole} moments");
    while killed < MOMENTS {
        let run_id = format!("r{}", sent.len());
        assert!(sent.len() < MOST_RUNS, "seed {seed}: only {killed} of the moments were within a run");
        sent.push(begin(&engine, &run_id).await);
        let moment = random.random_range(0..whole);
        eventually(DEADLINE, "the moment comes", || async { progress(&engine, &run_id).await >= moment }).await;
        worker.kill();
        // Requests of the killed worker arrive before those of the next one.
        tokio::join!(engine.model.connections().gone(), engine.api.connections.gone());
        killed += usize::from(!engine.store.run(&run_id).await.unwrap().unwrap().status.has_ended());
        worker = Process::start(dir.path(), &engine.settings, &["worker"]);
        is_complete(&engine, &run_id, seed).await;
    }
    let (queue, store) = (engine.queue.as_ref(), engine.store.as_ref());
    eventually(DEADLINE, "no work is left", || async { invariants::at_rest(queue, store, &sent).await.unwrap() }).await;
    let model = engine.model.asked().iter().map(seen::asked).collect();
    let api = engine.api.calls("").iter().map(seen::called).collect();
    let found =
        invariants::check(queue, store, &Evidence { sent, events: None, model, api, outlived: false }).await.unwrap();
    assert_eq!(found, [""; 0], "seed {seed}");
}
