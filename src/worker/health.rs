//! Whether queue and store answer. While they do not, the intake pauses and the work that is there waits.

use crate::queue::Queue;
use crate::store::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// See the module.
pub(super) struct Health {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    away: AtomicBool,
    /// When something last did not answer.
    last: Mutex<Option<Instant>>,
}

impl Health {
    pub(super) fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>) -> Self {
        Self { queue, store, away: AtomicBool::new(false), last: Mutex::new(None) }
    }

    /// Something did not answer: the intake pauses until both do.
    pub(super) fn failed(&self, problem: &str) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if !self.away.swap(true, Ordering::Relaxed) {
            warn!("the intake pauses: {problem}");
        }
    }

    /// True when queue or store did not answer at some time within `span`.
    pub(super) fn was_away(&self, span: Duration) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|last| last.elapsed() < span)
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
