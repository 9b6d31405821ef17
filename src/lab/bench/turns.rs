//! `bench turns`: turns per second, and latency from message to reply.

use super::agent::{self, agent};
use super::consoles::Consoles;
use super::load::{Arrivals, FILL_CONCURRENCY, Load, Measured};
use super::member::{MemberProfile, Role};
use super::options::TurnsOptions;
use super::report::{Column, Report, Row, rounded};
use super::stored::Stored;
use super::test_cluster::{TestCluster, TestNamespace};
use super::usage::Usage;
use super::workers::Workers;
use super::{Problem, Progress};
use anyhow::Context;
use axum::Json;
use base::config::{Backend, Environment, Settings};
use base::tasks::{OnPanic, Tasks};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use types::duration::{Text, format};

/// Number of sessions that get a real turn before the measurement. Further sessions are only written to the store, so a
/// worker reads them with their first message.
const REAL_TURN_SESSIONS: usize = 10_000;
/// Users for the floor of an open loop.
const BASELINE_USERS: usize = 256;

const COLUMNS: &[Column] = &[
    ("mode", "mode"),
    ("actions", "actions"),
    ("users", "concurrency"),
    ("rate", "rate"),
    ("workers", "workers"),
    ("turns/s", "turns_per_s"),
    ("p50 ms", "p50_ms"),
    ("p90 ms", "p90_ms"),
    ("p99 ms", "p99_ms"),
    ("p99.9 ms", "p999_ms"),
    ("CPU µs/turn", "us_per_turn_all"),
    ("floor/s", "floor_turns_per_s"),
    ("ratio", "floor_ratio"),
    ("lost", "unanswered"),
    ("consoles", "consoles"),
    ("hot/s", "hot_turns_per_s"),
];

/// Runs the benchmark: one row for each combination of actions and load.
pub async fn run(
    options: &TurnsOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let tasks = Tasks::new();
    let http = if options.http_actions { Some(stand_in(&tasks).await?) } else { None };
    let arrivals: Vec<Arrivals> = match options.rate.as_slice() {
        [] => options.concurrency.iter().map(|users| Arrivals::Closed(*users)).collect(),
        rates => rates.iter().map(|rate| Arrivals::Open(*rate)).collect(),
    };
    let mut rows = Vec::new();
    for actions in &options.actions {
        for arrivals in &arrivals {
            let bench = TurnsBench {
                cluster: &cluster,
                options,
                actions: *actions,
                arrivals: *arrivals,
                http: http.as_deref(),
            };
            rows.push(Box::pin(bench.row(progress)).await?);
        }
    }
    tasks.shutdown(Duration::from_secs(1)).await;
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

/// One row of the benchmark.
struct TurnsBench<'a> {
    cluster: &'a TestCluster,
    options: &'a TurnsOptions,
    actions: usize,
    arrivals: Arrivals,
    http: Option<&'a str>,
}

impl TurnsBench<'_> {
    async fn row(&self, progress: &dyn Progress) -> anyhow::Result<Row> {
        let mut row = self.asked();
        progress.phase(&format!("turns: {}", self.described()));
        let mut engine = Box::pin(self.side(Role::Worker, progress)).await?;
        let mut floor = match self.options.no_floor {
            true => None,
            false => Some(Box::pin(self.side(Role::Baseline, progress)).await?),
        };
        let seconds = Duration::from_secs(self.options.seconds);
        match &mut floor {
            None => engine.span(seconds, progress).await?,
            // The speed of the machine drifts. Engine and floor take turns, so that each has an equal share of early
            // and late time.
            Some(floor) => {
                engine.span(seconds / 2, progress).await?;
                progress.phase(&format!("floor: {}", self.described()));
                floor.span(seconds / 2, progress).await?;
                floor.span(seconds / 2, progress).await?;
                progress.phase(&format!("turns: {}", self.described()));
                engine.span(seconds / 2, progress).await?;
            }
        }
        let read = engine.consoles.received();
        let measured = engine.end("us_per_turn", &mut row).await?;
        row.insert("console_bytes".into(), read.into());
        row.insert("turns".into(), measured.turns.into());
        row.insert("turns_per_s".into(), rounded(measured.rate()));
        measured.latencies.put(&mut row);
        row.insert("unanswered".into(), measured.unanswered.into());
        row.insert("refused".into(), measured.refused.into());
        row.insert("hot_turns_per_s".into(), rounded(measured.hot_turns as f64 / measured.seconds));
        if let Some(floor) = floor {
            let floor = floor.end("floor_us_per_turn", &mut row).await?;
            if floor.turns == 0 {
                let hint = "measure longer with --seconds, or skip the floor with --no-floor";
                return Err(Problem::new("the floor finished no turn within the measured time", hint).into());
            }
            row.insert("floor_turns_per_s".into(), rounded(floor.rate()));
            row.insert("floor_p50_ms".into(), rounded(floor.latencies.quantile(0.5)));
            row.insert("floor_p99_ms".into(), rounded(floor.latencies.quantile(0.99)));
            row.insert("floor_ratio".into(), rounded(measured.rate() / floor.rate()));
        }
        Ok(row)
    }

    /// Prepares the engine or the floor for the measurement, in a namespace of its own.
    async fn side(&self, role: Role, progress: &dyn Progress) -> anyhow::Result<Side<'_>> {
        let options = self.options;
        let namespace =
            self.cluster.open_namespace(|settings| settings.http.allow_private.push("127.0.0.1".to_owned())).await?;
        let agent = if options.coordinator { agent::coordinator()? } else { agent(self.actions, self.http)? };
        let (store, stream) = (Arc::clone(&namespace.store), namespace.queue.stream().await?.created_at);
        let stored = Stored { store, agent_hash: agent.hash.clone(), stream, last_seq: 1 };
        namespace.store.put_agent(agent).await?;
        stored.write(0..options.stored, |number| format!("x{number}"), true, |_, _| None, "stored", progress).await?;
        let profile =
            MemberProfile { role, actions: self.actions, model_latency: Text(options.model_latency), hot: options.hot };
        let consoles = if role == Role::Worker { options.consoles } else { 0 };
        let consoles = Consoles::open(&namespace, &profile, consoles, self.cluster.dir()).await?;
        let mut load = Load::new(&namespace, self.sessions(), false).await?.beside_hot(options.hot_users);
        let workers = Workers::start(&namespace, &profile, options.workers, self.cluster.dir())?;
        load.fill(self.sessions().min(REAL_TURN_SESSIONS), FILL_CONCURRENCY, progress).await?;
        let rest = REAL_TURN_SESSIONS..self.sessions().max(REAL_TURN_SESSIONS);
        stored.write(rest, |number| format!("s{number}"), true, |_, _| None, "sessions stored", progress).await?;
        if options.stored > 0 || self.sessions() > REAL_TURN_SESSIONS {
            namespace.settle(progress).await?;
        }
        let arrivals = match (role, self.arrivals) {
            (Role::Baseline, Arrivals::Open(_)) => Arrivals::Closed(BASELINE_USERS),
            (_, arrivals) => arrivals,
        };
        let (warm_up, used) = (options.warm_up, Usage::default());
        Ok(Side { cluster: self.cluster, namespace, load, workers, consoles, arrivals, warm_up, used, measured: None })
    }

    /// Number of sessions: at least four per user, so that users rarely wait for each other's sessions.
    fn sessions(&self) -> usize {
        let users = if let Arrivals::Closed(users) = self.arrivals { users } else { BASELINE_USERS };
        if self.options.hot { 1 } else { self.options.sessions.max(4 * users) }
    }

    fn described(&self) -> String {
        let lanes = if self.options.hot { "one hot session" } else { "random sessions" };
        let load = match self.arrivals {
            Arrivals::Closed(users) => format!("{users} users"),
            Arrivals::Open(rate) => format!("{rate} messages/s"),
        };
        let beside = match self.options.hot_users {
            0 => String::new(),
            users => format!(", plus {users} users of one hot session"),
        };
        format!("{load}, {} actions, {lanes}{beside}", self.actions)
    }

    fn asked(&self) -> Row {
        let options = self.options;
        let (mode, concurrency, rate) = match self.arrivals {
            Arrivals::Closed(users) => ("closed", Some(users), None),
            Arrivals::Open(rate) => ("open", None, Some(rate)),
        };
        let embedded = options.target.backend == Backend::Embedded;
        let asked = json!({
            "bench": "turns",
            "backend": options.target.backend,
            "mode": mode,
            "concurrency": concurrency,
            "rate": rate,
            "agent_mode": if options.coordinator { "coordinator" } else { "actions" },
            "actions": self.actions,
            "http_actions": options.http_actions,
            "model_latency": format(options.model_latency),
            "lanes": if options.hot { "hot" } else { "random" },
            "hot_users": options.hot_users,
            "sessions": self.sessions(),
            "stored": options.stored,
            "workers": options.workers,
            "consoles": options.consoles,
            "worker_mode": if embedded { "instances in the benchmark's process" } else { "processes" },
            "worker_concurrency": self.cluster.worker_concurrency(),
            "seconds": options.seconds,
            "warm_up": format(options.warm_up),
        });
        asked.as_object().cloned().unwrap_or_default()
    }
}

/// One side of the comparison: the engine or the floor.
struct Side<'a> {
    cluster: &'a TestCluster,
    namespace: TestNamespace,
    load: Load,
    workers: Workers,
    consoles: Consoles,
    arrivals: Arrivals,
    warm_up: Duration,
    used: Usage,
    measured: Option<Measured>,
}

impl Side<'_> {
    /// Measures for `time` and adds the figures to those of earlier spans.
    async fn span(&mut self, time: Duration, progress: &dyn Progress) -> anyhow::Result<()> {
        let before = Usage::so_far(self.cluster, &self.workers, Some(&self.consoles))?;
        let measured = self.load.run(self.arrivals, self.warm_up, time, progress).await?;
        self.used.add(&before, &Usage::so_far(self.cluster, &self.workers, Some(&self.consoles))?);
        match &mut self.measured {
            Some(earlier) => earlier.add(&measured),
            None => self.measured = Some(measured),
        }
        Ok(())
    }

    /// Stops the side. Adds the processor time per turn to the row under `name`, and returns the figures.
    async fn end(self, name: &str, row: &mut Row) -> anyhow::Result<Measured> {
        let measured = self.measured.context("nothing was measured")?;
        self.used.put(measured.answered, name, row);
        drop(self.consoles);
        self.workers.end().await;
        self.namespace.close().await?;
        Ok(measured)
    }
}

/// Starts an HTTP API that responds immediately. Returns its base URL.
async fn stand_in(tasks: &Tasks) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (router, stop) = (axum::Router::new().fallback(async || Json(agent::order())), tasks.stop_token());
    tasks.spawn("stand-in", OnPanic::Log, async move {
        let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    });
    Ok(url)
}
