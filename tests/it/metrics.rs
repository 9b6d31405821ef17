//! The metrics in `/metrics`. Tests compare differences of counters, because several may share a process.

use crate::gateway::Gateway;
use crate::scenarios::{acts, answer, engine, on_both_backends, sales_with};
use crate::support::backend::{cluster, cluster_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::servers::free_port;
use regex::Regex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use storage::queue::Publish;

on_both_backends!(turns_and_what_they_cost_are_counted, what_waits_is_told_and_how_long);

/// The text of one scrape.
pub struct Metrics(String);

impl Metrics {
    pub async fn of(gateway: &Gateway) -> Self {
        let response = gateway.get("/metrics").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4");
        Self(response.text().await.unwrap())
    }

    /// Value of a series; 0 if the series does not exist.
    pub fn value(&self, series: &str) -> f64 {
        let found = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.map_or(0.0, |value| value.parse().unwrap())
    }

    /// All metric families: name, type and labels.
    fn families(&self) -> BTreeSet<(String, String, Vec<String>)> {
        let (line, label) =
            (Regex::new(r"^(\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? ").unwrap(), Regex::new(r#"(\w+)=""#).unwrap());
        let types = self.0.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let types: BTreeMap<&str, &str> = types.collect();
        let samples = self.0.lines().filter(|line| !line.starts_with('#'));
        let described = samples.map(|sample| {
            let found = line.captures(sample).unwrap_or_else(|| panic!("{sample}"));
            let labels = found.get(3).map_or("", |labels| labels.as_str());
            let names = label.captures_iter(labels).map(|name| name[1].to_owned());
            let mut labels: Vec<String> = names.filter(|name| name != "le").collect();
            labels.sort();
            (found[1].to_owned(), types[&found[1]].to_owned(), labels)
        });
        described.collect()
    }
}

async fn turns_and_what_they_cost_are_counted(backend: Backend) {
    let engine = engine(backend, answer("请讲"), vec![answer("好的")]).await;
    let gateway = Gateway::of(&engine).await;
    let before = Metrics::of(&gateway).await;
    engine.say("s1", "m-1", "你好").await;
    engine.say("s1", "m-2", "在吗").await;
    engine.publish_job("s1", json!({"type": "user_message", "session_id": "other"})).await;
    let growth = |after: &Metrics, series: &str| after.value(series) - before.value(series);
    let after = eventually(DEADLINE, "everything is counted", || async {
        let after = Metrics::of(&gateway).await;
        let all = growth(&after, "turnwheel_turns_total{outcome=\"answered\"}") >= 2.0
            && growth(&after, "turnwheel_dead_letters_total{cause=\"invalid\"}") >= 1.0
            && after.value("turnwheel_queue_jobs") == 0.0;
        all.then_some(after)
    })
    .await;
    for (series, least) in [
        ("turnwheel_reply_latency_seconds_count", 2.0),
        ("turnwheel_reply_latency_seconds_bucket{le=\"+Inf\"}", 2.0),
        ("turnwheel_model_calls_total{model=\"default\",outcome=\"answered\"}", 2.0),
        ("turnwheel_model_call_seconds_count{model=\"default\"}", 2.0),
        ("turnwheel_model_tokens_total{kind=\"prompt\",model=\"default\"}", 22.0),
        ("turnwheel_model_tokens_total{kind=\"completion\",model=\"default\"}", 14.0),
        ("turnwheel_http_requests_total{method=\"GET\",route=\"/metrics\",status=\"200\"}", 1.0),
    ] {
        assert!(growth(&after, series) >= least, "{series}\n{}", after.0);
    }
    assert!(!after.0.contains("s1") && !after.0.contains("m-1"), "no label names a session or a job");
}

async fn what_waits_is_told_and_how_long(backend: Backend) {
    let gateway = Gateway::idle(&backend).await;
    let empty = Metrics::of(&gateway).await;
    assert_eq!((empty.value("turnwheel_queue_jobs"), empty.value("turnwheel_queue_oldest_seconds")), (0.0, 0.0));
    for job_id in ["m-1", "m-2", "m-3"] {
        gateway.say("s1", job_id, "hi").await;
    }
    let waited = eventually(DEADLINE, "the oldest has waited", || async {
        let metrics = Metrics::of(&gateway).await;
        assert_eq!(metrics.value("turnwheel_queue_jobs"), 3.0);
        Some(metrics.value("turnwheel_queue_oldest_seconds")).filter(|waited| *waited > 0.02)
    })
    .await;
    assert!(waited < 60.0, "{waited}");
    let taken = gateway.queue.pull(1, DEADLINE).await.unwrap();
    gateway.queue.ack(&taken[0].token).await.unwrap();
    eventually(DEADLINE, "acknowledged messages do not count as waiting", || async {
        Metrics::of(&gateway).await.value("turnwheel_queue_jobs") == 2.0
    })
    .await;
}

/// Rows of the table in docs/operations.md: name, type and labels.
fn documented() -> BTreeSet<(String, String, Vec<String>)> {
    let text = include_str!("../../docs/operations.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `turnwheel_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let mut labels: Vec<String> =
            cells[2].split(',').map(|label| label.trim().trim_matches('`').to_owned()).collect();
        labels.retain(|label| !label.is_empty());
        labels.sort();
        (format!("turnwheel_{}", cells[0].trim_end_matches('`')), cells[1].to_owned(), labels)
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_in_the_docs_is_what_a_running_engine_exposes() {
    let limited = cluster_with(|settings| settings.streams.jobs_max_mib = 16).await;
    let first = acts("processing", "TOOL", "now", &json!({}));
    let engine: Engine = engine(limited, first, vec![answer("好的")]).await;
    let timers = json!([{"name": "follow_up", "delay": 0, "message": "还需要帮助吗？"}]);
    engine.apply(sales_with(&json!({"timers": timers}))).await;
    let gateway = Gateway::of(&engine).await;
    // A request is counted once its response is complete.
    gateway.get("/healthz").await;
    engine.say("s1", "m-1", "你好").await;
    let families = eventually(DEADLINE, "the timer has fired", || async {
        let metrics = Metrics::of(&gateway).await;
        (metrics.value("turnwheel_timer_lateness_seconds_count") >= 1.0).then(|| metrics.families())
    })
    .await;
    assert_eq!(documented(), families);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_can_be_watched_where_its_settings_say() {
    let (backend, dir) = (cluster().await, tempfile::tempdir().unwrap());
    let listen = format!("127.0.0.1:{}", free_port());
    let set = format!("metrics.listen={listen}");
    let _worker = Process::start(dir.path(), &backend.settings, &["--set", &set, "worker"]);
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let get = |path: &'static str| client.get(format!("http://{listen}{path}")).send();
    eventually(DEADLINE, "the worker is ready", || async {
        get("/readyz").await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    let publish = Publish { session_id: "s1".into(), msg_id: None, payload: "no job".into() };
    backend.queue.publish(publish).await.unwrap();
    eventually(DEADLINE, "it counts what it does", || async {
        let text = get("/metrics").await.unwrap().text().await.unwrap();
        text.contains("turnwheel_dead_letters_total{cause=\"invalid\"} 1")
    })
    .await;
    assert_eq!(get("/healthz").await.unwrap().status(), 200);
    assert_eq!(get("/api/v1/sessions").await.unwrap().status(), 404, "the metrics port serves no API");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_serves_probes_on_a_listener_of_their_own() {
    let (backend, dir) = (cluster().await, tempfile::tempdir().unwrap());
    let (probes, address) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let sets =
        [format!("metrics.listen={probes}"), format!("gateway.listen={address}"), "gateway.max_connections=2".into()];
    let sets: Vec<&str> =
        sets.iter().flat_map(|set| ["--set", set.as_str()]).chain(["--set", "gateway.max_streams=1"]).collect();
    let _gateway = Process::start(dir.path(), &backend.settings, &[sets.as_slice(), &["gateway"]].concat());
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let get = |at: &str| client.get(format!("http://{at}")).send();
    let (ready, healthy) = (format!("{probes}/readyz"), format!("{address}/healthz"));
    eventually(DEADLINE, "the gateway is ready", || async {
        get(&ready).await.is_ok_and(|answer| answer.status() == 200) && get(&healthy).await.is_ok()
    })
    .await;
    // Clients hold all connections of the gateway.
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(tokio::net::TcpStream::connect(&address).await.unwrap());
    }
    assert_eq!(get(&ready).await.unwrap().status(), 200);
    assert_eq!(get(&format!("{probes}/api/v1/sessions")).await.unwrap().status(), 404, "it serves no API");
}
