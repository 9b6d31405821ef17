//! The scheduler: one elected process publishes due timers as jobs on their sessions' lanes, standbys take over in seconds.
//!
//! The store has the truth. A sweep (driven by tokio-cron-scheduler) reads what is due within the [`HORIZON`] into a
//! delay queue; a hint makes it sweep at once, for timers shorter than the sweep's period. A job published twice is one turn:
//! its id is `<timer_id>-<generation>`, and the lane drops what the document no longer has.

use super::housekeeping;
use crate::config::Settings;
use crate::queue::{Job, JobBody, Publish, Queue};
use crate::store::{DueTimer, Store};
use futures::StreamExt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_cron_scheduler::{Job as CronJob, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;
use tokio_util::time::DelayQueue;
use tracing::{info, warn};

/// How far ahead a sweep looks.
pub const HORIZON: Duration = Duration::from_secs(10);
/// How often it looks.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a leader leads without renewal.
const LEASE: Duration = Duration::from_secs(4);
/// The most timers of one sweep; the next one sees the rest.
const BATCH: usize = 50_000;
/// After this a timer that is still there is published again: its job was lost, or waits in a long lane.
const REPUBLISH: Duration = Duration::from_secs(300);
/// The role that is elected.
const ROLE: &str = "scheduler";

/// What the periodic jobs ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    Sweep,
    Lanes,
    Housekeeping,
}

/// One process that leads or stands by.
pub struct Scheduler {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    owner: String,
    idle_after: Duration,
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
        let mut term = Term {
            scheduler: self,
            due: DelayQueue::new(),
            waiting: HashSet::new(),
            published: HashMap::new(),
            led_until: Instant::now() + LEASE,
        };
        term.serve(receiver, stop).await;
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

/// What a timer is known by.
type TimerKey = (String, String, u64);

/// One leadership: its memory ends with it.
struct Term<'a> {
    scheduler: &'a Scheduler,
    due: DelayQueue<DueTimer>,
    waiting: HashSet<TimerKey>,
    published: HashMap<TimerKey, Instant>,
    /// Not led any more after this, whatever the store says later.
    led_until: Instant,
}

impl Term<'_> {
    async fn serve(&mut self, mut ticks: mpsc::Receiver<Tick>, stop: &CancellationToken) {
        let mut hints = match self.scheduler.queue.timer_hints().await {
            Ok(hints) => hints.fuse(),
            Err(error) => {
                warn!("no hints from the queue, short timers wait for the sweep: {error}");
                futures::stream::pending().boxed().fuse()
            }
        };
        let mut renewal = tokio::time::interval(LEASE / 4);
        self.sweep().await;
        while Instant::now() < self.led_until {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = renewal.tick() => self.renew().await,
                Some(tick) = ticks.recv() => self.tick(tick).await,
                Some(_) = hints.next() => self.sweep().await,
                Some(expired) = self.due.next(), if !self.due.is_empty() => self.publish(expired.into_inner()).await,
                () = tokio::time::sleep_until(self.led_until) => {}
            }
        }
        warn!(owner = self.scheduler.owner, "this scheduler leads no longer");
    }

    async fn renew(&mut self) {
        let asked = Instant::now();
        let Scheduler { store, owner, .. } = self.scheduler;
        match store.lead(ROLE, owner, LEASE).await {
            Ok(true) => self.led_until = asked + LEASE,
            Ok(false) => self.led_until = asked,
            Err(error) => warn!("the scheduler cannot renew its leadership: {error}"),
        }
    }

    async fn tick(&mut self, tick: Tick) {
        let Scheduler { queue, store, idle_after, .. } = self.scheduler;
        match tick {
            Tick::Sweep => self.sweep().await,
            Tick::Lanes => housekeeping::wake_lanes(queue.as_ref(), store.as_ref()).await,
            Tick::Housekeeping => {
                self.published.retain(|_, at| at.elapsed() < REPUBLISH);
                housekeeping::clean(queue.as_ref(), store.as_ref(), *idle_after).await;
            }
        }
    }

    /// Reads what is due soon. Delays count from the store's clock as of its answer, so no timer is early.
    async fn sweep(&mut self) {
        let due = match self.scheduler.store.due_timers(HORIZON, BATCH).await {
            Ok(due) => due,
            Err(error) => return warn!("the sweep for due timers fails: {error}"),
        };
        for timer in due.timers {
            let key = key(&timer);
            let fresh = self.published.get(&key).is_none_or(|at| at.elapsed() >= REPUBLISH);
            if fresh && self.waiting.insert(key) {
                let delay = match due.now.until(timer.timer.due_at) {
                    Duration::ZERO => Duration::ZERO,
                    // Both clocks count whole milliseconds: one more keeps the promise.
                    delay => delay + Duration::from_millis(1),
                };
                self.due.insert(timer, delay);
            }
        }
    }

    async fn publish(&mut self, due: DueTimer) {
        let key = key(&due);
        let DueTimer { session_id, timer } = &due;
        let job_id = format!("{}-{}", timer.timer_id, timer.generation);
        let body = JobBody::Timer {
            timer_id: timer.timer_id.clone(),
            generation: timer.generation,
            name: timer.name.clone(),
            due_at: timer.due_at,
            action: timer.action.clone(),
            message: timer.message.clone(),
        };
        let job = Job { session_id: session_id.clone(), job_id: job_id.clone(), body };
        let publish = Publish {
            session_id: session_id.clone(),
            msg_id: Some(format!("{session_id}:{job_id}")),
            payload: job.encode(),
        };
        match self.scheduler.queue.publish(publish).await {
            Ok(_) => {
                self.waiting.remove(&key);
                self.published.insert(key, Instant::now());
            }
            Err(error) => {
                warn!(session_id, timer_id = timer.timer_id, "a due timer is not published, again in 1 s: {error}");
                self.due.insert(due, SWEEP);
            }
        }
    }
}

fn key(due: &DueTimer) -> TimerKey {
    (due.session_id.clone(), due.timer.timer_id.clone(), due.timer.generation)
}
