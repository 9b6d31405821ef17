//! `bench timers`: the rate at which timers are armed, and how late they fire while many others are armed.

use super::agent::agent;
use super::figures::Latencies;
use super::member::{MemberProfile, Role};
use super::options::TimersOptions;
use super::replies::TurnEvent;
use super::report::{Column, Report, Row, mib, rounded};
use super::stored::{Stored, TURN};
use super::test_cluster::{TestCluster, TestNamespace};
use super::workers::Workers;
use super::{Problem, Progress};
use base::config::{Backend, Environment, Settings};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::queue::Publish;
use types::duration::Text;
use types::job::{Job, JobBody};
use types::timer::{NewTimer, timer_id};
use types::timestamp::Timestamp;
use types::turn::TurnRecord;

/// Delay of timers that must not fire during the benchmark.
const IDLE_TIMER_DELAY: Duration = Duration::from_secs(86_400);
/// Time between the last arming and the first due time. A sweep of the scheduler looks ten seconds ahead.
const ARMING_LEAD: Duration = Duration::from_secs(12);
/// How long to wait for late timers after the last due time.
const LATE_TIMER_TIMEOUT: Duration = Duration::from_secs(120);
/// Timers due per second while the leader is killed.
const TAKEOVER_RATE: usize = 200;
/// For how many seconds such timers are due.
const TAKEOVER_SECONDS: usize = 20;
/// Time from the first due timer until the leader is killed.
const TAKEOVER_KILL: Duration = Duration::from_secs(5);
/// From this number of armed timers on, the benchmark waits until the server has synced its files.
const SYNC_THRESHOLD: usize = 10_000;
/// Stream sequence of the job that armed the timers.
const ARMING_SEQ: u64 = 1;

const COLUMNS: &[Column] = &[
    ("pending", "pending"),
    ("due/s", "fire_rate"),
    ("armed/s", "armed_per_s"),
    ("fired", "fired"),
    ("early", "early"),
    ("late p50 ms", "late_p50_ms"),
    ("late p99 ms", "late_p99_ms"),
    ("late max ms", "late_max_ms"),
    ("scheduler MiB", "scheduler_peak_mib"),
    ("take-over ms", "takeover_ms"),
    ("lost", "unfired"),
];

/// Runs the benchmark: one row for each combination of pending timers and rate.
pub async fn run(
    options: &TimersOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let mut rows = Vec::new();
    for pending in &options.pending {
        for rate in &options.fire_rate {
            let bench = TimersBench { cluster: &cluster, options, pending: *pending, rate: *rate };
            rows.push(Box::pin(bench.row(progress)).await?);
        }
    }
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

struct TimersBench<'a> {
    cluster: &'a TestCluster,
    options: &'a TimersOptions,
    pending: usize,
    rate: usize,
}

/// Timers that fire during the measurement.
struct Volley {
    /// Number range of their sessions.
    sessions: std::ops::Range<usize>,
    rate: usize,
    /// Due time of the first timer.
    begins: Instant,
}

/// Figures of a volley.
struct Fired {
    late: Latencies,
    early: usize,
    unfired: usize,
}

impl TimersBench<'_> {
    async fn row(&self, progress: &dyn Progress) -> anyhow::Result<Row> {
        let namespace = self.cluster.open_namespace(|_| ()).await?;
        let arming = Arming::new(&namespace).await?;
        progress.phase(&format!("timers: arming {}", self.pending));
        let begun = Instant::now();
        arming.arm(0..self.pending, |_| IDLE_TIMER_DELAY, progress).await?;
        let armed_per_s = self.pending as f64 / begun.elapsed().as_secs_f64();
        if self.pending >= SYNC_THRESHOLD {
            namespace.settle(progress).await?;
        }
        let profile = |role| MemberProfile { role, actions: 0, model_latency: Text(Duration::ZERO), hot: false };
        let start = |role, count| Workers::start(&namespace, &profile(role), count, self.cluster.dir());
        let workers = start(Role::Worker, self.options.workers)?;
        let leader = start(Role::Scheduler, 1)?;
        progress.phase(&format!("timers: {} due per second for {} s", self.rate, self.options.seconds));
        let count = self.rate * self.options.seconds;
        let volley = arming.volley(self.pending, count, self.rate, armed_per_s, progress).await?;
        let fired = volley.fire(&namespace, progress).await?;
        let memory = leader.memory()?;
        let mut leader = Some(leader);
        let takeover = if self.options.no_takeover || namespace.settings.backend == Backend::Embedded {
            None
        } else {
            progress.phase("timers: killing the leading scheduler");
            let standby = start(Role::Scheduler, 1)?;
            let (first, count) = (self.pending + count, TAKEOVER_RATE * TAKEOVER_SECONDS);
            let volley = arming.volley(first, count, TAKEOVER_RATE, armed_per_s, progress).await?;
            let kill_at = volley.begins + TAKEOVER_KILL;
            let kill = async {
                tokio::time::sleep_until(kill_at.into()).await;
                leader.take();
            };
            let (fired, ()) = futures::future::join(volley.fire(&namespace, progress), kill).await;
            standby.end().await;
            Some(fired?)
        };
        let row = json!({
            "bench": "timers",
            "backend": self.options.target.backend,
            "pending": self.pending,
            "fire_rate": self.rate,
            "seconds": self.options.seconds,
            "workers": self.options.workers,
            "armed_per_s": rounded(armed_per_s),
            "fired": fired.late.count(),
            "unfired": fired.unfired + takeover.as_ref().map_or(0, |fired| fired.unfired),
            "early": fired.early + takeover.as_ref().map_or(0, |fired| fired.early),
            "late_p50_ms": rounded(fired.late.quantile(0.5)),
            "late_p90_ms": rounded(fired.late.quantile(0.9)),
            "late_p99_ms": rounded(fired.late.quantile(0.99)),
            "late_max_ms": rounded(fired.late.quantile(1.0)),
            "memory_of": if namespace.settings.backend == Backend::Embedded { "the whole process" } else { "scheduler" },
            "scheduler_rss_mib": mib(memory.resident),
            "scheduler_peak_mib": mib(memory.peak),
            "takeover_ms": takeover.map(|fired| rounded(fired.late.quantile(1.0))),
        });
        workers.end().await;
        if let Some(leader) = leader {
            leader.end().await;
        }
        namespace.close().await?;
        Ok(row.as_object().cloned().unwrap_or_default())
    }
}

/// Arms timers in the way the commit of a turn does.
struct Arming {
    sessions: Stored,
}

impl Arming {
    async fn new(namespace: &TestNamespace) -> anyhow::Result<Self> {
        let agent = agent(0, None)?;
        let agent_hash = agent.hash.clone();
        namespace.store.put_agent(agent).await?;
        // Occupies the first sequence of the stream, so that every session can have processed it.
        let job = Job { session_id: "nobody".to_owned(), job_id: "first".to_owned(), body: JobBody::Wake };
        let publish = Publish { session_id: job.session_id.clone(), msg_id: None, payload: job.encode() };
        let seq = namespace.queue.publish(publish).await?.seq;
        if seq != ARMING_SEQ {
            return Err(Problem::new(
                format!("the first job has sequence {seq}, expected {ARMING_SEQ}"),
                "run the benchmark again",
            )
            .into());
        }
        let stream = namespace.queue.stream().await?.created_at;
        Ok(Self { sessions: Stored { store: Arc::clone(&namespace.store), agent_hash, stream, last_seq: ARMING_SEQ } })
    }

    /// Arms one timer in each session. `delay` returns the delay by the session's place in the range.
    async fn arm(
        &self,
        sessions: std::ops::Range<usize>,
        delay: impl Fn(usize) -> Duration,
        progress: &dyn Progress,
    ) -> anyhow::Result<()> {
        let timer = |session_id: &str, place| {
            Some(NewTimer {
                timer_id: timer_id(session_id, TURN, 0),
                name: "follow_up".to_owned(),
                delay: delay(place),
                action: None,
                message: Some("您好，还需要了解别的吗？".to_owned()),
                traceparent: None,
            })
        };
        self.sessions.write(sessions, session, false, timer, "armed", progress).await
    }

    /// Arms `count` timers from session `first` on. They become due at `rate` per second, once all are armed.
    async fn volley(
        &self,
        first: usize,
        count: usize,
        rate: usize,
        armed_per_s: f64,
        progress: &dyn Progress,
    ) -> anyhow::Result<Volley> {
        let arming = Duration::from_secs_f64(1.5 * count as f64 / armed_per_s.max(1.0));
        let begins = Instant::now() + arming + ARMING_LEAD;
        let due = |place: usize| {
            let due = begins + Duration::from_secs_f64(place as f64 / rate as f64);
            due.saturating_duration_since(Instant::now())
        };
        self.arm(first..first + count, due, progress).await?;
        Ok(Volley { sessions: first..first + count, rate, begins })
    }
}

fn session(number: usize) -> String {
    format!("s{number}")
}

/// Id of the turn in which a session's timer fires.
fn firing(number: usize) -> String {
    format!("{}-1", timer_id(&session(number), TURN, 0))
}

impl Volley {
    /// Waits for the turns of all timers, and reads from their records how late they began.
    async fn fire(self, namespace: &TestNamespace, progress: &dyn Progress) -> anyhow::Result<Fired> {
        let mut seen = namespace.watch(false).await?;
        let mut waiting: HashSet<String> = self.sessions.clone().map(firing).collect();
        let total = waiting.len();
        let end = self.begins + Duration::from_secs_f64(total as f64 / self.rate as f64) + LATE_TIMER_TIMEOUT;
        while !waiting.is_empty() {
            tokio::select! {
                Some(seen) = seen.recv() => if seen.mark == TurnEvent::Answered {
                    waiting.remove(&seen.turn_id);
                },
                () = tokio::time::sleep_until(end.into()) => break,
            }
            progress.tick(&format!("{} of {total} fired", total - waiting.len()));
        }
        // A reply arrives before its turn is committed.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut fired = Fired { late: Latencies::new()?, early: 0, unfired: 0 };
        let turn = |number: usize| {
            let store = Arc::clone(&namespace.store);
            async move { store.turn(&session(number), &firing(number)).await }
        };
        let turns: Vec<_> = stream::iter(self.sessions.map(turn)).buffer_unordered(64).try_collect().await?;
        for turn in turns {
            match turn.as_ref().and_then(due_and_begun) {
                Some((due, begun)) => {
                    fired.early += usize::from(begun < due);
                    fired.late.record(due.until(begun));
                }
                None => fired.unfired += 1,
            }
        }
        Ok(fired)
    }
}

fn due_and_begun(turn: &TurnRecord) -> Option<(Timestamp, Timestamp)> {
    match turn.job.body {
        JobBody::Timer { due_at, .. } => Some((due_at, turn.started_at)),
        _ => None,
    }
}
