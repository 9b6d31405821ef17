//! The bulkhead: limits the places of the worker that the turns of one model may occupy, so that a slow model does not
//! stop the sessions of other models.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A job waits this long for a place of a model if a turn of that model ended within the same time before: then another
/// one is likely to end soon.
const MOMENT: Duration = Duration::from_millis(50);
/// Shortest redelivery delay of a job that finds no place.
const LEAST_DELAY: Duration = Duration::from_secs(1);
/// Longest redelivery delay, so that a model that has recovered is used again soon.
const MOST_DELAY: Duration = Duration::from_secs(60);
/// Minimum distance between the redeliveries of one model's jobs. The queue delivers redeliveries before new messages,
/// so many of them at the same time would delay the new messages.
const STEP: Duration = Duration::from_millis(2);

/// The places of one model.
struct Places {
    free: Arc<Semaphore>,
    /// When a turn of the model ended last.
    freed: Option<Instant>,
    /// Redelivery time of the latest job that found no place.
    last_back: Option<Instant>,
}

/// The places of all models.
pub(super) struct Shares {
    /// Maximum number of lanes of one model.
    limit: usize,
    by_model: Mutex<HashMap<String, Places>>,
}

impl Shares {
    /// Limits each model so that one eighth of the worker's places, and at least one, stays free for other models. A
    /// worker with a single place reserves none.
    pub(super) fn new(concurrency: usize) -> Arc<Self> {
        let reserve = if concurrency < 2 { 0 } else { (concurrency / 8).max(1) };
        Arc::new(Self { limit: concurrency - reserve, by_model: Mutex::default() })
    }

    /// Takes a place for a lane whose agent uses `model`. If the model has no free place, returns the delay after which
    /// the job should try again; it grows with the number of waiting jobs.
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
    /// The delay of one more job that found no place.
    fn delay(&mut self, now: Instant) -> Duration {
        let soonest = now + LEAST_DELAY;
        let back = self.last_back.map_or(soonest, |last| soonest.max(last + STEP)).min(now + MOST_DELAY);
        self.last_back = Some(back);
        back - now
    }
}

/// A place of one model, released on drop.
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
        assert!(shares.take("slow").await.is_err(), "even while no other model is in use");
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
        assert!(waited.is_ok(), "it gets the place that becomes free");
    }

    #[test]
    fn the_more_jobs_wait_for_a_model_the_later_each_comes_back() {
        let (shares, now) = (Shares::new(2), Instant::now());
        let refused = |at| shares.of("slow", |places| places.delay(at));
        assert_eq!(refused(now), LEAST_DELAY);
        let delays: Vec<Duration> = (0..10_000).map(|_| refused(now)).collect();
        assert_eq!(delays[9_999], LEAST_DELAY + STEP * 10_000);
        // The first of them returns, and is queued behind the last.
        assert_eq!(refused(now + LEAST_DELAY), STEP * 10_001);
        assert_eq!(refused(now + Duration::from_secs(600)), LEAST_DELAY, "the jobs that waited have been taken");
        let worst = (0..100_000).map(|_| refused(now)).max();
        assert_eq!(worst, Some(MOST_DELAY));
    }
}
