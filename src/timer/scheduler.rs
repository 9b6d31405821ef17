//! The scheduler: one elected process publishes due timers as jobs on their sessions' lanes, standbys take over in seconds.
//!
//! The store has the truth. A sweep (driven by tokio-cron-scheduler) reads what is due within the [`HORIZON`] into a
//! delay queue; a hint makes it sweep at once, for timers shorter than the sweep's period. A job published twice is one turn:
//! its id is `<timer_id>-<generation>`, and the lane drops what the document no longer has. [`super::term`] is what a
//! leader does.

use super::term::Term;
use crate::config::Settings;
use crate::queue::Queue;
use crate::store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_cron_scheduler::{Job as CronJob, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How far ahead a sweep looks: a few times its period, so that one that fails or takes long makes no timer late. Each
/// timer is read so many times.
pub const HORIZON: Duration = Duration::from_secs(4);
/// How long a leader leads without renewal.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// The role that is elected.
pub(super) const ROLE: &str = "scheduler";

/// What the periodic jobs ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    Sweep,
    Lanes,
    Housekeeping,
}

/// One process that leads or stands by.
pub struct Scheduler {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) store: Arc<dyn Store>,
    pub(super) owner: String,
    pub(super) idle_after: Duration,
}

impl Scheduler {
    /// A scheduler that has not begun.
    pub fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, settings: &Settings) -> Self {
        let owner = format!("scheduler-{}", uuid::Uuid::new_v4().simple());
        Self { queue, store, owner, idle_after: settings.retention.idle.0 }
    }

    /// Leads or stands by until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        info!(owner = self.owner, "the scheduler has begun");
        while !stop.is_cancelled() {
            match self.store.lead(ROLE, &self.owner, LEASE).await {
                Ok(true) => self.lead(&stop).await,
                Ok(false) => {}
                Err(error) => warn!("the scheduler cannot stand for election: {error}"),
            }
            tokio::select! {
                () = tokio::time::sleep(LEASE / 4) => {}
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
        let (ticks, receiver) = mpsc::channel(16);
        let mut cron = match periodic_jobs(ticks).await {
            Ok(cron) => cron,
            Err(error) => return warn!("the periodic jobs do not start: {error}"),
        };
        Term::begin(self).serve(receiver, stop).await;
        if let Err(error) = cron.shutdown().await {
            warn!("the periodic jobs do not stop: {error}");
        }
    }
}

async fn periodic_jobs(ticks: mpsc::Sender<Tick>) -> Result<JobScheduler, JobSchedulerError> {
    let cron = JobScheduler::new().await?;
    for (schedule, tick) in
        [("* * * * * *", Tick::Sweep), ("*/5 * * * * *", Tick::Lanes), ("0 * * * * *", Tick::Housekeeping)]
    {
        let ticks = ticks.clone();
        let job = CronJob::new_async(schedule, move |_, _| {
            let ticks = ticks.clone();
            Box::pin(async move {
                // A full channel means that the leader is busy with an earlier one.
                let _ = ticks.try_send(tick);
            })
        })?;
        cron.add(job).await?;
    }
    cron.start().await?;
    Ok(cron)
}
