//! All metrics in Prometheus' text format.

use base::clock;
use base::metrics::{encode, gauge, metrics, registered};
use prometheus::{Gauge, IntGaugeVec, Opts, Registry};
use std::time::Duration;
use storage::queue::{Queue, Storage};
use storage::store::Store;
use tracing::warn;

/// The content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;
/// How long the queue and the store may take to report the backlog and their storage.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Renders the metrics of this process, and the queue's backlog and the storage of both as they are now. If the queue
/// or the store is unreachable, its metrics are omitted: an old value would look like a lane that makes no progress.
pub(crate) async fn text(queue: &dyn Queue, store: &dyn Store) -> String {
    let mut text = encode(&metrics().registry);
    let registry = Registry::new();
    let oldest = registered(
        &registry,
        Gauge::new(
            "turnwheel_store_oldest_command_seconds",
            "How long the oldest command to MongoDB has been in flight; 0 if none is.",
        ),
    );
    oldest.set(metrics().store_commands.oldest().as_secs_f64());
    text.push_str(&encode(&registry));
    let (backlog, of_queue, of_store) = tokio::join!(
        tokio::time::timeout(CHECK_TIMEOUT, queue.backlog()),
        tokio::time::timeout(CHECK_TIMEOUT, queue.storage()),
        tokio::time::timeout(CHECK_TIMEOUT, store.storage())
    );
    let mut parts = Vec::new();
    match backlog {
        Ok(Ok(backlog)) => {
            let registry = Registry::new();
            let jobs = gauge(&registry, "turnwheel_queue_jobs", "Jobs in the queue that are not processed yet.");
            let oldest = registered(
                &registry,
                Gauge::new(
                    "turnwheel_queue_oldest_seconds",
                    "How long the oldest unprocessed job has waited; 0 if the queue is empty.",
                ),
            );
            jobs.set(i64::try_from(backlog.jobs).unwrap_or(i64::MAX));
            let waited = backlog.oldest.map_or(Duration::ZERO, |oldest| oldest.until(clock::now()));
            oldest.set(waited.as_secs_f64());
            text.push_str(&encode(&registry));
        }
        Ok(Err(problem)) => warn!("/metrics omits the queue's backlog: {problem}"),
        Err(_) => warn!("/metrics omits the queue's backlog: timed out after {CHECK_TIMEOUT:?}"),
    }
    match of_store {
        Ok(Ok(found)) => parts.extend(found),
        Ok(Err(problem)) => warn!("/metrics omits the store's storage: {problem}"),
        Err(_) => warn!("/metrics omits the store's storage: timed out after {CHECK_TIMEOUT:?}"),
    }
    match of_queue {
        Ok(Ok(found)) => parts.extend(found),
        Ok(Err(problem)) => warn!("/metrics omits the queue's storage: {problem}"),
        Err(_) => warn!("/metrics omits the queue's storage: timed out after {CHECK_TIMEOUT:?}"),
    }
    text.push_str(&encode(&of_storage(&parts)));
    text
}

/// The bytes of each stream and of the database. A part without a limit gets no maximum.
fn of_storage(parts: &[Storage]) -> Registry {
    let registry = Registry::new();
    let family = |name: &str, help: &str| registered(&registry, IntGaugeVec::new(Opts::new(name, help), &["part"]));
    let used = family("turnwheel_storage_bytes", "Bytes that the stream, the database, or the embedded file holds.");
    let most =
        family("turnwheel_storage_max_bytes", "Bytes that the stream may hold, or that fit on the database's disk.");
    for Storage { part, bytes, max_bytes } in parts {
        let set = |family: &IntGaugeVec, bytes: u64| {
            family.with_label_values(&[*part]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        };
        set(&used, *bytes);
        if let Some(max_bytes) = max_bytes {
            set(&most, *max_bytes);
        }
    }
    registry
}
