//! The scheduler: one elected process publishes due timers as jobs on their sessions' lanes, standbys take over in seconds.
//!
//! The store has the truth. Once a second a sweep reads the timers that are due within the [`HORIZON`] into memory. A hint leads to
//! an immediate sweep, for timers shorter than that. A job published twice is one turn: its id is `<timer_id>-<generation>`, and the
//! lane drops a job whose timer the document no longer has. [`super::term`] has the work of the elected leader.

use super::housekeeping::Woken;
use super::term::Term;
use base::clock::Clock;
use base::config::Settings;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How far ahead a sweep looks: a few times its period, so that one that fails or takes long makes no timer late. Each
/// timer is read so many times.
pub const HORIZON: Duration = Duration::from_secs(4);
/// How long a leader leads without renewal.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// The role that is elected.
pub(super) const ROLE: &str = "scheduler";

/// One process that leads or stands by.
pub struct Scheduler {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) store: Arc<dyn Store>,
    pub(super) owner: String,
    pub(super) idle_after: Duration,
    pub(super) woken: Woken,
    pub(super) clock: Clock,
}

impl Scheduler {
    /// A scheduler that has not begun, and goes by `clock`.
    pub fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, clock: Clock, settings: &Settings) -> Self {
        let owner = format!("scheduler-{}", uuid::Uuid::new_v4().simple());
        let woken = Woken::new(clock.clone());
        Self { queue, store, owner, idle_after: settings.retention.idle.0, woken, clock }
    }

    /// Leads or stands by until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        info!(owner = self.owner, "the scheduler has begun");
        while !stop.is_cancelled() {
            match self.store.lead(ROLE, &self.owner, LEASE).await {
                Ok(true) => {
                    self.lead(&stop).await;
                    // Its lease may have run out while no other scheduler took it.
                    continue;
                }
                Ok(false) => {}
                Err(error) => warn!("the scheduler cannot stand for election: {error}"),
            }
            tokio::select! {
                () = self.clock.sleep(LEASE / 4) => {}
                () = stop.cancelled() => {}
            }
        }
        if let Err(error) = self.store.resign(ROLE, &self.owner).await {
            warn!("the scheduler cannot resign, a standby takes over in {} s: {error}", LEASE.as_secs());
        }
        info!(owner = self.owner, "the scheduler has ended");
    }

    async fn lead(&self, stop: &CancellationToken) {
        info!(owner = self.owner, "this scheduler leads");
        Term::begin(self).serve(stop).await;
    }
}
