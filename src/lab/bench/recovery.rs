//! `bench recovery`: the time from the death of a worker until another worker has replied in its turns.

use super::agent::agent;
use super::load::{FILL_CONCURRENCY, Load};
use super::member::{MemberProfile, Role};
use super::options::RecoveryOptions;
use super::report::{Column, Report, Row, rounded};
use super::test_cluster::TestCluster;
use super::workers::Workers;
use super::{Problem, Progress};
use base::config::{Backend, Environment, Settings};
use serde_json::json;
use std::time::{Duration, Instant};
use types::duration::{Text, format};

/// Latency of a model that never replies before its worker is killed.
const ENDLESS_LATENCY: Duration = Duration::from_secs(3_600);
/// Time that the second worker gets to start.
const STANDBY_START: Duration = Duration::from_secs(2);

const COLUMNS: &[Column] = &[
    ("turns", "in_flight"),
    ("ack wait", "ack_wait"),
    ("p50 ms", "p50_ms"),
    ("p90 ms", "p90_ms"),
    ("p99 ms", "p99_ms"),
    ("max ms", "max_ms"),
    ("lost", "unanswered"),
];

/// Runs the benchmark: kills a worker with turns in flight and measures when another worker replies. Needs a cluster.
pub async fn run(
    options: &RecoveryOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    if options.target.backend == Backend::Embedded {
        let hint = "omit --backend; with the embedded file, turns resume when the process starts again";
        return Err(Problem::new(
            "recovery needs a second worker, but only one process can open the embedded file",
            hint,
        )
        .into());
    }
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let mut rows = Vec::new();
    for round in 1..=options.rounds {
        progress.phase(&format!("recovery: round {round} of {}", options.rounds));
        rows.push(Box::pin(self::round(&cluster, options, progress)).await?);
    }
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

async fn round(cluster: &TestCluster, options: &RecoveryOptions, progress: &dyn Progress) -> anyhow::Result<Row> {
    // The worker needs places for all turns, although one eighth of them is reserved for other models.
    let room = options.turns + options.turns / 4;
    let namespace =
        cluster.open_namespace(|settings| settings.worker.concurrency = settings.worker.concurrency.max(room)).await?;
    namespace.store.put_agent(agent(0, None)?).await?;
    let worker = |latency: Duration| {
        let profile = MemberProfile { role: Role::Worker, actions: 0, model_latency: Text(latency), hot: false };
        Workers::start(&namespace, &profile, 1, cluster.dir())
    };
    let mut load = Load::new(&namespace, options.turns, true).await?;
    let first = worker(Duration::ZERO)?;
    load.fill(options.turns, FILL_CONCURRENCY, progress).await?;
    first.end().await;
    let stuck = worker(ENDLESS_LATENCY)?;
    load.begin_all(progress).await?;
    let second = worker(Duration::ZERO)?;
    tokio::time::sleep(STANDBY_START).await;
    progress.tick("killing the worker");
    let killed = Instant::now();
    drop(stuck);
    let recovered = load.await_all(killed).await?;
    let mut row = json!({
        "bench": "recovery",
        "backend": options.target.backend,
        "in_flight": options.turns,
        "ack_wait": format(namespace.settings.worker.ack_wait.0),
        "recovered": recovered.turns,
        "unanswered": recovered.unanswered,
        "all_within_s": rounded(recovered.seconds),
    });
    let mut row = row.as_object_mut().map(std::mem::take).unwrap_or_default();
    recovered.latencies.put(&mut row);
    second.end().await;
    namespace.close().await?;
    Ok(row)
}
