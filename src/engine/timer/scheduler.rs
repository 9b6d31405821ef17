//! Election of the scheduler. One process leads and publishes due timers as jobs on the lanes of their sessions; the
//! others stand by and take over within seconds.
//!
//! The store is the source of truth. Once a second a sweep reads the timers that are due within the [`SWEEP_HORIZON`]
//! into memory. For a timer that is due earlier than the next sweep, the worker sends a hint, which triggers an
//! immediate sweep. A timer that is published twice leads to one turn: its job id is `<timer_id>-<generation>`, and the
//! lane drops a job whose timer is no longer in the session document. [`super::leadership`] has the work of the leader.

use super::expiry::Expiry;
use super::housekeeping::RecentWakeUps;
use super::leadership::Leadership;
use base::clock::Clock;
use base::config::Settings;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How far ahead a sweep reads. A few times its interval, so that a failed or slow sweep makes no timer late. Each
/// timer is read that many times.
pub(crate) const SWEEP_HORIZON: Duration = Duration::from_secs(4);
/// Duration of a leadership without renewal.
pub(super) const LEADERSHIP_LEASE: Duration = Duration::from_secs(4);
/// The role for which the processes are elected.
pub(super) const ROLE: &str = "scheduler";

/// The scheduler of this process: the leader or a standby.
pub struct Scheduler {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) store: Arc<dyn Store>,
    pub(super) owner: String,
    pub(super) idle_after: Duration,
    pub(super) recent_wake_ups: RecentWakeUps,
    pub(super) expiry: Expiry,
    pub(super) clock: Clock,
}

impl Scheduler {
    /// Creates a scheduler that reads the time from `clock`. It does nothing until [`Self::run`].
    pub fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, clock: Clock, settings: &Settings) -> Self {
        let owner = format!("scheduler-{}", uuid::Uuid::new_v4().simple());
        let recent_wake_ups = RecentWakeUps::new(clock.clone());
        let expiry = Expiry::new(settings, clock.clone());
        Self { queue, store, owner, idle_after: settings.retention.idle.0, recent_wake_ups, expiry, clock }
    }

    /// Leads or stands by until `stop`. Then resigns, so that a standby can take over immediately.
    pub async fn run(self, stop: CancellationToken) {
        info!(owner = self.owner, "scheduler started");
        while !stop.is_cancelled() {
            match self.store.lead(ROLE, &self.owner, LEADERSHIP_LEASE).await {
                Ok(true) => {
                    self.lead(&stop).await;
                    // The leadership may have expired although no other scheduler took it.
                    continue;
                }
                Ok(false) => {}
                Err(error) => warn!("the scheduler election failed, retrying: {error}"),
            }
            tokio::select! {
                () = self.clock.sleep(LEADERSHIP_LEASE / 4) => {}
                () = stop.cancelled() => {}
            }
        }
        if let Err(error) = self.store.resign(ROLE, &self.owner).await {
            warn!(
                "the scheduler could not resign, so a standby takes over in {} s: {error}",
                LEADERSHIP_LEASE.as_secs()
            );
        }
        info!(owner = self.owner, "scheduler stopped");
    }

    async fn lead(&self, stop: &CancellationToken) {
        info!(owner = self.owner, "this scheduler leads");
        Leadership::start(self).serve(stop).await;
    }
}
