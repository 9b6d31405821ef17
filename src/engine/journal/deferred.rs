//! Completed steps whose records are not written yet.

use super::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use tokio::sync::{Mutex, Notify};
use types::step::StepRecord;

/// From this number on, adding a step waits until the steps are written.
pub(super) const MAX_DEFERRED: usize = 256;

/// The completed steps of a turn whose records are not written yet.
#[derive(Default)]
pub(super) struct Deferred {
    steps: StdMutex<Vec<Arc<StepRecord>>>,
    /// Held while steps are written. It keeps their order, and a second caller waits for a write in flight.
    pub(super) writing: Mutex<()>,
    pub(super) pushed: Notify,
    failed: AtomicBool,
}

impl Deferred {
    /// Adds a step and returns the number of waiting steps.
    pub(super) fn push(&self, step: Arc<StepRecord>) -> usize {
        let count = {
            let mut steps = lock(&self.steps);
            steps.push(step);
            steps.len()
        };
        self.pushed.notify_one();
        count
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.steps).is_empty()
    }

    /// The waiting steps. They stay until [`Deferred::written`] is called, because the caller may be dropped while it
    /// writes.
    pub(super) fn waiting(&self) -> Vec<Arc<StepRecord>> {
        lock(&self.steps).clone()
    }

    /// Reports a failed write, which may still arrive at the store. The turn is repeated and reads the recorded steps;
    /// no further write of this attempt may arrive after that.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Removes the first `count` steps, which are durable now.
    pub(super) fn written(&self, count: usize) {
        lock(&self.steps).drain(..count);
    }
}
