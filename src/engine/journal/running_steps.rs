//! Counts the running steps of a turn, and other work that must complete before the turn ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The number of running steps of a turn.
#[derive(Default)]
pub(super) struct RunningSteps {
    count: AtomicUsize,
    ended: Notify,
}

/// A running step; it ends when this is dropped.
pub(crate) struct RunningStep<'a>(&'a RunningSteps);

impl RunningSteps {
    pub(super) fn start(&self) -> RunningStep<'_> {
        self.count.fetch_add(1, Ordering::AcqRel);
        RunningStep(self)
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns when at most `outer` steps are running.
    pub(super) async fn wait_at_most(&self, outer: usize) {
        loop {
            let ended = self.ended.notified();
            if self.count() <= outer {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for RunningStep<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}
