//! The benchmarks run and report all figures. The figures themselves only count in release builds.

use crate::support::servers::{Server, cluster};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Runs a benchmark. Returns its report and process id.
async fn bench(args: &[&str]) -> (Value, u32) {
    bench_with(args, &[]).await
}

/// Runs a benchmark with additional environment variables.
async fn bench_with(args: &[&str], environment: &[(&str, &str)]) -> (Value, u32) {
    let (mut command, dir) = (Command::new(env!("CARGO_BIN_EXE_turnwheel")), tempfile::tempdir().unwrap());
    command.envs(environment.iter().copied());
    command.arg("bench").args(args).arg("--json").arg("--dir").arg(dir.path()).current_dir(dir.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let phases = [args[0], if args[0] == "turns" { "floor" } else { args[0] }];
    assert!(phases.iter().all(|phase| said.contains(&format!("bench: {phase}"))), "progress is shown: {said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the folder is empty at the end");
    (serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}")), pid)
}

/// Maximum ratio of the processor time of a worker to that of the floor, in a build without optimisation. It is
/// normally half of that.
const WORKER_TO_FLOOR: f64 = 3.0;

const QUICK: [&str; 11] =
    ["turns", "--actions", "0", "--concurrency", "8", "--seconds", "1", "--sessions", "32", "--warm-up", "200ms"];

fn check(report: &Value) {
    let (environment, row) = (&report["environment"], &report["rows"][0]);
    assert!(environment["cores"].as_u64().is_some_and(|cores| cores > 0), "{report}");
    assert_eq!(environment["turnwheel"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(1));
    for field in ["turns_per_s", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "floor_turns_per_s", "floor_ratio"] {
        assert!(row[field].as_f64().is_some_and(|figure| figure > 0.0), "{field}: {report}");
    }
    assert!(row["p50_ms"].as_f64() <= row["p999_ms"].as_f64());
    assert_eq!((&row["actions"], &row["concurrency"], &row["unanswered"]), (&0.into(), &8.into(), &0.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_are_measured_beside_the_floor_on_the_embedded_file() {
    let (report, _) = bench(&[&QUICK[..], &["--backend", "embedded", "--hot-users", "2"]].concat()).await;
    check(&report);
    assert!(report["rows"][0]["hot_turns_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
    assert!(report["environment"]["embedded_sync"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_are_measured_beside_the_floor_on_given_servers() {
    let servers = cluster().await;
    let given = ["--nats", &servers.nats_url, "--mongodb", &servers.mongodb_uri];
    let (report, pid) = bench(&[&QUICK[..], &given].concat()).await;
    check(&report);
    // The ratio measures the engine's own processor time, apart from the commands to the servers.
    let row = &report["rows"][0];
    let (worker, floor) = (row["us_per_turn"]["workers"].as_f64(), row["floor_us_per_turn"]["workers"].as_f64());
    let ratio = worker.unwrap() / floor.unwrap();
    assert!(ratio < WORKER_TO_FLOOR, "a worker takes {ratio:.1} times the processor time of the floor");
    let cluster = &report["environment"]["cluster"];
    for field in ["nats_server", "nats_sync_interval", "mongod", "mongodb_write_concern"] {
        assert!(cluster[field].is_string(), "{field}: {report}");
    }
    assert_eq!((&cluster["mongodb_members"], &cluster["nats_replicas"]), (&1.into(), &1.into()));
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    let left = client.list_database_names().await.unwrap();
    assert!(!left.iter().any(|name| name.starts_with(&format!("bench{pid:x}x"))), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conditions_name_the_replicas_of_the_streams() {
    let (nats, servers) = (Server::nats_cluster().await, cluster().await);
    let urls = nats.each_ref().map(Server::address).join(",");
    let given = ["--nats", &urls, "--mongodb", &servers.mongodb_uri];
    let asked = ["stream", "--users", "1", "--turns", "2", "--first-token", "1ms", "--tokens", "1"];
    let (report, _) = bench_with(&[&asked[..], &given].concat(), &[("TURNWHEEL_NATS__REPLICAS", "3")]).await;
    assert_eq!(report["environment"]["cluster"]["nats_replicas"], 3, "{report}");
}

/// Maximum ratio of the bytes per stage of a long pipeline to those of a short one: the cost of a stage must not depend
/// on the number of stages.
const GROWTH: f64 = 1.25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_are_measured_and_each_leaves_the_same_behind() {
    let servers = cluster().await;
    let given = ["--nats", &servers.nats_url, "--mongodb", &servers.mongodb_uri];
    let asked = ["workflows", "--stages", "40,160", "--runs", "8"];
    let (report, _) = bench(&[&asked[..], &given].concat()).await;
    let rows = report["rows"].as_array().unwrap();
    let asked: Vec<_> =
        rows.iter().map(|row| (row["runs"].as_u64().unwrap(), row["stages"].as_u64().unwrap())).collect();
    assert_eq!(asked, [(1, 40), (1, 160), (8, 5)]);
    assert!(rows.iter().all(|row| row["stages_per_s"].as_f64().is_some_and(|rate| rate > 0.0)), "{report}");
    for bytes in ["store_bytes_per_stage", "event_bytes_per_stage"] {
        let of = |row: usize| rows[row][bytes].as_f64().unwrap();
        assert!(of(0) > 0.0 && of(1) < of(0) * GROWTH, "{bytes}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_text_are_measured_beside_its_model() {
    let servers = cluster().await;
    let given = ["--nats", &servers.nats_url, "--mongodb", &servers.mongodb_uri];
    let asked = ["stream", "--users", "1,3", "--turns", "6", "--first-token", "40ms", "--tokens", "4"];
    for place in [&given[..], &["--backend", "embedded"]] {
        let (report, _) = bench(&[&asked[..], place].concat()).await;
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| &row["users"]).collect::<Vec<_>>(), [1, 3]);
        for row in rows {
            assert_eq!(row["turns"], 6, "{report}");
            for reader in ["model", "queue", "sse", "message"] {
                let of = |quantile: &str| row[format!("{reader}_{quantile}_ms")].as_f64().unwrap();
                assert!(of("p50") >= 40.0 && of("p50") <= of("p99"), "{reader}: {report}");
            }
            let own = row["model_p50_ms"].as_f64().unwrap();
            let added = row["sse_p50_ms"].as_f64().unwrap() - own;
            assert!((row["sse_added_p50_ms"].as_f64().unwrap() - added).abs() < 0.01, "{report}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_measured_in_new_and_in_waiting_processes() {
    let (report, _) = bench(&["python", "--scripts", "5"]).await;
    let row = &report["rows"][0];
    for field in ["cold_p50_ms", "cold_p99_ms", "warm_p50_ms", "warm_p99_ms", "scripts_per_s", "idle_child_mib"] {
        assert!(row[field].as_f64().is_some_and(|figure| figure > 0.0), "{field}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_graphs_are_measured_in_layers_and_in_a_fan_out() {
    let servers = cluster().await;
    let given = ["--nats", &servers.nats_url, "--mongodb", &servers.mongodb_uri];
    let asked = ["graph", "--nodes", "10,50", "--runs", "3", "--fan-out", "20", "--model-latency", "300ms"];
    for (place, has_sizes) in [(&given[..], true), (&["--backend", "embedded"], false)] {
        let (report, _) = bench(&[&asked[..], place].concat()).await;
        let rows = report["rows"].as_array().unwrap();
        let of = |row: usize, field: &str| rows[row][field].as_f64().unwrap();
        assert_eq!(rows.iter().map(|row| &row["nodes"]).collect::<Vec<_>>(), [10, 50, 20]);
        assert!((0..3).all(|row| of(row, "nodes_per_s") > 0.0), "{report}");
        // Nodes one after the other would take 6 s.
        assert!(of(2, "seconds") >= 0.3 && of(2, "seconds") < 6.0, "{report}");
        // The embedded file grows in large steps.
        for bytes in ["store_bytes_per_node", "event_bytes_per_node"].into_iter().filter(|_| has_sizes) {
            assert!(of(0, bytes) > 0.0 && of(1, bytes) < of(0, bytes) * GROWTH, "{bytes}: {report}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_a_coordinator_are_measured() {
    let quick: Vec<_> = QUICK.iter().copied().filter(|word| !["--actions", "0"].contains(word)).collect();
    let (report, _) = bench(&[&quick[..], &["--backend", "embedded", "--coordinator"]].concat()).await;
    let row = &report["rows"][0];
    assert_eq!((&row["agent_mode"], &row["unanswered"]), (&"coordinator".into(), &0.into()), "{report}");
    assert!(row["turns"].as_u64().is_some_and(|turns| turns > 0), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authoring_dialogues_are_measured_beside_their_limits() {
    let servers = cluster().await;
    let given = ["--nats", &servers.nats_url, "--mongodb", &servers.mongodb_uri];
    let asked = ["authoring", "--dialogues", "4", "--sessions", "2", "--generations", "1", "--connections", "2"];
    for place in [&given[..], &["--backend", "embedded"]] {
        let (report, _) = bench(&[&asked[..], place].concat()).await;
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["value"].as_f64().is_some_and(|value| value > 0.0)), "{report}");
        let limited: Vec<_> = rows.iter().filter(|row| row["required"].is_number()).collect();
        let required: Vec<_> = limited.iter().map(|row| row["required"].as_f64().unwrap()).collect();
        assert_eq!(required, [3_000.0, 500.0, 1_000.0, 1_000.0, 30_000.0]);
        assert!(limited.iter().all(|row| row["met"] == true), "{report}");
    }
}
