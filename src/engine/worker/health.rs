//! Tracks whether queue and store are reachable. While they are not, the worker pulls no jobs.

use base::clock::{Clock, Moment};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::queue::{Queue, QueueError};
use storage::store::Store;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The pause after the second failed pull in a row. Each further failure doubles it.
const MIN_PULL_PAUSE: Duration = Duration::from_millis(200);
const MAX_PULL_PAUSE: Duration = Duration::from_secs(30);

/// Reachability of queue and store, as this worker sees it.
pub(super) struct Health {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    clock: Clock,
    unreachable: AtomicBool,
    /// Time of the last failed request.
    last_failure: Mutex<Option<Moment>>,
}

impl Health {
    pub(super) fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { queue, store, clock, unreachable: AtomicBool::new(false), last_failure: Mutex::new(None) }
    }

    /// Reports a failed request. The intake pauses until queue and store both respond to a ping.
    pub(super) fn report_failure(&self, problem: &str) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.moment());
        if !self.unreachable.swap(true, Ordering::Relaxed) {
            warn!("job intake paused until queue and store are reachable: {problem}");
        }
    }

    /// Whether a request failed within the last `span`.
    pub(super) fn was_unreachable(&self, span: Duration) -> bool {
        self.last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|last| last.until(self.clock.moment()) < span)
    }

    /// Returns immediately while queue and store are reachable, otherwise when both respond again or at `stop`.
    pub(super) async fn wait(&self, stop: &CancellationToken) {
        let mut pause = Duration::from_millis(100);
        while self.unreachable.load(Ordering::Relaxed) && !stop.is_cancelled() {
            if self.store.ping().await.is_ok() && self.queue.ping().await.is_ok() {
                self.unreachable.store(false, Ordering::Relaxed);
                info!("queue and store are reachable again; job intake resumed");
                return;
            }
            tokio::select! {
                () = self.clock.sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
                () = stop.cancelled() => {}
            }
        }
    }
}

/// Counts failed pulls in a row. A pull can fail although queue and store respond, for example if the user may not use
/// the consumer, or if the account's limit of consumers is exceeded.
#[derive(Default)]
pub(super) struct PullFailures {
    /// The pause after the next failure; the first has none.
    pause: Duration,
}

impl PullFailures {
    /// Waits after a failed pull, longer after each one, or until `stop`. The first failure has no pause.
    pub(super) async fn pause(&mut self, problem: &QueueError, clock: &Clock, stop: &CancellationToken) {
        let pause = self.pause;
        self.pause = (pause * 2).clamp(MIN_PULL_PAUSE, MAX_PULL_PAUSE);
        if pause.is_zero() {
            return;
        }
        warn!(
            retry_in_ms = pause.as_millis(),
            "pulling jobs failed although queue and store respond: {problem}; check the consumer and the permissions \
             of this user (docs/operations.md, \"NATS permissions\")"
        );
        tokio::select! {
            () = clock.sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }
}
