//! Steps that are done and not written yet.

use super::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use tokio::sync::{Mutex, Notify};
use types::step::StepRecord;

/// With so many, whoever adds one waits until they are written.
pub(super) const MAX_DEFERRED: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Deferred {
    steps: StdMutex<Vec<Arc<StepRecord>>>,
    /// Held while steps are written: their order is kept, and nobody takes a write on its way for done.
    pub(super) writing: Mutex<()>,
    pub(super) pushed: Notify,
    failed: AtomicBool,
}

impl Deferred {
    /// Adds a step; answers how many there are.
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

    /// They wait on until they are [`Deferred::written`], since whoever writes them may be dropped meanwhile.
    pub(super) fn waiting(&self) -> Vec<Arc<StepRecord>> {
        lock(&self.steps).clone()
    }

    /// A write has failed, and may yet arrive. The turn is repeated, and reads what is recorded: no further write of this
    /// attempt may overtake that.
    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The first so many are durable.
    pub(super) fn written(&self, count: usize) {
        lock(&self.steps).drain(..count);
    }
}
