//! What a run has told and nobody has seen yet: published in order, in groups, and never before the steps that it follows
//! from are durable.

use super::event::RunEvent;
use super::run::{EventSink, RunError};
use crate::journal::Journal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// With more than so many, the run waits for its readers.
const MAX_WAITING: usize = 2_000;
/// The most events of one publication.
const GROUP: usize = 512;

/// See the module.
#[derive(Default)]
pub(super) struct Outlet {
    waiting: Mutex<Vec<RunEvent>>,
    told: Notify,
    taken: Notify,
    closed: AtomicBool,
}

impl Outlet {
    pub(super) fn tell(&self, event: RunEvent) {
        self.waiting().push(event);
        self.told.notify_one();
    }

    /// Nothing more is told.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.told.notify_one();
        self.taken.notify_waiters();
    }

    /// Returns when there is room for more, or nobody to hear it.
    pub(super) async fn room(&self) {
        self.at_most(MAX_WAITING).await;
    }

    /// Returns when nothing waits to be published, or nobody hears it.
    pub(super) async fn taken(&self) {
        self.at_most(0).await;
    }

    async fn at_most(&self, waiting: usize) {
        loop {
            let taken = self.taken.notified();
            if self.waiting().len() <= waiting || self.closed.load(Ordering::Acquire) {
                return;
            }
            taken.await;
        }
    }

    /// Writes and publishes until it is closed and all is out.
    pub(super) async fn drain(&self, journal: &Journal, sink: &dyn EventSink) -> Result<(), RunError> {
        loop {
            // In this order: what was told by now follows from steps that are deferred by now.
            let closed = self.closed.load(Ordering::Acquire);
            let events = self.take();
            journal.settle().await?;
            if !events.is_empty() {
                sink.publish(events).await.map_err(RunError::Sink)?;
            } else if closed {
                return Ok(());
            } else {
                tokio::select! {
                    () = self.told.notified() => {}
                    () = journal.deferred() => {}
                }
            }
        }
    }

    fn take(&self) -> Vec<RunEvent> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(GROUP);
        let events = waiting.drain(..count).collect();
        drop(waiting);
        self.taken.notify_waiters();
        events
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<RunEvent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
