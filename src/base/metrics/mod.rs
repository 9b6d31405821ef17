//! Metrics of this process for Prometheus. docs/operations.md lists them.
//!
//! A process has one set of metrics, even if several workers and gateways run in it. Callers keep the handles of their
//! metrics, so an update is one atomic addition, without a lock or an allocation; HTTP requests are the exception.
//! Labels have few values, and never a session, user or job. [`encode`] writes the metrics in the text format of
//! Prometheus.

mod model;
mod store;

pub use model::ModelMetrics;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use std::sync::LazyLock;
use std::time::Duration;
use tracing::warn;
use types::budget::Limit;
use types::cause::Cause;
use types::outcome::Outcome;

/// Bucket bounds for durations from a millisecond to minutes.
const SECONDS_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Bucket bounds for the number of items of a command.
const ITEM_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1_024.0, 4_096.0];

/// The reasons for which the sequences of a session are set back.
const REWIND_CAUSES: [&str; 2] = ["stream", "tail"];

/// The ways in which a script's process is stopped or dies.
const SCRIPT_DEATHS: [&str; 5] = ["timeout", "memory", "output", "forbidden", "crashed"];

/// The ends of a statement: `ok`, and the codes of its errors.
const STATEMENT_OUTCOMES: [&str; 8] =
    ["ok", "CONNECTOR_UNKNOWN", "READ_ONLY", "REFUSED", "DATABASE", "TIMEOUT", "CONNECTION", "OUTPUT_TOO_LARGE"];

/// The kinds of things that expire by housekeeping.
const EXPIRED: [&str; 4] = ["sessions", "agent_versions", "workflow_versions", "plans"];

/// The metrics of this process.
static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// The metrics of this process.
pub fn metrics() -> &'static Metrics {
    &METRICS
}

/// All metrics of a process. The gateway adds further ones that it computes for each request.
pub struct Metrics {
    /// The registry of all metrics below.
    pub registry: Registry,
    turns: [IntCounter; Outcome::ALL.len()],
    /// Seconds from a job's publication until its reply is published.
    pub reply_latency: Histogram,
    /// Lanes that this process holds a lease for.
    pub lanes_held: IntGauge,
    /// Turns broken off because the lease was lost to another worker.
    pub lease_losses: IntCounter,
    /// Deliveries of a job after its first one.
    pub redeliveries: IntCounter,
    /// Sessions whose sequences were set back, by [`REWIND_CAUSES`].
    rewinds: [IntCounter; REWIND_CAUSES.len()],
    /// Attempts to open sessions that this version cannot read.
    pub unreadable: IntCounter,
    /// Jobs that were left to workers of a newer version.
    newer: IntCounter,
    /// When the last one was, in seconds since 1970; 0 for never.
    pub newer_at: IntGauge,
    /// Attempts to open sessions that MongoDB or NATS refused permanently.
    pub refused: IntCounter,
    dead_letters: [IntCounter; Cause::ALL.len()],
    /// Seconds from a timer's due time until its job is published.
    pub timer_lateness: Histogram,
    /// Open event streams of clients.
    pub event_streams: IntGauge,
    /// Passages of knowledge in this process's index.
    pub knowledge_passages: IntGauge,
    knowledge_searches: [IntCounter; 2],
    batch_sizes: HistogramVec,
    /// Commands to MongoDB in flight.
    pub store_commands: store::StoreCommands,
    requests: IntCounterVec,
    budget_refusals: [IntCounter; Limit::ALL.len()],
    actions: IntCounterVec,
    /// Scripts of PYTHON nodes that run.
    pub scripts_running: IntGauge,
    script_deaths: [IntCounter; SCRIPT_DEATHS.len()],
    /// Statements of DATABASE nodes that run.
    pub statements_running: IntGauge,
    statements: [IntCounter; STATEMENT_OUTCOMES.len()],
    /// Jobs returned to the queue because their model occupied its share of the worker.
    pub crowded: IntCounter,
    expired: [IntCounter; EXPIRED.len()],
    /// Seconds of one save of a dialogue's state.
    pub authoring_save: Histogram,
    /// States of dialogues that were damaged or missing.
    pub authoring_repairs: IntCounter,
    models: model::Families,
}

impl Metrics {
    fn new() -> Self {
        let registry = Registry::new();
        let turns = counters(&registry, "turnwheel_turns_total", "Turns committed, by outcome.", &["outcome"]);
        let dead_letters =
            counters(&registry, "turnwheel_dead_letters_total", "Jobs that became dead letters, by cause.", &["cause"]);
        let searches = counters(
            &registry,
            "turnwheel_knowledge_searches_total",
            "Searches of an agent's knowledge for a reply, by outcome.",
            &["outcome"],
        );
        let refusals = counters(
            &registry,
            "turnwheel_budget_refusals_total",
            "Model calls refused because a token budget was spent, by budget.",
            &["limit"],
        );
        let rewinds = counters(
            &registry,
            "turnwheel_rewinds_total",
            "Sessions whose sequences were set back because the stream of jobs went back, by cause.",
            &["cause"],
        );
        let deaths = counters(
            &registry,
            "turnwheel_script_deaths_total",
            "Scripts of PYTHON nodes that were stopped or whose process died, by kind.",
            &["kind"],
        );
        let statements = counters(
            &registry,
            "turnwheel_statements_total",
            "Statements of DATABASE nodes, by `ok` or the code of their error.",
            &["outcome"],
        );
        let expired = counters(
            &registry,
            "turnwheel_expired_total",
            "Things that the leading scheduler has deleted because they have expired, by kind.",
            &["kind"],
        );
        let build = registered(
            &registry,
            IntGaugeVec::new(Opts::new("turnwheel_build_info", "1, with the version as a label."), &["version"]),
        );
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            turns: Outcome::ALL.map(|outcome| turns.with_label_values(&[outcome.as_str()])),
            reply_latency: seconds(
                &registry,
                "turnwheel_reply_latency_seconds",
                "Time from a job's publication until its turn's reply is published.",
            ),
            lanes_held: gauge(&registry, "turnwheel_lanes_held", "Lanes that this process holds a lease for."),
            lease_losses: counter(
                &registry,
                "turnwheel_lease_losses_total",
                "Turns broken off because the lease was lost to another worker.",
            ),
            redeliveries: counter(
                &registry,
                "turnwheel_redeliveries_total",
                "Deliveries of a job after its first one.",
            ),
            rewinds: REWIND_CAUSES.map(|cause| rewinds.with_label_values(&[cause])),
            unreadable: counter(
                &registry,
                "turnwheel_unreadable_total",
                "Attempts to open a session that this version of Turnwheel cannot read.",
            ),
            newer: counter(
                &registry,
                "turnwheel_newer_total",
                "Times that a job was left to workers of a newer version, which wrote it or a document that it needs.",
            ),
            newer_at: gauge(
                &registry,
                "turnwheel_newer_timestamp_seconds",
                "When a job was last left to workers of a newer version; 0 for never.",
            ),
            refused: counter(
                &registry,
                "turnwheel_refused_total",
                "Attempts to open a session that MongoDB or NATS refused permanently.",
            ),
            dead_letters: Cause::ALL.map(|cause| dead_letters.with_label_values(&[cause.as_str()])),
            timer_lateness: seconds(
                &registry,
                "turnwheel_timer_lateness_seconds",
                "Time from a timer's due time until its job is published.",
            ),
            event_streams: gauge(&registry, "turnwheel_event_streams", "Open event streams of clients."),
            knowledge_passages: gauge(
                &registry,
                "turnwheel_knowledge_passages",
                "Passages of knowledge in this process's index.",
            ),
            knowledge_searches: ["none", "hit"].map(|outcome| searches.with_label_values(&[outcome])),
            batch_sizes: histograms(
                &registry,
                "turnwheel_store_batch_size",
                "Items in one command to the store, by command.",
                ITEM_BUCKETS,
                "command",
            ),
            store_commands: store::StoreCommands::new(&registry),
            requests: counters(
                &registry,
                "turnwheel_http_requests_total",
                "HTTP requests answered, by method, route and status.",
                &["method", "route", "status"],
            ),
            budget_refusals: Limit::ALL.map(|limit| refusals.with_label_values(&[limit.as_str()])),
            actions: counters(
                &registry,
                "turnwheel_actions_total",
                "Actions that turns and runs executed, by outcome.",
                &["kind", "target", "outcome"],
            ),
            scripts_running: gauge(&registry, "turnwheel_scripts_running", "Scripts of PYTHON nodes that run."),
            script_deaths: SCRIPT_DEATHS.map(|kind| deaths.with_label_values(&[kind])),
            statements_running: gauge(
                &registry,
                "turnwheel_statements_running",
                "Statements of DATABASE nodes that run or wait for a connection.",
            ),
            statements: STATEMENT_OUTCOMES.map(|outcome| statements.with_label_values(&[outcome])),
            crowded: counter(
                &registry,
                "turnwheel_crowded_jobs_total",
                "Jobs returned to the queue because their model occupied its share of the worker.",
            ),
            expired: EXPIRED.map(|kind| expired.with_label_values(&[kind])),
            authoring_save: seconds(
                &registry,
                "turnwheel_authoring_save_seconds",
                "Seconds of one save of an authoring dialogue's state.",
            ),
            authoring_repairs: counter(
                &registry,
                "turnwheel_authoring_states_repaired_total",
                "States of authoring dialogues that were damaged or missing.",
            ),
            models: model::Families::new(&registry),
            registry,
        }
    }

    /// Counts a committed turn.
    pub fn turn(&self, outcome: Outcome) {
        self.turns[outcome as usize].inc();
    }

    /// Counts a session whose sequences were set back. An unknown `cause` is ignored.
    pub fn record_rewind(&self, cause: &str) {
        if let Some(place) = REWIND_CAUSES.iter().position(|known| *known == cause) {
            self.rewinds[place].inc();
        }
    }

    /// Counts a search of an agent's knowledge for a reply.
    pub fn knowledge_search(&self, hit: bool) {
        self.knowledge_searches[usize::from(hit)].inc();
    }

    /// Counts a model call that was refused because this budget is spent.
    pub fn budget_refusal(&self, limit: Limit) {
        self.budget_refusals[limit as usize].inc();
    }

    /// Counts an action that was executed or refused. `target` must be a target of the agent's file or `unknown`.
    pub fn action(&self, kind: &str, target: &str, outcome: &str) {
        self.actions.with_label_values(&[kind, target, outcome]).inc();
    }

    /// Counts a script that was stopped or whose process died. An unknown `kind` is ignored.
    pub fn script_death(&self, kind: &str) {
        if let Some(place) = SCRIPT_DEATHS.iter().position(|known| *known == kind) {
            self.script_deaths[place].inc();
        }
    }

    /// Counts a statement of a DATABASE node. An unknown `outcome` is ignored.
    pub fn statement(&self, outcome: &str) {
        if let Some(place) = STATEMENT_OUTCOMES.iter().position(|known| *known == outcome) {
            self.statements[place].inc();
        }
    }

    /// Counts a job that a worker returned for workers of a newer version. `at` is now, in seconds since 1970.
    pub fn left_to_newer(&self, at: i64) {
        self.newer.inc();
        self.newer_at.set(at);
    }

    /// Counts things that were deleted because they have expired. An unknown `kind` is ignored.
    pub fn record_expired(&self, kind: &str, count: u64) {
        if let Some(place) = EXPIRED.iter().position(|known| *known == kind) {
            self.expired[place].inc_by(count);
        }
    }

    /// Counts a job that became a dead letter.
    pub fn dead_letter(&self, cause: Cause) {
        self.dead_letters[cause as usize].inc();
    }

    /// Counts an answered HTTP request. `route` must be a pattern of the router, not a path.
    pub fn request(&self, method: &'static str, route: &str, status: u16) {
        let mut digits = [0; 3];
        let status = three_digits(status, &mut digits);
        self.requests.with_label_values(&[method, route, status]).inc();
    }

    /// The histogram of items for one kind of store command.
    pub fn batch_size(&self, command: &str) -> Histogram {
        self.batch_sizes.with_label_values(&[command])
    }
}

/// Formats the metrics of a registry in the text format of Prometheus.
pub fn encode(registry: &Registry) -> String {
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap_or_else(|error| {
        warn!("cannot format the metrics: {error}");
        String::new()
    })
}

/// Increments a gauge while it exists.
pub struct GaugeGuard(&'static IntGauge);

impl GaugeGuard {
    /// Increments `gauge`. Dropping the result decrements it.
    pub fn increment(gauge: &'static IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn three_digits(status: u16, digits: &mut [u8; 3]) -> &str {
    let places = [status / 100, status / 10, status];
    for (digit, place) in digits.iter_mut().zip(places) {
        *digit = b'0' + u8::try_from(place % 10).unwrap_or_default();
    }
    std::str::from_utf8(digits).unwrap_or_default()
}

/// Registers a metric. Panics for an illegal or repeated name: names are constants, so any test run finds the mistake.
#[allow(clippy::expect_used, reason = "names and labels are constants")]
pub fn registered<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let made = made.expect("a legal name");
    registry.register(Box::new(made.clone())).expect("a name of its own");
    made
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    registered(registry, IntCounter::new(name, help))
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

/// Registers a gauge.
pub fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    registered(registry, IntGauge::new(name, help))
}

fn seconds(registry: &Registry, name: &str, help: &str) -> Histogram {
    registered(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS_BUCKETS.to_vec())))
}

fn histograms(registry: &Registry, name: &str, help: &str, bounds: &[f64], label: &str) -> HistogramVec {
    registered(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(bounds.to_vec()), &[label]))
}

/// Records a duration in a histogram of seconds.
pub fn observe(histogram: &Histogram, took: Duration) {
    histogram.observe(took.as_secs_f64());
}

/// Records a number of items.
pub fn observe_items(histogram: &Histogram, count: usize) {
    // No command has more items than `u32::MAX`.
    histogram.observe(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_and_cause_has_its_own_count() {
        let metrics = Metrics::new();
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
            (0..=index).for_each(|_| metrics.turn(outcome));
        }
        for cause in Cause::ALL {
            metrics.dead_letter(cause);
        }
        metrics.request("GET", "/healthz", 200);
        metrics.batch_size("commit").observe(3.0);
        let text = encode(&metrics.registry);
        for line in [
            "turnwheel_turns_total{outcome=\"answered\"} 1",
            "turnwheel_turns_total{outcome=\"noop\"} 6",
            "turnwheel_dead_letters_total{cause=\"unknown_agent\"} 1",
            "turnwheel_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"200\"} 1",
            "turnwheel_store_batch_size_bucket{command=\"commit\",le=\"4\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_is_counted_while_it_lives_goes_with_it() {
        let gauge: &'static IntGauge = Box::leak(Box::new(IntGauge::new("g", "g").unwrap()));
        let (one, two) = (GaugeGuard::increment(gauge), GaugeGuard::increment(gauge));
        assert_eq!(gauge.get(), 2);
        drop((one, two));
        assert_eq!(gauge.get(), 0);
    }
}
