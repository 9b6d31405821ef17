//! Starts runs of a benchmark's workflow, and waits for their ends.

use super::Progress;
use super::test_cluster::TestNamespace;
use anyhow::{Context, bail};
use commands::runs::{NewRun, start_run};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::time::Duration;
use types::run::{RunRecord, RunStatus};

/// Concurrent requests to start runs.
const START_CONCURRENCY: usize = 64;
/// Poll interval for the end of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time limit for one run.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// Starts `runs` runs, and returns their ids.
pub(super) async fn start_runs(
    namespace: &TestNamespace,
    workflow_id: &str,
    runs: usize,
) -> anyhow::Result<Vec<String>> {
    let start = |_| async {
        let query = "研究量子计算的最新进展".into();
        let run = NewRun { workflow_id: workflow_id.into(), query, ..NewRun::default() };
        let started = start_run(namespace.queue.as_ref(), namespace.store.as_ref(), run).await;
        started.map(|started| started.run_id).map_err(|refused| anyhow::anyhow!("{refused}"))
    };
    stream::iter((0..runs).map(start)).buffer_unordered(START_CONCURRENCY).try_collect().await
}

/// Waits until all runs have ended. Fails if one of them has not completed.
pub(super) async fn wait_for_ends(
    namespace: &TestNamespace,
    runs: &[String],
    progress: &dyn Progress,
) -> anyhow::Result<()> {
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
