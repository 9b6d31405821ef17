//! `bench python`: the time and the memory of scripts in the sandbox of this program.

use super::figures::Latencies;
use super::options::{PythonOptions, TargetOptions};
use super::process::MemoryUsage;
use super::report::{Column, Report, Row, mib, rounded};
use super::test_cluster::TestCluster;
use super::{Problem, Progress};
use base::clock;
use base::config::{Backend, Environment, Python, Settings};
use base::tasks::Tasks;
use futures::stream::{self, StreamExt, TryStreamExt};
use sandbox::{Sandbox, Script};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// A script as a model writes it: it groups some rows and returns an object.
const CODE: &str = "\
import json, math
totals = {}
for row in rows:
    totals[row['region']] = totals.get(row['region'], 0) + row['amount']
best = max(totals, key=lambda region: totals[region])
return {'totals': totals, 'best': best, 'mean': math.floor(sum(totals.values()) / len(totals))}
";
/// The groups of the rows.
const REGIONS: [&str; 3] = ["north", "south", "二"];
/// Poll interval while a child starts.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

const COLUMNS: &[Column] = &[
    ("scripts", "scripts"),
    ("cold p50 ms", "cold_p50_ms"),
    ("cold p99 ms", "cold_p99_ms"),
    ("warm p50 ms", "warm_p50_ms"),
    ("warm p99 ms", "warm_p99_ms"),
    ("scripts/s", "scripts_per_s"),
    ("idle child MiB", "idle_child_mib"),
];

/// Runs the benchmark: one row.
pub async fn run(
    options: &PythonOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let PythonOptions { scripts, dir, json } = options.clone();
    let target = TargetOptions { backend: Backend::Embedded, nats: None, mongodb: None, nats_sync: None, dir, json };
    let cluster = TestCluster::prepare(&target, settings, env, progress).await?;
    let tasks = Tasks::new();
    let sandbox = |warm: usize| {
        let python = Python { warm, ..settings.python.clone() };
        Sandbox::new(&python, None, env, tasks.clone())
    };
    let (cold, warm) = (sandbox(0), sandbox(settings.python.warm.max(1)));
    progress.phase(&format!("python: {scripts} scripts, each in a new process"));
    let cold = one_by_one(&cold, scripts, false, progress).await?;
    progress.phase(&format!("python: {scripts} scripts, each in a process that waits"));
    let after_warm = one_by_one(&warm, scripts, true, progress).await?;
    let idle = warm.waiting().into_iter().map(|pid| MemoryUsage::of_process(pid).map(|usage| usage.resident));
    let idle = idle.collect::<anyhow::Result<Vec<_>>>()?.into_iter().max().unwrap_or_default();
    progress.phase(&format!("python: {scripts} scripts, concurrently"));
    let begun = Instant::now();
    let all = stream::iter(0..scripts).map(|_| warm.run(script())).buffer_unordered(64);
    all.try_for_each(|_| async { Ok(()) }).await.map_err(unable)?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut row = Row::new();
    let figures = json!({
        "bench": "python",
        "scripts": scripts,
        "cold_p50_ms": rounded(cold.quantile(0.5)),
        "cold_p99_ms": rounded(cold.quantile(0.99)),
        "warm_p50_ms": rounded(after_warm.quantile(0.5)),
        "warm_p99_ms": rounded(after_warm.quantile(0.99)),
        "scripts_per_s": rounded(scripts as f64 / seconds),
        "idle_child_mib": mib(idle),
    });
    if let Value::Object(figures) = figures {
        row.extend(figures);
    }
    tasks.shutdown(Duration::from_secs(5)).await;
    Ok(Report { environment: cluster.conditions.clone(), rows: vec![row], columns: COLUMNS })
}

/// Runs scripts one after the other. With `wait`, only when a child waits for the script.
async fn one_by_one(
    sandbox: &Sandbox,
    scripts: usize,
    wait: bool,
    progress: &dyn Progress,
) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new()?;
    // The first script has no child that waits for it.
    sandbox.run(script()).await.map_err(unable)?;
    for done in 0..scripts {
        while wait && sandbox.waiting().is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let begun = Instant::now();
        sandbox.run(script()).await.map_err(unable)?;
        latencies.record(begun.elapsed());
        progress.tick(&format!("{done} of {scripts}"));
    }
    Ok(latencies)
}

fn script() -> Script {
    let rows: Vec<Value> = (0..50).map(|row| json!({"region": REGIONS[row % 3], "amount": row * 7})).collect();
    let inputs: Map<String, Value> = [("rows".to_owned(), Value::Array(rows))].into_iter().collect();
    Script { code: CODE.to_owned(), inputs, timeout: None, memory_mb: None, started_at: clock::now() }
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unable(error: sandbox::ScriptError) -> anyhow::Error {
    Problem::new(format!("a script failed: {error}"), "check the settings python.*; `turnwheel doctor` tries them")
        .into()
}
