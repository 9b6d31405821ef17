//! `bench turns`: turns a second, and how long from a message to its reply.

use super::agent::{self, agent};
use super::crew::{Crew, Duty, Role};
use super::load::{Arrivals, FILLING, Load, Measured};
use super::options::TurnsOptions;
use super::report::{Column, Report, Row, rounded};
use super::site::Site;
use super::usage::Usage;
use super::{Problem, Progress};
use crate::config::duration::{Text, format};
use crate::config::{Backend, Environment, Settings};
use crate::tasks::{OnPanic, Tasks};
use axum::Json;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpListener;

/// Users at once when the floor of an open loop is measured.
const FLOOR_USERS: usize = 256;

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
    ("hot/s", "hot_turns_per_s"),
];

/// Measures every combination that is asked for.
pub async fn run(
    options: &TurnsOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let site = Site::prepare(&options.site, settings, env, progress).await?;
    let tasks = Tasks::new();
    let http = if options.http_actions { Some(stand_in(&tasks).await?) } else { None };
    let arrivals: Vec<Arrivals> = match options.rate.as_slice() {
        [] => options.concurrency.iter().map(|users| Arrivals::Closed(*users)).collect(),
        rates => rates.iter().map(|rate| Arrivals::Open(*rate)).collect(),
    };
    let mut rows = Vec::new();
    for actions in &options.actions {
        for arrivals in &arrivals {
            let bench = Bench { site: &site, options, actions: *actions, arrivals: *arrivals, http: http.as_deref() };
            rows.push(Box::pin(bench.row(progress)).await?);
        }
    }
    tasks.shutdown(Duration::from_secs(1)).await;
    Ok(Report { environment: site.conditions.clone(), rows, columns: COLUMNS })
}

/// One row.
struct Bench<'a> {
    site: &'a Site,
    options: &'a TurnsOptions,
    actions: usize,
    arrivals: Arrivals,
    http: Option<&'a str>,
}

impl Bench<'_> {
    async fn row(&self, progress: &dyn Progress) -> anyhow::Result<Row> {
        progress.phase(&format!("turns: {}", self.described()));
        let mut row = self.asked();
        let measured = self.measure(Role::Worker, self.arrivals, ("us_per_turn", &mut row), progress).await?;
        row.insert("turns".into(), measured.turns.into());
        row.insert("turns_per_s".into(), rounded(measured.rate()));
        measured.latencies.put(&mut row);
        row.insert("unanswered".into(), measured.unanswered.into());
        row.insert("refused".into(), measured.refused.into());
        row.insert("hot_turns_per_s".into(), rounded(measured.hot_turns as f64 / measured.seconds));
        if !self.options.no_floor {
            progress.phase(&format!("floor: {}", self.described()));
            let arrivals = match self.arrivals {
                Arrivals::Open(_) => Arrivals::Closed(FLOOR_USERS),
                closed @ Arrivals::Closed(_) => closed,
            };
            let floor = self.measure(Role::Floor, arrivals, ("floor_us_per_turn", &mut row), progress).await?;
            if floor.turns == 0 {
                let hint = "measure for longer with --seconds, or leave the floor out with --no-floor";
                return Err(Problem::new("the floor came to no turn within the time", hint).into());
            }
            row.insert("floor_turns_per_s".into(), rounded(floor.rate()));
            row.insert("floor_p50_ms".into(), rounded(floor.latencies.quantile(0.5)));
            row.insert("floor_p99_ms".into(), rounded(floor.latencies.quantile(0.99)));
            row.insert("floor_ratio".into(), rounded(measured.rate() / floor.rate()));
        }
        Ok(row)
    }

    /// Measures, and puts the processor time for each turn into the row under the name.
    async fn measure(
        &self,
        role: Role,
        arrivals: Arrivals,
        (name, row): (&str, &mut Row),
        progress: &dyn Progress,
    ) -> anyhow::Result<Measured> {
        let options = self.options;
        let ground = self.site.ground(|settings| settings.http.allow_private.push("127.0.0.1".to_owned())).await?;
        ground.store.put_agent(agent(self.actions, self.http)?).await?;
        let duty = Duty { role, actions: self.actions, model_latency: Text(options.model_latency), hot: options.hot };
        let mut load = Load::new(&ground, self.sessions(), false).await?.beside_hot(options.hot_users);
        let crew = Crew::start(&ground, &duty, options.workers, self.site.dir())?;
        load.fill(self.sessions(), FILLING, progress).await?;
        let before = Usage::so_far(self.site, &crew)?;
        let measured = load.run(arrivals, options.warm_up, Duration::from_secs(options.seconds), progress).await?;
        Usage::so_far(self.site, &crew)?.put(&before, measured.answered, name, row);
        crew.end().await;
        ground.close().await?;
        Ok(measured)
    }

    /// At least four for each user, so that users do not wait for each other's sessions.
    fn sessions(&self) -> usize {
        let users = if let Arrivals::Closed(users) = self.arrivals { users } else { FLOOR_USERS };
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
            users => format!(", {users} users of one hot session beside them"),
        };
        format!("{load}, {} actions, {lanes}{beside}", self.actions)
    }

    fn asked(&self) -> Row {
        let options = self.options;
        let (mode, concurrency, rate) = match self.arrivals {
            Arrivals::Closed(users) => ("closed", Some(users), None),
            Arrivals::Open(rate) => ("open", None, Some(rate)),
        };
        let embedded = options.site.backend == Backend::Embedded;
        let asked = json!({
            "bench": "turns",
            "backend": options.site.backend,
            "mode": mode,
            "concurrency": concurrency,
            "rate": rate,
            "actions": self.actions,
            "http_actions": options.http_actions,
            "model_latency": format(options.model_latency),
            "lanes": if options.hot { "hot" } else { "random" },
            "hot_users": options.hot_users,
            "sessions": self.sessions(),
            "workers": options.workers,
            "worker_mode": if embedded { "instances in the benchmark's process" } else { "processes" },
            "worker_concurrency": self.site.worker_concurrency(),
            "seconds": options.seconds,
            "warm_up": format(options.warm_up),
        });
        asked.as_object().cloned().unwrap_or_default()
    }
}

/// An API that answers at once.
async fn stand_in(tasks: &Tasks) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (router, stop) = (axum::Router::new().fallback(async || Json(agent::order())), tasks.stop_token());
    tasks.spawn("stand-in", OnPanic::Log, async move {
        let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    });
    Ok(url)
}
