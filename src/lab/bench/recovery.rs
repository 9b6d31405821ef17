//! `bench recovery`: the time from the death of a worker until another worker has replied in its turns.

use super::agent::agent;
use super::crew::{Crew, Duty, Role};
use super::load::{FILLING, Load};
use super::options::RecoveryOptions;
use super::report::{Column, Report, Row, rounded};
use super::site::Site;
use super::{Problem, Progress};
use base::config::{Backend, Environment, Settings};
use serde_json::json;
use std::time::{Duration, Instant};
use types::duration::{Text, format};

/// Latency of a model that never replies before its worker is killed.
const NEVER: Duration = Duration::from_secs(3_600);
/// Time that the second worker gets to start.
const STANDBY: Duration = Duration::from_secs(2);

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
    if options.site.backend == Backend::Embedded {
        let hint = "omit --backend; with the embedded file, turns resume when the process starts again";
        return Err(Problem::new(
            "recovery needs a second worker, but only one process can open the embedded file",
            hint,
        )
        .into());
    }
    let site = Site::prepare(&options.site, settings, env, progress).await?;
    let mut rows = Vec::new();
    for round in 1..=options.rounds {
        progress.phase(&format!("recovery: round {round} of {}", options.rounds));
        rows.push(Box::pin(self::round(&site, options, progress)).await?);
    }
    Ok(Report { environment: site.conditions.clone(), rows, columns: COLUMNS })
}

async fn round(site: &Site, options: &RecoveryOptions, progress: &dyn Progress) -> anyhow::Result<Row> {
    // The worker needs places for all turns, although one eighth of them is reserved for other models.
    let room = options.turns + options.turns / 4;
    let ground = site.ground(|settings| settings.worker.concurrency = settings.worker.concurrency.max(room)).await?;
    ground.store.put_agent(agent(0, None)?).await?;
    let worker = |latency: Duration| {
        let duty = Duty { role: Role::Worker, actions: 0, model_latency: Text(latency), hot: false };
        Crew::start(&ground, &duty, 1, site.dir())
    };
    let mut load = Load::new(&ground, options.turns, true).await?;
    let first = worker(Duration::ZERO)?;
    load.fill(options.turns, FILLING, progress).await?;
    first.end().await;
    let stuck = worker(NEVER)?;
    load.begin_all(progress).await?;
    let second = worker(Duration::ZERO)?;
    tokio::time::sleep(STANDBY).await;
    progress.tick("killing the worker");
    let killed = Instant::now();
    drop(stuck);
    let recovered = load.await_all(killed).await?;
    let mut row = json!({
        "bench": "recovery",
        "backend": options.site.backend,
        "in_flight": options.turns,
        "ack_wait": format(ground.settings.worker.ack_wait.0),
        "recovered": recovered.turns,
        "unanswered": recovered.unanswered,
        "all_within_s": rounded(recovered.seconds),
    });
    let mut row = row.as_object_mut().map(std::mem::take).unwrap_or_default();
    recovered.latencies.put(&mut row);
    second.end().await;
    ground.close().await?;
    Ok(row)
}
