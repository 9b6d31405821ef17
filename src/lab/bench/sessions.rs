//! `bench sessions`: memory and disk space of idle sessions, bytes that a turn writes, and growth of the data under
//! retention.

use super::Progress;
use super::agent::agent;
use super::load::{Arrivals, FILL_CONCURRENCY, Load};
use super::member::{MemberProfile, Role};
use super::options::SessionsOptions;
use super::process::{ChildProcess, written};
use super::report::{Column, Report, Row, mib, rounded};
use super::size::Size;
use super::test_cluster::{TestCluster, TestNamespace};
use super::workers::Workers;
use base::config::{Backend, Environment, Settings};
use serde_json::{Value, json};
use std::time::Duration;
use types::duration::{Text, format};

/// Users while written bytes are measured.
const WRITE_USERS: usize = 64;
/// Sessions whose growth is measured. Few, so that their histories soon reach the maximum length.
const GROWTH_SESSIONS: usize = 100;
/// Turns after which a history has its maximum length.
const GROWTH_TURNS: usize = 60;
/// Time after the retention until turns and events are gone: the servers remove expired data periodically.
const EXPIRY_DELAY: Duration = Duration::from_secs(75);
/// How long written bytes are measured.
const WRITE_MEASUREMENT: Duration = Duration::from_secs(20);

const COLUMNS: &[Column] = &[
    ("sessions", "sessions"),
    ("turns/s", "fill_turns_per_s"),
    ("worker B/session", "worker_bytes_per_session"),
    ("store B/session", "store_bytes_per_session"),
    ("on disk B/session", "disk_bytes_per_session"),
    ("written B/turn", "written_bytes_per_turn"),
    ("growth B/1000 turns", "growth_bytes_per_1000_turns"),
    ("on disk B/1000 turns", "disk_growth_bytes_per_1000_turns"),
];

/// Runs the benchmark, first with idle sessions, then with sessions that grow.
pub async fn run(
    options: &SessionsOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let mut row = Row::new();
    let asked = json!({
        "bench": "sessions",
        "backend": options.target.backend,
        "sessions": options.sessions,
        "growth_turns": options.turns,
        "retention": format(options.retention),
    });
    row.extend(fields(asked));
    row.extend(Box::pin(idle(&cluster, options, progress)).await?);
    row.extend(Box::pin(growth(&cluster, options, progress)).await?);
    Ok(Report { environment: cluster.conditions.clone(), rows: vec![row], columns: COLUMNS })
}

fn fields(value: Value) -> Row {
    if let Value::Object(fields) = value { fields } else { Row::new() }
}

fn profile() -> MemberProfile {
    MemberProfile { role: Role::Worker, actions: 0, model_latency: Text(Duration::ZERO), hot: false }
}

/// Measures many sessions with one turn each, then the bytes that further turns write.
async fn idle(cluster: &TestCluster, options: &SessionsOptions, progress: &dyn Progress) -> anyhow::Result<Row> {
    let namespace = cluster.open_namespace(|_| ()).await?;
    namespace.store.put_agent(agent(0, None)?).await?;
    let mut load = Load::new(&namespace, options.sessions, false).await?;
    let workers = Workers::start(&namespace, &profile(), 1, cluster.dir())?;
    // The first turns allocate caches and connections, which do not count as memory of a session.
    load.fill(FILL_CONCURRENCY.min(options.sessions), FILL_CONCURRENCY, progress).await?;
    let (memory, begun) = (workers.memory()?, std::time::Instant::now());
    progress.phase(&format!("sessions: {} with one turn each", options.sessions));
    load.fill(options.sessions, FILL_CONCURRENCY, progress).await?;
    let seconds = begun.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let grown = workers.memory()?.resident.saturating_sub(memory.resident);
    let (size, count) = (Size::measure(&namespace).await?, options.sessions as f64);
    progress.phase("sessions: measuring the bytes that turns write");
    let before = bytes_written(cluster)?;
    let measured = load.run(Arrivals::Closed(WRITE_USERS), Duration::ZERO, WRITE_MEASUREMENT, progress).await?;
    let after = bytes_written(cluster)?;
    let turns = measured.turns.max(1) as f64;
    let per_turn = |name: &str| Some(rounded((after.get(name)? - before.get(name)?) as f64 / turns));
    let row = json!({
        "fill_turns_per_s": rounded(count / seconds),
        "memory_of": if namespace.settings.backend == Backend::Embedded { "the whole process" } else { "worker" },
        "worker_bytes_per_session": rounded(grown as f64 / count),
        "worker_rss_mib": mib(workers.memory()?.resident),
        "store_bytes_per_session": rounded(size.sessions as f64 / count),
        "disk_bytes_per_session": rounded(size.disk as f64 / count),
        "written_bytes_per_turn": per_turn("all"),
        "nats_written_bytes_per_turn": per_turn("nats"),
        "mongod_written_bytes_per_turn": per_turn("mongod"),
    });
    workers.end().await;
    namespace.close().await?;
    Ok(fields(row))
}

/// Measures how much the data has grown after further turns, once expired data is removed.
async fn growth(cluster: &TestCluster, options: &SessionsOptions, progress: &dyn Progress) -> anyhow::Result<Row> {
    let keep = |settings: &mut Settings| {
        settings.retention.turns = Text(options.retention);
        settings.retention.out = Text(options.retention);
    };
    let namespace = cluster.open_namespace(keep).await?;
    namespace.store.put_agent(agent(0, None)?).await?;
    let mut load = Load::new(&namespace, GROWTH_SESSIONS, false).await?;
    let workers = Workers::start(&namespace, &profile(), 1, cluster.dir())?;
    progress.phase("sessions: filling histories");
    for _ in 0..GROWTH_TURNS {
        load.fill(GROWTH_SESSIONS, GROWTH_SESSIONS, progress).await?;
    }
    expire(&namespace, options, progress).await?;
    let before = Size::measure(&namespace).await?;
    let rounds = options.turns.div_ceil(GROWTH_SESSIONS);
    progress.phase(&format!("sessions: {} more turns", rounds * GROWTH_SESSIONS));
    for _ in 0..rounds {
        load.fill(GROWTH_SESSIONS, GROWTH_SESSIONS, progress).await?;
    }
    expire(&namespace, options, progress).await?;
    let after = Size::measure(&namespace).await?;
    let per_thousand =
        |after: u64, before: u64| rounded((after as f64 - before as f64) / (rounds * GROWTH_SESSIONS) as f64 * 1_000.0);
    let row = json!({
        "growth_bytes_per_1000_turns": per_thousand(after.all, before.all),
        "disk_growth_bytes_per_1000_turns": per_thousand(after.disk, before.disk),
        "bytes_with_full_histories": after.all,
        "growth_sessions": GROWTH_SESSIONS,
    });
    workers.end().await;
    namespace.close().await?;
    Ok(fields(row))
}

async fn expire(namespace: &TestNamespace, options: &SessionsOptions, progress: &dyn Progress) -> anyhow::Result<()> {
    progress.phase("sessions: waiting until turns and events have expired");
    tokio::time::sleep(options.retention + EXPIRY_DELAY).await;
    namespace.store.prune().await?;
    Ok(())
}

/// Bytes written to disk so far: by the servers that the benchmark started, or by this process on the embedded backend.
/// Empty unless the benchmark started both servers.
fn bytes_written(cluster: &TestCluster) -> anyhow::Result<std::collections::BTreeMap<&'static str, u64>> {
    let of = |process: &Option<ChildProcess>| process.as_ref().map(|process| written(process.pid())).transpose();
    let Some(servers) = &cluster.servers else {
        return Ok([("all", written(std::process::id())?)].into());
    };
    Ok(match (of(&servers.nats)?, of(&servers.mongod)?) {
        (Some(nats), Some(mongod)) => [("all", nats + mongod), ("nats", nats), ("mongod", mongod)].into(),
        _ => [].into(),
    })
}
