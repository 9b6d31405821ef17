//! Whether queue and store answer. While they do not, the intake pauses and the work that is there waits.

use crate::queue::Queue;
use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// See the module.
pub(super) struct Health {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    away: AtomicBool,
}

impl Health {
    pub(super) fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>) -> Self {
        Self { queue, store, away: AtomicBool::new(false) }
    }

    /// Something did not answer: the intake pauses until both do.
    pub(super) fn failed(&self, problem: &str) {
        if !self.away.swap(true, Ordering::Relaxed) {
            warn!("the intake pauses: {problem}");
        }
    }

    /// Returns when queue and store answer, or at `stop`.
    pub(super) async fn wait(&self, stop: &CancellationToken) {
        let mut pause = Duration::from_millis(100);
        while self.away.load(Ordering::Relaxed) && !stop.is_cancelled() {
            if self.store.ping().await.is_ok() && self.queue.ping().await.is_ok() {
                self.away.store(false, Ordering::Relaxed);
                info!("queue and store answer again; the intake goes on");
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
                () = stop.cancelled() => {}
            }
        }
    }
}
