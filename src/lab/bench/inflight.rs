//! `bench inflight`: thousands of concurrent turns that wait for a slow model, in one worker.

use super::Progress;
use super::agent::agent;
use super::load::{Arrivals, Load};
use super::member::{MemberProfile, Role};
use super::options::InflightOptions;
use super::process::MemoryUsage;
use super::report::{Column, Report, Row, mib, rounded};
use super::test_cluster::TestCluster;
use super::workers::Workers;
use base::config::{Backend, Environment, Settings};
use serde_json::json;
use std::time::Duration;
use types::duration::{Text, format};

const COLUMNS: &[Column] = &[
    ("turns", "in_flight"),
    ("model", "model_latency"),
    ("peak waiting", "waiting_peak"),
    ("turns/s", "turns_per_s"),
    ("ideal/s", "ideal_turns_per_s"),
    ("added p50 ms", "added_p50_ms"),
    ("added p99 ms", "added_p99_ms"),
    ("RSS MiB", "rss_mib"),
    ("peak MiB", "peak_mib"),
    ("idle MiB", "idle_mib"),
    ("KiB/turn", "kib_per_turn"),
    ("lost", "unanswered"),
];

/// Runs the benchmark: throughput, added latency and memory of one worker with `turns` turns in flight.
pub async fn run(
    options: &InflightOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let namespace = cluster.open_namespace(|settings| settings.worker.concurrency = options.turns).await?;
    namespace.store.put_agent(agent(0, None)?).await?;
    let mut load = Load::new(&namespace, options.turns, true).await?;
    let profile =
        MemberProfile { role: Role::Worker, actions: 0, model_latency: Text(options.model_latency), hot: false };
    let workers = Workers::start(&namespace, &profile, 1, cluster.dir())?;
    progress.phase(&format!("inflight: a first turn in each of {} sessions", options.turns));
    load.fill(1, 1, progress).await?;
    let idle = workers.memory()?;
    load.fill(options.turns, options.turns, progress).await?;
    progress.phase(&format!("inflight: {} users, a model of {}", options.turns, format(options.model_latency)));
    let seconds = Duration::from_secs(options.seconds);
    let arrivals = Arrivals::Closed(options.turns);
    let busy = load.run(arrivals, options.warm_up, seconds, progress);
    let (measured, resident) = futures::future::join(busy, sample(&workers, options.warm_up + seconds)).await;
    let (measured, resident) = (measured?, resident?);
    let peak = workers.memory()?.peak;
    let added = |quantile: f64| {
        rounded((measured.latencies.quantile(quantile) - options.model_latency.as_secs_f64() * 1_000.0).max(0.0))
    };
    let row = json!({
        "bench": "inflight",
        "backend": options.target.backend,
        "in_flight": options.turns,
        "model_latency": format(options.model_latency),
        "seconds": options.seconds,
        "warm_up": format(options.warm_up),
        "waiting_peak": measured.begun_peak,
        "turns": measured.turns,
        "turns_per_s": rounded(measured.rate()),
        "ideal_turns_per_s": rounded(options.turns as f64 / options.model_latency.as_secs_f64().max(0.001)),
        "added_p50_ms": added(0.5),
        "added_p90_ms": added(0.9),
        "added_p99_ms": added(0.99),
        "unanswered": measured.unanswered,
        "memory_of": if namespace.settings.backend == Backend::Embedded { "worker and load" } else { "worker" },
        "idle_mib": mib(idle.resident),
        "rss_mib": mib(resident.resident),
        "peak_mib": mib(peak),
        "kib_per_turn": rounded(peak.saturating_sub(idle.resident) as f64 / 1024.0 / options.turns as f64),
    });
    workers.end().await;
    namespace.close().await?;
    let rows: Vec<Row> = row.as_object().cloned().into_iter().collect();
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

/// The memory after the warm-up and the measured time.
async fn sample(workers: &Workers, after: Duration) -> anyhow::Result<MemoryUsage> {
    tokio::time::sleep(after).await;
    workers.memory()
}
