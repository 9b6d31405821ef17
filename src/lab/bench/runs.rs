//! Starts runs of a benchmark's workflow, waits for their ends, and measures them.

use super::Progress;
use super::report::{Row, rounded};
use super::size::Size;
use super::test_cluster::{TestCluster, TestNamespace};
use super::usage::Usage;
use super::workers::Workers;
use anyhow::{Context, bail};
use commands::runs::{NewRun, start_run};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;
use std::time::{Duration, Instant};
use types::run::{RunRecord, RunStatus};

/// Concurrent requests to start runs.
const START_CONCURRENCY: usize = 64;
/// Poll interval for the end of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time limit for one run.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs of a workflow to measure.
pub(super) struct MeasuredRuns<'b> {
    pub(super) cluster: &'b TestCluster,
    pub(super) namespace: &'b TestNamespace,
    pub(super) workers: &'b Workers,
    pub(super) workflow_id: &'b str,
    /// Number of runs, all started concurrently.
    pub(super) runs: usize,
    /// The unit of the figures, `stage` or `node`.
    pub(super) unit: &'b str,
    /// Units of each run.
    pub(super) units: usize,
}

impl MeasuredRuns<'_> {
    /// Carries out the runs after one that is not measured. Returns the seconds, the units per second, and the processor
    /// time and stored bytes of a unit.
    pub(super) async fn measure(&self, progress: &dyn Progress) -> anyhow::Result<Row> {
        let Self { cluster, namespace, workers, workflow_id, runs, unit, units } = *self;
        // The first run opens connections and fills caches.
        wait_for_ends(namespace, &start_runs(namespace, workflow_id, 1).await?, progress).await?;
        let (before, usage) = (Size::measure(namespace).await?, Usage::so_far(cluster, workers, None)?);
        let begun = Instant::now();
        let started = start_runs(namespace, workflow_id, runs).await?;
        wait_for_ends(namespace, &started, progress).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let all = (runs * units) as u64;
        let (mut row, mut used) = (Row::new(), Usage::default());
        used.add(&usage, &Usage::so_far(cluster, workers, None)?);
        used.put(all, &format!("us_per_{unit}"), &mut row);
        let after = Size::measure(namespace).await?;
        let each = |after: u64, before: u64| rounded((after as f64 - before as f64) / all as f64);
        row.insert("seconds".into(), rounded(seconds));
        row.insert(format!("{unit}s_per_s"), rounded(all as f64 / seconds));
        row.insert(format!("store_bytes_per_{unit}"), each(after.documents, before.documents));
        row.insert(format!("event_bytes_per_{unit}"), each(after.streams, before.streams));
        row.insert("runs".into(), json!(runs));
        row.insert(format!("{unit}s"), json!(units));
        Ok(row)
    }
}

/// Starts `runs` runs, and returns their ids.
async fn start_runs(namespace: &TestNamespace, workflow_id: &str, runs: usize) -> anyhow::Result<Vec<String>> {
    let start = |_| async {
        let query = "研究量子计算的最新进展".into();
        let run = NewRun { workflow_id: workflow_id.into(), query, ..NewRun::default() };
        let started = start_run(namespace.queue.as_ref(), namespace.store.as_ref(), run).await;
        started.map(|started| started.run_id).map_err(|refused| anyhow::anyhow!("{refused}"))
    };
    stream::iter((0..runs).map(start)).buffer_unordered(START_CONCURRENCY).try_collect().await
}

/// Waits until all runs have ended. Fails if one of them has not completed.
async fn wait_for_ends(namespace: &TestNamespace, runs: &[String], progress: &dyn Progress) -> anyhow::Result<()> {
    for (number, run_id) in runs.iter().enumerate() {
        let ended = tokio::time::timeout(RUN_TIMEOUT, end(namespace, run_id)).await;
        let run = ended.with_context(|| format!("run {run_id} has not ended within the time limit"))??;
        if run.status != RunStatus::Completed {
            let why = run.error.map_or_else(|| run.status.as_str().to_owned(), |error| error.to_string());
            bail!("run {run_id} failed: {why}");
        }
        progress.tick(&format!("{} of {} runs", number + 1, runs.len()));
    }
    Ok(())
}

async fn end(namespace: &TestNamespace, run_id: &str) -> anyhow::Result<RunRecord> {
    loop {
        match namespace.store.run(run_id).await? {
            Some(run) if run.status.has_ended() => return Ok(run),
            Some(_) | None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}
