//! The work of the scheduler while it leads. Slow work (sweeps, publishing, renewals, housekeeping) runs concurrently
//! with the loop that waits for due times, so that it makes no timer late.

use super::housekeeping;
use super::scheduler::{LEADERSHIP_LEASE, ROLE, SWEEP_HORIZON, Scheduler};
use base::clock::{Clock, Moment};
use base::metrics::{metrics, observe};
use base::telemetry::TraceContext;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Publish, Queue, QueueError};
use storage::store::StoreError;
use storage::store::records::{DueTimer, DueTimers};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span, warn};
use types::job::{Job, JobBody};
use types::timestamp::Timestamp;

/// Maximum number of timers per sweep. The next sweep reads the rest.
const MAX_SWEPT_TIMERS: usize = 50_000;
/// A timer that is still in the store after this time is published again: its job was lost, or waits in a long lane.
const REPUBLISH_AFTER: Duration = Duration::from_secs(300);
/// Pause before a timer that could not be published is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of jobs that are being published at the same time.
const MAX_PUBLISHING: usize = 512;
/// Minimum interval between sweeps that hints trigger, so that many turns that arm short timers lead to one sweep.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// The periodic tasks, by monotonic time: a wall clock that is set back must not delay them.
struct Ticks {
    clock: Clock,
    /// Next time, interval and task.
    next: [(Moment, Duration, Tick); 4],
}

#[derive(Clone, Copy)]
enum Tick {
    Renewal,
    Sweep,
    Lanes,
    Housekeeping,
}

impl Ticks {
    fn start(clock: Clock) -> Self {
        let (now, seconds) = (clock.moment(), Duration::from_secs);
        let next = [
            (now, LEADERSHIP_LEASE / 4, Tick::Renewal),
            (now, seconds(1), Tick::Sweep),
            (now, seconds(5), Tick::Lanes),
            (now, seconds(60), Tick::Housekeeping),
        ];
        Self { clock, next }
    }

    /// Waits for the next task. After a pause each task runs once, however often it was missed. Cancel safe.
    async fn next(&mut self) -> Tick {
        let Self { clock, next } = self;
        let [first, others @ ..] = next;
        let first = others.iter_mut().fold(first, |first, other| if other.0 < first.0 { other } else { first });
        clock.sleep_until(first.0).await;
        first.0 = clock.moment() + first.1;
        first.2
    }
}

/// The hash of session, timer and generation that identifies a timer. A hash, because there may be millions of timers.
/// If two timers have the same hash, the later one may wait for up to [`REPUBLISH_AFTER`].
type TimerKey = u64;

/// One leadership of the scheduler. Its memory of published timers ends with it.
pub(super) struct Leadership<'a> {
    scheduler: &'a Scheduler,
    hasher: RandomState,
    /// Timers that wait, by due time.
    due: BTreeMap<(Moment, TimerKey), DueTimer>,
    /// Timers that are in `due`, or being published.
    waiting: HashSet<TimerKey>,
    /// Published timers that are still in the store, as far as known, with the time of their publication.
    published: HashMap<TimerKey, Moment>,
    publishing: FuturesUnordered<BoxFuture<'a, (DueTimer, Result<(), QueueError>)>>,
    /// The running sweep (at most one), with its start time.
    sweeping: FuturesUnordered<BoxFuture<'a, (Moment, Result<DueTimers, StoreError>)>>,
    /// Another sweep must follow the running one.
    sweep_again: bool,
    /// Renewals and housekeeping.
    background: FuturesUnordered<BoxFuture<'a, Option<Moment>>>,
    /// The leadership ends at this time unless it is renewed, whatever the store reports later. Stays correct when the
    /// machine was suspended.
    led_until: Moment,
    /// The store's time at its last reply.
    store_time: Option<(Timestamp, Moment)>,
}

impl<'a> Leadership<'a> {
    /// Starts a leadership that was just won.
    pub(super) fn start(scheduler: &'a Scheduler) -> Self {
        Self {
            scheduler,
            hasher: RandomState::new(),
            due: BTreeMap::new(),
            waiting: HashSet::new(),
            published: HashMap::new(),
            publishing: FuturesUnordered::new(),
            sweeping: FuturesUnordered::new(),
            sweep_again: false,
            background: FuturesUnordered::new(),
            led_until: scheduler.clock.moment() + LEADERSHIP_LEASE,
            store_time: None,
        }
    }

    /// Leads until `stop`, or until the leadership is lost.
    pub(super) async fn serve(&mut self, stop: &CancellationToken) {
        let mut hints = match self.scheduler.queue.timer_hints().await {
            Ok(hints) => hints.fuse(),
            Err(error) => {
                warn!(
                    "could not subscribe to timer hints; timers shorter than the sweep interval may fire late: {error}"
                );
                futures::stream::pending().boxed().fuse()
            }
        };
        let scheduler = self.scheduler;
        let mut ticks = Ticks::start(scheduler.clock.clone());
        while self.scheduler.clock.moment() < self.led_until {
            tokio::select! {
                () = stop.cancelled() => return,
                tick = ticks.next() => self.tick(tick),
                Some(_) = hints.next() => self.sweep(MIN_SWEEP_INTERVAL),
                () = first_due(&scheduler.clock, &self.due), if self.publishing.len() < MAX_PUBLISHING => {
                    if let Some((_, due)) = self.due.pop_first() {
                        self.publish(due);
                    }
                }
                Some((due, outcome)) = self.publishing.next() => self.published(due, outcome),
                Some((begun, due)) = self.sweeping.next() => self.swept(begun, due),
                Some(led_until) = self.background.next() => self.led_until = led_until.unwrap_or(self.led_until),
                () = self.scheduler.clock.sleep_until(self.led_until) => {}
            }
        }
        warn!(owner = self.scheduler.owner, "this scheduler no longer leads");
    }

    fn renew(&self) {
        let (requested_at, Scheduler { store, owner, .. }) = (self.scheduler.clock.moment(), self.scheduler);
        let renewed = async move {
            match store.lead(ROLE, owner, LEADERSHIP_LEASE).await {
                Ok(true) => Some(requested_at + LEADERSHIP_LEASE),
                Ok(false) => Some(requested_at),
                Err(error) => {
                    warn!("renewing the scheduler's leadership failed: {error}");
                    None
                }
            }
        };
        self.background.push(renewed.boxed());
    }

    fn tick(&mut self, tick: Tick) {
        let Scheduler { queue, store, idle_after, recent_wake_ups, expiry, .. } = self.scheduler;
        match tick {
            Tick::Renewal => self.renew(),
            Tick::Sweep => self.sweep(Duration::ZERO),
            Tick::Lanes => {
                self.background.push(recent_wake_ups.wake_lanes(queue.as_ref(), store.as_ref()).map(|()| None).boxed());
            }
            Tick::Housekeeping => {
                let clean = housekeeping::clean(queue.as_ref(), store.as_ref(), *idle_after);
                self.background.push(clean.map(|()| None).boxed());
                self.background.push(expiry.expire(queue.as_ref(), store.as_ref()).map(|()| None).boxed());
            }
        }
    }

    /// Reads the timers that are due soon, after `pause`. If a sweep is running already, another one follows it.
    fn sweep(&mut self, pause: Duration) {
        if !self.sweeping.is_empty() {
            self.sweep_again = true;
            return;
        }
        let Scheduler { store, clock, .. } = self.scheduler;
        let sweep = async move {
            clock.sleep(pause).await;
            (clock.moment(), store.due_timers(SWEEP_HORIZON, MAX_SWEPT_TIMERS).await)
        };
        self.sweeping.push(sweep.boxed());
    }

    /// Takes over the result of a sweep. Delays count from the store's time in its reply, so no timer fires early.
    fn swept(&mut self, begun: Moment, due: Result<DueTimers, StoreError>) {
        match due {
            Ok(due) => self.adopt(begun, due),
            Err(error) => warn!("reading due timers failed: {error}"),
        }
        if std::mem::take(&mut self.sweep_again) {
            self.sweep(MIN_SWEEP_INTERVAL);
        }
    }

    fn adopt(&mut self, begun: Moment, due: DueTimers) {
        let whole = due.timers.len() < MAX_SWEPT_TIMERS;
        let now = self.scheduler.clock.moment();
        self.store_time = Some((due.now, due.at));
        let mut seen = HashSet::with_capacity(if whole { self.published.len() } else { 0 });
        for timer in due.timers {
            let key = self.key(&timer);
            if self.published.get(&key).is_some_and(|at| at.until(now) < REPUBLISH_AFTER) {
                seen.insert(key);
            } else if self.waiting.insert(key) {
                let delay = delay(due.now, timer.timer.due_at);
                self.due.insert((due.at + delay, key), timer);
            }
        }
        if whole {
            // Forget the timers that are no longer in the store.
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
        let (key, moment) = (self.key(&due), self.scheduler.clock.moment());
        match outcome {
            Ok(()) => {
                if let Some((then, at)) = self.store_time {
                    let now = then.plus(at.until(moment));
                    observe(&metrics().timer_lateness, due.timer.due_at.until(now));
                }
                self.waiting.remove(&key);
                self.published.insert(key, moment);
            }
            Err(error) => {
                let (session_id, timer_id) = (&due.session_id, &due.timer.timer_id);
                warn!(session_id, timer_id, "publishing a due timer failed, retrying in 1 s: {error}");
                self.due.insert((moment + RETRY_DELAY, key), due);
            }
        }
    }

    fn key(&self, due: &DueTimer) -> TimerKey {
        self.hasher.hash_one((&due.session_id, &due.timer.timer_id, due.timer.generation))
    }
}

/// Returns when the first timer is due.
async fn first_due(clock: &Clock, due: &BTreeMap<(Moment, TimerKey), DueTimer>) {
    match due.first_key_value() {
        Some(((at, _), _)) => clock.sleep_until(*at).await,
        None => pending().await,
    }
}

/// The time until `due_at`. Both clocks count whole milliseconds, so one more is added to never fire early.
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
