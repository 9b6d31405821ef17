//! How much of the worker each model may occupy: turns that wait for a slow model must not keep all places of the worker
//! from sessions whose model answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A model that nobody has used for so long needs no place kept free.
const RECENT: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Use {
    turns: usize,
    last: Instant,
}

/// See the module.
pub(super) struct Shares {
    /// The most lanes of one model, as long as another is in use.
    limit: usize,
    by_model: Mutex<HashMap<String, Use>>,
}

impl Shares {
    /// One eighth of the worker stays free for others.
    pub(super) fn new(concurrency: usize) -> Arc<Self> {
        let reserve = if concurrency < 2 { 0 } else { (concurrency / 8).max(1) };
        Arc::new(Self { limit: concurrency - reserve, by_model: Mutex::default() })
    }

    /// A place for a lane whose agent asks `model`; `None` when the model has its share.
    pub(super) fn take(self: &Arc<Self>, model: &str) -> Option<Share> {
        let now = Instant::now();
        let mut by_model = self.lock();
        let others = by_model
            .iter()
            .any(|(name, used)| name != model && (used.turns > 0 || now.duration_since(used.last) < RECENT));
        let used = by_model.entry(model.to_owned()).or_insert(Use { turns: 0, last: now });
        used.last = now;
        if others && used.turns >= self.limit {
            return None;
        }
        used.turns += 1;
        Some(Share { shares: Arc::clone(self), model: model.to_owned() })
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
    fn one_model_may_have_all_places_until_another_is_used() {
        let shares = Shares::new(8);
        let mut slow: Vec<Share> = (0..8).map(|_| shares.take("slow").unwrap()).collect();
        assert!(shares.take("quick").is_some(), "the intake's permits are the bound for all together");
        assert!(shares.take("slow").is_none());
        slow.truncate(6);
        assert!(shares.take("slow").is_some());
        drop(slow);
        assert!(shares.take("slow").is_some());
    }

    #[test]
    fn a_worker_with_one_place_gives_it_to_anybody() {
        let shares = Shares::new(1);
        drop(shares.take("a").unwrap());
        assert!(shares.take("b").is_some());
    }
}
