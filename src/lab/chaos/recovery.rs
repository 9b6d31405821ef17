//! Measures recovery: the time from the kill of a worker until the store has the commit of each of its turns in flight.

use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::Collection;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Poll interval of the store.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long to retry reading a killed worker's leases while the store is unreachable. Leases expire after some seconds.
const LEASE_READ_TIMEOUT: Duration = Duration::from_secs(4);

/// Keeps track of the times at which a server is unavailable.
#[derive(Default)]
pub(super) struct Outages {
    open: AtomicUsize,
    begun: AtomicUsize,
}

/// One outage. Dropping it ends the outage.
pub(super) struct Outage(Arc<Outages>);

impl Outages {
    pub(super) fn start(self: &Arc<Self>) -> Outage {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        Outage(Arc::clone(self))
    }

    /// A number that identifies the current time without an outage; `None` during an outage.
    fn quiet(&self) -> Option<usize> {
        (self.open.load(Ordering::SeqCst) == 0).then(|| self.begun.load(Ordering::SeqCst))
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Turns of killed workers that are not committed yet, and measured recoveries.
pub(super) struct Recovery {
    sessions: Collection<Document>,
    outages: Arc<Outages>,
    waiting: Mutex<HashMap<String, Waiting>>,
    samples: Mutex<Vec<Sample>>,
    /// Times at which workers were killed or paused.
    hits: Mutex<Vec<Instant>>,
    /// Duration of a lease.
    lease: Duration,
    unseen: AtomicU64,
}

/// A turn that was in flight in a killed worker.
#[derive(Clone, Copy)]
struct Waiting {
    since: Instant,
    last_seq: i64,
    quiet: Option<usize>,
}

#[derive(Clone, Copy)]
struct Sample {
    took: Duration,
    /// No other fault happened until the commit.
    undisturbed: bool,
}

/// Percentiles of durations, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Number of durations.
    pub turns: usize,
    /// Median.
    pub p50_ms: u64,
    /// 99th percentile.
    pub p99_ms: u64,
    /// Maximum.
    pub max_ms: u64,
}

/// Recovery times of turns that were in flight in killed workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Turns without another fault: NATS and MongoDB were available, and no other worker was killed or paused while the
    /// turn moved to another worker.
    pub undisturbed: Times,
    /// All turns.
    pub all: Times,
    /// Killed workers whose turns in flight are unknown, because the store was unreachable.
    pub unseen_kills: u64,
}

impl Times {
    /// Calculates the percentiles.
    pub(super) fn from_durations(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = durations.into_iter().collect();
        sorted.sort_unstable();
        let at = |share: f64| {
            // The smallest duration that is not exceeded by this share of all durations.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            let rank = (sorted.len() as f64 * share).ceil() as usize;
            let duration = sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default();
            u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
        };
        Self { turns: sorted.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

impl Recovery {
    pub(super) fn new(sessions: Collection<Document>, outages: Arc<Outages>, lease: Duration) -> Arc<Self> {
        let (waiting, samples, hits, unseen) = Default::default();
        Arc::new(Self { sessions, outages, waiting, samples, hits, lease, unseen })
    }

    /// Watches the turns that were in flight in the worker `pid`, which was killed at `since`.
    pub(super) async fn killed(&self, pid: u32, since: Instant) {
        self.hits().push(since);
        let quiet = self.outages.quiet();
        let Some(held) = self.held_by(pid).await else {
            self.unseen.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut waiting = self.waiting();
        for (session_id, last_seq) in held {
            // If the turn was already recovering from an earlier kill, its measurement restarts.
            waiting.insert(session_id, Waiting { since, last_seq, quiet });
        }
    }

    /// Records that the worker `pid` was paused. Turns that it has taken over from a killed worker are no longer
    /// measured, because the pause delays them.
    pub(super) async fn paused(&self, pid: u32) {
        self.hits().push(Instant::now());
        for (session_id, _) in self.held_by(pid).await.unwrap_or_default() {
            self.waiting().remove(&session_id);
        }
    }

    /// Sessions whose lease the process holds, with the last processed sequence of each.
    async fn held_by(&self, pid: u32) -> Option<Vec<(String, i64)>> {
        let filter = doc! {"lease.owner": {"$regex": format!("^worker-{pid}-")}};
        let begun = Instant::now();
        while begun.elapsed() < LEASE_READ_TIMEOUT {
            match self.find(filter.clone()).await {
                Ok(found) => return Some(found),
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
        None
    }

    async fn find(&self, filter: Document) -> mongodb::error::Result<Vec<(String, i64)>> {
        let found: Vec<Document> =
            self.sessions.find(filter).projection(doc! {"last_seq": 1}).await?.try_collect().await?;
        let read = |found: &Document| {
            Some((found.get_str("_id").ok()?.to_owned(), found.get_i64("last_seq").unwrap_or_default()))
        };
        Ok(found.iter().filter_map(read).collect())
    }

    /// Polls for commits until `stop` is cancelled.
    pub(super) async fn watch(&self, stop: CancellationToken) {
        let mut look = interval(POLL_INTERVAL);
        while !stop.is_cancelled() {
            look.tick().await;
            let ids: Vec<Bson> = self.waiting().keys().map(|session_id| session_id.as_str().into()).collect();
            if ids.is_empty() {
                continue;
            }
            for (session_id, last_seq) in self.find(doc! {"_id": {"$in": ids}}).await.unwrap_or_default() {
                self.seen(&session_id, last_seq);
            }
        }
    }

    fn seen(&self, session_id: &str, last_seq: i64) {
        let mut waiting = self.waiting();
        let Some(entry) = waiting.get(session_id).copied().filter(|entry| last_seq > entry.last_seq) else { return };
        waiting.remove(session_id);
        let servers_up = entry.quiet.is_some() && entry.quiet == self.outages.quiet();
        let sample = Sample { took: entry.since.elapsed(), undisturbed: servers_up && !self.hit_again(entry.since) };
        let (took_ms, undisturbed) = (sample.took.as_millis(), sample.undisturbed);
        debug!(session_id, took_ms, undisturbed, "a turn of a killed worker was committed");
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
    }

    /// Whether a worker was hit after half a lease since `since`. The leases of the killed worker may have expired by
    /// then, so the turn may have moved to the worker that was hit.
    fn hit_again(&self, since: Instant) -> bool {
        self.hits().iter().any(|hit| *hit > since + self.lease / 2)
    }

    /// The recovery times so far.
    pub(super) fn measured(&self) -> Recovered {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        Recovered {
            undisturbed: Times::from_durations(
                samples.iter().filter(|sample| sample.undisturbed).map(|sample| sample.took),
            ),
            all: Times::from_durations(samples.iter().map(|sample| sample.took)),
            unseen_kills: self.unseen.load(Ordering::Relaxed),
        }
    }

    fn hits(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.hits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_durations() {
        let times = Times::from_durations((1..=200).rev().map(Duration::from_millis));
        assert_eq!(times, Times { turns: 200, p50_ms: 100, p99_ms: 198, max_ms: 200 });
        assert_eq!(Times::from_durations([]), Times::default());
        assert_eq!(Times::from_durations([Duration::from_millis(7)]).p99_ms, 7);
    }

    #[test]
    fn a_time_with_an_outage_in_it_is_not_quiet() {
        let outages = Arc::<Outages>::default();
        let before = outages.quiet();
        let outage = outages.start();
        assert_eq!(outages.quiet(), None);
        drop(outage);
        assert!(outages.quiet().is_some() && outages.quiet() != before);
    }
}
