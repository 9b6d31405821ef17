//! How much of the worker each model may occupy: turns that wait for a slow model must not keep all places of the worker
//! from sessions whose model answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A model whose turns end at shorter intervals than this frees a place in a moment: a job waits so long for it.
const MOMENT: Duration = Duration::from_millis(50);
/// The least delay of a job that finds no place.
const LEAST_DELAY: Duration = Duration::from_secs(1);
/// The most, so that a model that answers again is soon asked again.
const MOST_DELAY: Duration = Duration::from_secs(60);
/// Jobs of one model come back in these steps. A redelivery goes before new messages, so that many of them at one time
/// would keep these from being delivered.
const STEP: Duration = Duration::from_millis(2);

/// The places of one model.
struct Places {
    free: Arc<Semaphore>,
    /// When a turn of it ended last.
    freed: Option<Instant>,
    /// When the last of the jobs that found no place comes back.
    last_back: Option<Instant>,
}

/// See the module.
pub(super) struct Shares {
    /// The most lanes of one model.
    limit: usize,
    by_model: Mutex<HashMap<String, Places>>,
}

impl Shares {
    /// One eighth of the worker's places, at least one, is always kept for other models. A worker with a single place
    /// keeps none.
    pub(super) fn new(concurrency: usize) -> Arc<Self> {
        let reserve = if concurrency < 2 { 0 } else { (concurrency / 8).max(1) };
        Arc::new(Self { limit: concurrency - reserve, by_model: Mutex::default() })
    }

    /// A place for a lane whose agent asks `model`. When the model has its share: how long the job waits before it
    /// asks again, which grows with the number of waiting jobs.
    pub(super) async fn take(self: &Arc<Self>, model: &str) -> Result<Share, Duration> {
        let (free, moves) = self.of(model, |places| {
            let moves = places.freed.is_some_and(|freed| freed.elapsed() < MOMENT);
            (Arc::clone(&places.free), moves)
        });
        let place = match Arc::clone(&free).try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) if moves => timeout(MOMENT, free.acquire_owned()).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        let share = |place| Share { shares: Arc::clone(self), model: model.to_owned(), _place: place };
        place.map(share).ok_or_else(|| self.of(model, |places| places.delay(Instant::now())))
    }

    fn of<T>(&self, model: &str, look: impl FnOnce(&mut Places) -> T) -> T {
        let mut by_model = self.lock();
        if let Some(places) = by_model.get_mut(model) {
            return look(places);
        }
        let free = Arc::new(Semaphore::new(self.limit));
        look(by_model.entry(model.to_owned()).or_insert(Places { free, freed: None, last_back: None }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Places>> {
        self.by_model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// How long one more job without a place waits.
    fn delay(&mut self, now: Instant) -> Duration {
        let soonest = now + LEAST_DELAY;
        let back = self.last_back.map_or(soonest, |last| soonest.max(last + STEP)).min(now + MOST_DELAY);
        self.last_back = Some(back);
        back - now
    }
}

/// A place; given back when dropped.
pub(super) struct Share {
    shares: Arc<Shares>,
    model: String,
    _place: OwnedSemaphorePermit,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.of(&self.model, |places| places.freed = Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn place(shares: &Arc<Shares>, model: &str) -> Share {
        shares.take(model).await.unwrap_or_else(|_| panic!("{model} gets no place"))
    }

    #[tokio::test]
    async fn one_model_never_has_all_places() {
        let shares = Shares::new(8);
        let mut slow = Vec::new();
        for _ in 0..7 {
            slow.push(place(&shares, "slow").await);
        }
        assert!(shares.take("slow").await.is_err(), "also while no other model is in use");
        place(&shares, "quick").await;
        slow.truncate(6);
        place(&shares, "slow").await;
    }

    #[tokio::test]
    async fn a_worker_with_one_place_gives_it_to_any_model() {
        let shares = Shares::new(1);
        drop(place(&shares, "a").await);
        place(&shares, "b").await;
    }

    #[tokio::test]
    async fn a_job_waits_a_moment_for_a_model_whose_turns_end_quickly() {
        let shares = Shares::new(3);
        let (first, _second) = (place(&shares, "quick").await, place(&shares, "quick").await);
        drop(first);
        let third = place(&shares, "quick").await;
        let (waited, ()) = tokio::join!(shares.take("quick"), async {
            tokio::task::yield_now().await;
            drop(third);
        });
        assert!(waited.is_ok(), "the place that becomes free is its");
    }

    #[test]
    fn the_more_jobs_wait_for_a_model_the_later_each_comes_back() {
        let (shares, now) = (Shares::new(2), Instant::now());
        let refused = |at| shares.of("slow", |places| places.delay(at));
        assert_eq!(refused(now), LEAST_DELAY);
        let delays: Vec<Duration> = (0..10_000).map(|_| refused(now)).collect();
        assert_eq!(delays[9_999], LEAST_DELAY + STEP * 10_000);
        // The first of them is back, and goes behind the last.
        assert_eq!(refused(now + LEAST_DELAY), STEP * 10_001);
        assert_eq!(refused(now + Duration::from_secs(600)), LEAST_DELAY, "the jobs that waited have been taken");
        let worst = (0..100_000).map(|_| refused(now)).max();
        assert_eq!(worst, Some(MOST_DELAY));
    }
}
