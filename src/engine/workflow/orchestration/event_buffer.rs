//! Queue of a run's unpublished events. They are published in order, in batches, and never before the steps from
//! which they follow are durable.

use super::event::QueuedEvent;
use super::run::{EventSink, RunError};
use crate::journal::Journal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Number of unpublished events above which the run starts no further stage.
const MAX_WAITING: usize = 2_000;
/// Limit on the events of one publication.
const MAX_BATCH: usize = 512;

/// Queue of a run's unpublished events.
#[derive(Default)]
pub(super) struct EventBuffer {
    waiting: Mutex<Vec<QueuedEvent>>,
    /// Number of events so far, published or not. Changes together with `waiting`.
    count: AtomicUsize,
    /// Number of published events.
    published: AtomicUsize,
    pushed: Notify,
    /// Wakes those who wait until events have been taken or published.
    taken: Notify,
    closed: AtomicBool,
}

impl EventBuffer {
    pub(super) fn push(&self, event: QueuedEvent) {
        let mut waiting = self.waiting();
        waiting.push(event);
        self.count.fetch_add(1, Ordering::AcqRel);
        drop(waiting);
        self.pushed.notify_one();
    }

    /// Declares that no further events follow, and wakes all waiters.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.pushed.notify_one();
        self.taken.notify_waiters();
    }

    /// Waits until the queue has room for further events, or is closed.
    pub(super) async fn wait_for_room(&self) {
        self.wait_for_at_most(MAX_WAITING).await;
    }

    /// Waits until all events have been taken for publication, or the queue is closed.
    pub(super) async fn wait_until_taken(&self) {
        self.wait_for_at_most(0).await;
    }

    /// Waits until all events so far are on the stream, or the queue is closed.
    pub(super) async fn wait_until_published(&self) {
        let count = self.count.load(Ordering::Acquire);
        loop {
            let taken = self.taken.notified();
            if self.published.load(Ordering::Acquire) >= count || self.closed.load(Ordering::Acquire) {
                return;
            }
            taken.await;
        }
    }

    async fn wait_for_at_most(&self, waiting: usize) {
        loop {
            let taken = self.taken.notified();
            if self.waiting().len() <= waiting || self.closed.load(Ordering::Acquire) {
                return;
            }
            taken.await;
        }
    }

    /// Writes deferred steps and publishes events, until the queue is closed and empty.
    pub(super) async fn drain(&self, journal: &Journal, sink: &dyn EventSink) -> Result<(), RunError> {
        loop {
            // The order matters: events taken here follow from steps that are already deferred, and the steps must be
            // durable before the events are published.
            let closed = self.closed.load(Ordering::Acquire);
            let events = self.take();
            journal.settle().await?;
            if !events.is_empty() {
                let count = events.len();
                sink.publish(events).await.map_err(RunError::Sink)?;
                self.published.fetch_add(count, Ordering::AcqRel);
                self.taken.notify_waiters();
            } else if closed {
                return Ok(());
            } else {
                tokio::select! {
                    () = self.pushed.notified() => {}
                    () = journal.deferred() => {}
                }
            }
        }
    }

    fn take(&self) -> Vec<QueuedEvent> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(MAX_BATCH);
        let events = waiting.drain(..count).collect();
        drop(waiting);
        self.taken.notify_waiters();
        events
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<QueuedEvent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
