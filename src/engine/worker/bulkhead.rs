//! The bulkhead: limits the places of the worker that the turns of one model may occupy, so that a slow model does not
//! stop the sessions of other models.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A job waits this long for a place of a model if a turn of that model ended within the same time before: then another
/// one is likely to end soon.
const PERMIT_WAIT: Duration = Duration::from_millis(50);
/// Shortest redelivery delay of a job that finds no place.
const MIN_DELAY: Duration = Duration::from_secs(1);
/// The same while turns of the model end quickly. A pause of the store stops all turns for a moment, and a place is free
/// soon after it.
const MIN_DELAY_MOVING: Duration = Duration::from_millis(100);
/// Longest redelivery delay, so that a model that has recovered is used again soon.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Minimum distance between the redeliveries of one model's jobs. The queue delivers redeliveries before new messages,
/// so many of them at the same time would delay the new messages.
const DELAY_STEP: Duration = Duration::from_millis(2);

/// The places of one model.
struct Places {
    free: Arc<Semaphore>,
    /// When a turn of the model ended last.
    freed: Option<Instant>,
    /// Redelivery time of the latest job that found no place.
    last_back: Option<Instant>,
}

/// The places of all models.
pub(super) struct Bulkhead {
    /// Maximum number of lanes of one model: the setting `worker.concurrency`.
    limit: usize,
    by_model: Mutex<HashMap<String, Places>>,
}

impl Bulkhead {
    /// Limits each model to `concurrency` places.
    pub(super) fn new(concurrency: usize) -> Arc<Self> {
        Arc::new(Self { limit: concurrency, by_model: Mutex::default() })
    }

    /// All places of a worker: one eighth more than one model may occupy, and at least one more. The places are added to
    /// the setting and not taken from it, so that a worker with a single model has no job without a place. A worker of
    /// one place runs one turn at a time.
    pub(super) fn places(concurrency: usize) -> usize {
        if concurrency < 2 { concurrency } else { concurrency.saturating_add((concurrency / 8).max(1)) }
    }

    /// Takes a place for a lane whose agent uses `model`. If the model has no free place, returns the delay after which
    /// the job should try again; it grows with the number of waiting jobs.
    pub(super) async fn acquire(self: &Arc<Self>, model: &str) -> Result<Permit, Duration> {
        let (free, moves) = self.with_places(model, |places| {
            let moves = places.freed.is_some_and(|freed| freed.elapsed() < PERMIT_WAIT);
            (Arc::clone(&places.free), moves)
        });
        let place = match Arc::clone(&free).try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) if moves => timeout(PERMIT_WAIT, free.acquire_owned()).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        let permit = |place| Permit { bulkhead: Arc::clone(self), model: model.to_owned(), _place: place };
        place.map(permit).ok_or_else(|| self.with_places(model, |places| places.delay(Instant::now(), moves)))
    }

    fn with_places<T>(&self, model: &str, look: impl FnOnce(&mut Places) -> T) -> T {
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
    /// The delay of one more job that found no place. `moves`: turns of the model end quickly.
    fn delay(&mut self, now: Instant, moves: bool) -> Duration {
        let soonest = now + if moves { MIN_DELAY_MOVING } else { MIN_DELAY };
        let back = self.last_back.map_or(soonest, |last| soonest.max(last + DELAY_STEP)).min(now + MAX_DELAY);
        self.last_back = Some(back);
        back - now
    }
}

/// A place of one model, released on drop.
pub(super) struct Permit {
    bulkhead: Arc<Bulkhead>,
    model: String,
    _place: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.bulkhead.with_places(&self.model, |places| places.freed = Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn place(bulkhead: &Arc<Bulkhead>, model: &str) -> Permit {
        bulkhead.acquire(model).await.unwrap_or_else(|_| panic!("{model} gets no place"))
    }

    #[tokio::test]
    async fn one_model_never_has_all_places() {
        let bulkhead = Bulkhead::new(8);
        let mut slow = Vec::new();
        for _ in 0..8 {
            slow.push(place(&bulkhead, "slow").await);
        }
        assert!(slow.len() < Bulkhead::places(8));
        assert!(bulkhead.acquire("slow").await.is_err(), "even while no other model is in use");
        place(&bulkhead, "quick").await;
        slow.truncate(7);
        place(&bulkhead, "slow").await;
    }

    #[tokio::test]
    async fn a_worker_with_one_place_gives_it_to_any_model() {
        let bulkhead = Bulkhead::new(1);
        assert_eq!([0, 1, 2, 7, 16, 256].map(Bulkhead::places), [0, 1, 3, 8, 18, 288]);
        drop(place(&bulkhead, "a").await);
        place(&bulkhead, "b").await;
    }

    #[tokio::test]
    async fn a_job_waits_a_moment_for_a_model_whose_turns_end_quickly() {
        let bulkhead = Bulkhead::new(2);
        let (first, _second) = (place(&bulkhead, "quick").await, place(&bulkhead, "quick").await);
        drop(first);
        let third = place(&bulkhead, "quick").await;
        let (waited, ()) = tokio::join!(bulkhead.acquire("quick"), async {
            tokio::task::yield_now().await;
            drop(third);
        });
        assert!(waited.is_ok(), "it gets the place that becomes free");
    }

    #[test]
    fn the_more_jobs_wait_for_a_model_the_later_each_comes_back() {
        let (bulkhead, now) = (Bulkhead::new(2), Instant::now());
        let refused = |at| bulkhead.with_places("slow", |places| places.delay(at, false));
        assert_eq!(refused(now), MIN_DELAY);
        let delays: Vec<Duration> = (0..10_000).map(|_| refused(now)).collect();
        assert_eq!(delays[9_999], MIN_DELAY + DELAY_STEP * 10_000);
        // The first of them returns, and is queued behind the last.
        assert_eq!(refused(now + MIN_DELAY), DELAY_STEP * 10_001);
        assert_eq!(refused(now + Duration::from_secs(600)), MIN_DELAY, "the jobs that waited have been taken");
        let worst = (0..100_000).map(|_| refused(now)).max();
        assert_eq!(worst, Some(MAX_DELAY));
    }

    #[test]
    fn a_job_comes_back_soon_to_a_model_whose_turns_end_quickly() {
        let (bulkhead, now) = (Bulkhead::new(2), Instant::now());
        let refused = |moves| bulkhead.with_places("quick", |places| places.delay(now, moves));
        assert_eq!(refused(true), MIN_DELAY_MOVING);
        assert_eq!(refused(true), MIN_DELAY_MOVING + DELAY_STEP, "one after the other");
        assert_eq!(refused(false), MIN_DELAY);
    }
}
