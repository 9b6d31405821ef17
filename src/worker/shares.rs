//! How much of the worker each model may occupy: turns that wait for a slow model must not keep all places of the worker
//! from sessions whose model answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The least delay of a job that finds no place.
const LEAST_DELAY: Duration = Duration::from_secs(1);
/// The most, so that a model that answers again is soon asked again.
const MOST_DELAY: Duration = Duration::from_secs(60);
/// Jobs of one model come back in these steps. A redelivery goes before new messages, so that many of them at one time
/// would keep these from being delivered.
const STEP: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
struct Use {
    turns: usize,
    /// When the last of the jobs that found no place comes back.
    last_back: Option<Instant>,
}

/// See the module.
pub(super) struct Shares {
    /// The most lanes of one model.
    limit: usize,
    by_model: Mutex<HashMap<String, Use>>,
}

impl Shares {
    /// One eighth of the worker's places, at least one, is always kept for other models. A worker with a single place
    /// keeps none.
    pub(super) fn new(concurrency: usize) -> Arc<Self> {
        let reserve = if concurrency < 2 { 0 } else { (concurrency / 8).max(1) };
        Arc::new(Self { limit: concurrency - reserve, by_model: Mutex::default() })
    }

    /// A place for a lane whose agent asks `model`. When the model has its share: how long the job waits before it
    /// asks again, which grows with the number of those that wait.
    pub(super) fn take(self: &Arc<Self>, model: &str) -> Result<Share, Duration> {
        self.take_at(model, Instant::now())
    }

    fn take_at(self: &Arc<Self>, model: &str, now: Instant) -> Result<Share, Duration> {
        let mut by_model = self.lock();
        let used = by_model.entry(model.to_owned()).or_default();
        if used.turns >= self.limit {
            let soonest = now + LEAST_DELAY;
            let back = used.last_back.map_or(soonest, |last| soonest.max(last + STEP)).min(now + MOST_DELAY);
            used.last_back = Some(back);
            return Err(back - now);
        }
        used.turns += 1;
        Ok(Share { shares: Arc::clone(self), model: model.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Use>> {
        self.by_model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place; given back when dropped.
pub(super) struct Share {
    shares: Arc<Shares>,
    model: String,
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(used) = self.shares.lock().get_mut(&self.model) {
            used.turns = used.turns.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_model_never_has_all_places() {
        let shares = Shares::new(8);
        let mut slow: Vec<Share> = (0..7).map(|_| shares.take("slow").unwrap_or_else(|_| panic!("a place"))).collect();
        assert!(shares.take("slow").is_err(), "also while no other model is in use");
        assert!(shares.take("quick").is_ok());
        slow.truncate(5);
        assert!(shares.take("slow").is_ok());
    }

    #[test]
    fn a_worker_with_one_place_gives_it_to_any_model() {
        let shares = Shares::new(1);
        drop(shares.take("a"));
        assert!(shares.take("b").is_ok());
    }

    #[test]
    fn the_more_jobs_wait_for_a_model_the_later_each_comes_back() {
        let (shares, now) = (Shares::new(2), Instant::now());
        let _busy = shares.take("slow");
        let refused = |at| shares.take_at("slow", at).err().unwrap();
        assert_eq!(refused(now), LEAST_DELAY);
        let delays: Vec<Duration> = (0..10_000).map(|_| refused(now)).collect();
        assert_eq!(delays[9_999], LEAST_DELAY + STEP * 10_000);
        // The first of them is back, and goes behind the last.
        assert_eq!(refused(now + LEAST_DELAY), STEP * 10_001);
        assert_eq!(refused(now + Duration::from_secs(600)), LEAST_DELAY, "those that waited are gone");
        let worst = (0..100_000).map(|_| refused(now)).max();
        assert_eq!(worst, Some(MOST_DELAY));
    }
}
