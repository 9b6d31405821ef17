//! Whether queue and store answer. While they do not, the intake pauses and the work that is there waits.

use base::clock::{Clock, Moment};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::queue::{Queue, QueueError};
use storage::store::Store;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The pause after the second failed pull in a row; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct Health {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    clock: Clock,
    away: AtomicBool,
    /// When something last did not answer.
    last: Mutex<Option<Moment>>,
}

impl Health {
    pub(super) fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { queue, store, clock, away: AtomicBool::new(false), last: Mutex::new(None) }
    }

    /// Something did not answer: the intake pauses until both do.
    pub(super) fn failed(&self, problem: &str) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.moment());
        if !self.away.swap(true, Ordering::Relaxed) {
            warn!("the intake pauses: {problem}");
        }
    }

    /// True when queue or store did not answer at some time within `span`.
    pub(super) fn was_away(&self, span: Duration) -> bool {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|last| last.until(self.clock.moment()) < span)
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
                () = self.clock.sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
                () = stop.cancelled() => {}
            }
        }
    }
}

/// Failed pulls in a row. Queue and store may respond while a pull fails: its consumer may be forbidden to this user, or
/// be more than the account has.
#[derive(Default)]
pub(super) struct Failures {
    /// The pause after the next failure; the first has none.
    pause: Duration,
}

impl Failures {
    /// Waits after a failed pull, longer after each, until `stop` at most.
    pub(super) async fn pause(&mut self, problem: &QueueError, clock: &Clock, stop: &CancellationToken) {
        let pause = self.pause;
        self.pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        if pause.is_zero() {
            return;
        }
        warn!(
            retry_in_ms = pause.as_millis(),
            "no jobs can be pulled though queue and store respond: {problem}; check the consumer and the permissions of \
             this user (docs/operations.md, \"NATS permissions\")"
        );
        tokio::select! {
            () = clock.sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }
}
