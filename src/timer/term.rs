//! One leadership of the scheduler. What takes time (a sweep, publishing, renewing, looking after lanes) runs beside the
//! loop that awaits due times, so that none of it makes a timer late.

use super::housekeeping;
use super::scheduler::{HORIZON, LEASE, ROLE, Scheduler};
use crate::clock::{Moment, Timestamp, moment};
use crate::metrics::{metrics, observe};
use crate::queue::{Job, JobBody, Publish, Queue, QueueError};
use crate::store::{DueTimer, DueTimers, StoreError};
use crate::telemetry::TraceContext;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::time::DelayQueue;
use tracing::{Instrument, debug_span, warn};

/// The most timers of one sweep; the next one sees the rest.
const BATCH: usize = 50_000;
/// After this a timer that is still there is published again: its job was lost, or waits in a long lane.
const REPUBLISH: Duration = Duration::from_secs(300);
/// How long a timer waits that could not be published.
const AGAIN: Duration = Duration::from_secs(1);
/// Jobs on their way to the queue at once.
const PUBLISHING: usize = 512;
/// Sweeps that hints ask for are so far apart at least: many turns that arm short timers at once are one sweep.
const BETWEEN_SWEEPS: Duration = Duration::from_millis(50);

/// What is done again and again, by the time that passes: a wall clock that is set back must not stop it.
struct Ticks {
    renewal: Interval,
    sweep: Interval,
    lanes: Interval,
    housekeeping: Interval,
}

#[derive(Clone, Copy)]
enum Tick {
    Renewal,
    Sweep,
    Lanes,
    Housekeeping,
}

impl Ticks {
    fn begin() -> Self {
        let every = |period: Duration| {
            let mut ticks = interval(period);
            // After a pause one tick makes up for all.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let (renewal, sweep) = (every(LEASE / 4), every(Duration::from_secs(1)));
        let (lanes, housekeeping) = (every(Duration::from_secs(5)), every(Duration::from_secs(60)));
        Self { renewal, sweep, lanes, housekeeping }
    }

    /// Waits for the next one. Nothing is lost when this is dropped.
    async fn next(&mut self) -> Tick {
        tokio::select! {
            _ = self.renewal.tick() => Tick::Renewal,
            _ = self.sweep.tick() => Tick::Sweep,
            _ = self.lanes.tick() => Tick::Lanes,
            _ = self.housekeeping.tick() => Tick::Housekeeping,
        }
    }
}

/// What a timer is remembered by: a hash of session, timer and generation, since there may be millions. Two that share
/// one would make the later of them wait until it is published again.
type TimerKey = u64;

/// See the module. Its memory ends with it.
pub(super) struct Term<'a> {
    scheduler: &'a Scheduler,
    hasher: RandomState,
    due: DelayQueue<DueTimer>,
    /// In `due`, or on their way to the queue.
    waiting: HashSet<TimerKey>,
    /// Published, and still in the store as far as is known.
    published: HashMap<TimerKey, Instant>,
    publishing: FuturesUnordered<BoxFuture<'a, (DueTimer, Result<(), QueueError>)>>,
    /// At most one sweep, since when.
    sweeping: FuturesUnordered<BoxFuture<'a, (Instant, Result<DueTimers, StoreError>)>>,
    /// A sweep is wanted after the one that is under way.
    sweep_again: bool,
    /// Renewing and looking after lanes.
    chores: FuturesUnordered<BoxFuture<'a, Option<Moment>>>,
    /// Not led any more after this, whatever the store says later, also after a suspend of the machine.
    led_until: Moment,
    /// The store's time at its last answer.
    store_time: Option<(Timestamp, Instant)>,
}

impl<'a> Term<'a> {
    /// A leadership that was won just now.
    pub(super) fn begin(scheduler: &'a Scheduler) -> Self {
        Self {
            scheduler,
            hasher: RandomState::new(),
            due: DelayQueue::new(),
            waiting: HashSet::new(),
            published: HashMap::new(),
            publishing: FuturesUnordered::new(),
            sweeping: FuturesUnordered::new(),
            sweep_again: false,
            chores: FuturesUnordered::new(),
            led_until: moment() + LEASE,
            store_time: None,
        }
    }

    /// Leads until `stop`, or until the leadership is lost.
    pub(super) async fn serve(&mut self, stop: &CancellationToken) {
        let mut hints = match self.scheduler.queue.timer_hints().await {
            Ok(hints) => hints.fuse(),
            Err(error) => {
                warn!("no hints from the queue, short timers wait for the sweep: {error}");
                futures::stream::pending().boxed().fuse()
            }
        };
        let mut ticks = Ticks::begin();
        while moment() < self.led_until {
            tokio::select! {
                () = stop.cancelled() => return,
                tick = ticks.next() => self.tick(tick),
                Some(_) = hints.next() => self.sweep(BETWEEN_SWEEPS),
                Some(expired) = self.due.next(), if self.publishing.len() < PUBLISHING && !self.due.is_empty() => {
                    self.publish(expired.into_inner());
                }
                Some((due, outcome)) = self.publishing.next() => self.published(due, outcome),
                Some((begun, due)) = self.sweeping.next() => self.swept(begun, due),
                Some(led_until) = self.chores.next() => self.led_until = led_until.unwrap_or(self.led_until),
                () = tokio::time::sleep(moment().until(self.led_until)) => {}
            }
        }
        warn!(owner = self.scheduler.owner, "this scheduler leads no longer");
    }

    fn renew(&self) {
        let (asked, Scheduler { store, owner, .. }) = (moment(), self.scheduler);
        let renewed = async move {
            match store.lead(ROLE, owner, LEASE).await {
                Ok(true) => Some(asked + LEASE),
                Ok(false) => Some(asked),
                Err(error) => {
                    warn!("the scheduler cannot renew its leadership: {error}");
                    None
                }
            }
        };
        self.chores.push(renewed.boxed());
    }

    fn tick(&mut self, tick: Tick) {
        let Scheduler { queue, store, idle_after, woken, .. } = self.scheduler;
        match tick {
            Tick::Renewal => self.renew(),
            Tick::Sweep => self.sweep(Duration::ZERO),
            Tick::Lanes => {
                self.chores.push(woken.wake_lanes(queue.as_ref(), store.as_ref()).map(|()| None).boxed());
            }
            Tick::Housekeeping => {
                let clean = housekeeping::clean(queue.as_ref(), store.as_ref(), *idle_after);
                self.chores.push(clean.map(|()| None).boxed());
            }
        }
    }

    /// Reads what is due soon, after `pause`; once more if that is being done already.
    fn sweep(&mut self, pause: Duration) {
        if !self.sweeping.is_empty() {
            self.sweep_again = true;
            return;
        }
        let store = &self.scheduler.store;
        let sweep = async move {
            tokio::time::sleep(pause).await;
            (Instant::now(), store.due_timers(HORIZON, BATCH).await)
        };
        self.sweeping.push(sweep.boxed());
    }

    /// Delays count from the store's clock as of its answer, so no timer is early.
    fn swept(&mut self, begun: Instant, due: Result<DueTimers, StoreError>) {
        match due {
            Ok(due) => self.adopt(begun, due),
            Err(error) => warn!("the sweep for due timers fails: {error}"),
        }
        if std::mem::take(&mut self.sweep_again) {
            self.sweep(BETWEEN_SWEEPS);
        }
    }

    fn adopt(&mut self, begun: Instant, due: DueTimers) {
        let whole = due.timers.len() < BATCH;
        let at = Instant::from_std(due.at);
        self.store_time = Some((due.now, at));
        let mut seen = HashSet::with_capacity(if whole { self.published.len() } else { 0 });
        for timer in due.timers {
            let key = self.key(&timer);
            if self.published.get(&key).is_some_and(|at| at.elapsed() < REPUBLISH) {
                seen.insert(key);
            } else if self.waiting.insert(key) {
                let delay = delay(due.now, timer.timer.due_at);
                self.due.insert_at(timer, at + delay);
            }
        }
        if whole {
            // What the store has no more needs no memory.
            self.published.retain(|key, at| *at >= begun || seen.contains(key));
        }
    }

    fn publish(&self, due: DueTimer) {
        let queue = Arc::clone(&self.scheduler.queue);
        let published = async move {
            let DueTimer { session_id, timer } = &due;
            let (timer_id, generation) = (&timer.timer_id, timer.generation);
            let span = debug_span!(parent: None, "timer", session_id, timer_id, generation, timer = timer.name);
            if let Some(trace) = timer.traceparent.as_deref().and_then(|parent| TraceContext::parse(parent, None)) {
                trace.adopt(&span);
            }
            let outcome = publish(queue.as_ref(), &due).instrument(span).await;
            (due, outcome)
        };
        self.publishing.push(published.boxed());
    }

    fn published(&mut self, due: DueTimer, outcome: Result<(), QueueError>) {
        let key = self.key(&due);
        match outcome {
            Ok(()) => {
                if let Some((then, at)) = self.store_time {
                    let now = then.plus(at.elapsed());
                    observe(&metrics().timer_lateness, due.timer.due_at.until(now));
                }
                self.waiting.remove(&key);
                self.published.insert(key, Instant::now());
            }
            Err(error) => {
                let (session_id, timer_id) = (&due.session_id, &due.timer.timer_id);
                warn!(session_id, timer_id, "a due timer is not published, again in 1 s: {error}");
                self.due.insert(due, AGAIN);
            }
        }
    }

    fn key(&self, due: &DueTimer) -> TimerKey {
        self.hasher.hash_one((&due.session_id, &due.timer.timer_id, due.timer.generation))
    }
}

/// How long until `due_at`. Both clocks count whole milliseconds: one more keeps the promise.
fn delay(now: Timestamp, due_at: Timestamp) -> Duration {
    match now.until(due_at) {
        Duration::ZERO => Duration::ZERO,
        delay => delay + Duration::from_millis(1),
    }
}

async fn publish(queue: &dyn Queue, due: &DueTimer) -> Result<(), QueueError> {
    let DueTimer { session_id, timer } = due;
    let job_id = format!("{}-{}", timer.timer_id, timer.generation);
    let body = JobBody::Timer {
        timer_id: timer.timer_id.clone(),
        generation: timer.generation,
        name: timer.name.clone(),
        due_at: timer.due_at,
        action: timer.action.clone(),
        message: timer.message.clone(),
    };
    let msg_id = Some(format!("{session_id}:{job_id}"));
    let job = Job { session_id: session_id.clone(), job_id, body };
    queue.publish(Publish { session_id: session_id.clone(), msg_id, payload: job.encode() }).await.map(|_| ())
}
