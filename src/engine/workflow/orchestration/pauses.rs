//! Pauses of a run: its waits, its unanswered questions, and the pauses before further attempts.
//!
//! A run in a lane of its own ends its turn when all its unfinished parts pause, so that it holds no place of a worker. A
//! timer or an answer begins its next turn, which replays the journal and waits for the rest. A run within a session's
//! turn keeps its worker.

use super::event_buffer::EventBuffer;
use crate::journal::{Journal, JournalError};
use base::clock::Clock;
use futures::task::AtomicWaker;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use types::timestamp::Timestamp;

/// A run keeps its worker for a pause that is not longer than this. A new turn would take almost as long.
const SHORT: Duration = Duration::from_secs(2);

/// The pauses of a run in one turn.
#[derive(Default)]
pub(crate) struct Pauses {
    /// Until when the run may wait at most. `None` for a run that keeps its worker.
    latest: Option<Timestamp>,
    state: Mutex<PauseState>,
    /// The error for which the journal was halted.
    failure: Mutex<Option<JournalError>>,
    polled: Arc<Polled>,
}

#[derive(Default)]
struct PauseState {
    count: u64,
    /// The ends of the pauses that have begun.
    pauses: BTreeMap<u64, Timestamp>,
    /// Parts of the work for which the run keeps its worker.
    kept: usize,
    /// The end of the time for an answer, by question.
    questions: BTreeMap<String, Timestamp>,
    /// The first of these ends, when the turn can end. The pauses themselves end with the work of the turn.
    due: Option<Timestamp>,
}

impl Pauses {
    /// For a run in a lane of its own, which can wait until `latest`: its steps expire later.
    pub(crate) fn in_lane(latest: Timestamp) -> Self {
        Self { latest: Some(latest), ..Self::default() }
    }

    /// Until when the run may wait at most. `None` for a run that keeps its worker.
    pub(crate) fn latest(&self) -> Option<Timestamp> {
        self.latest
    }

    fn state(&self) -> MutexGuard<'_, PauseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses until `at`. The turn may end meanwhile.
    pub(super) async fn until(&self, clock: &Clock, at: Timestamp) {
        let rest = clock.now().until(at);
        if rest.is_zero() {
            return;
        }
        let _begun = self.begin(at);
        clock.sleep(rest).await;
    }

    fn begin(&self, at: Timestamp) -> Begun<'_> {
        let mut state = self.state();
        state.count += 1;
        let id = state.count;
        state.pauses.insert(id, at);
        Begun { pauses: self, id }
    }

    /// Keeps the worker until the result is dropped. For work that waits for something other than a step or a pause.
    pub(super) fn keep_worker(&self) -> Kept<'_> {
        self.state().kept += 1;
        Kept(self)
    }

    /// Adds a question that waits for its answer until `until`.
    pub(super) fn add_question(&self, key: String, until: Timestamp) {
        self.state().questions.insert(key, until);
    }

    /// The time for the next turn, once this turn can end: the first end of a pause or of the time for an answer.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.state().due
    }

    /// Notes the error for which the journal was halted. The first one counts.
    pub(super) fn note_failure(&self, error: JournalError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The error for which the journal was halted, in place of one that only says so.
    pub(super) fn cause_of(&self, error: JournalError) -> JournalError {
        match error {
            JournalError::Halted => self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(error),
            error => error,
        }
    }

    /// Polls the work of the run, and notices whether it was woken since.
    pub(super) async fn watch<F: Future>(&self, mut work: Pin<&mut F>) -> F::Output {
        let polled = &self.polled;
        let waker = Waker::from(Arc::clone(polled));
        poll_fn(|context| {
            polled.task.register(context.waker());
            polled.woken.store(false, Ordering::SeqCst);
            work.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }

    /// Returns when the turn can end: the work waits for nothing but pauses that are not short, no more than `outer`
    /// steps of `journal` are in flight, and all events are on their way. Must be polled after [`Pauses::watch`], in the
    /// same task. Never returns for a run that keeps its worker.
    pub(super) async fn wait_until_quiet(&self, journal: &Journal, events: &EventBuffer, outer: usize) {
        loop {
            journal.wait_idle(outer).await;
            // Work may wait until its events are on the stream.
            events.wait_until_published().await;
            if journal.running_steps() <= outer && self.is_quiet(journal.clock().now()) {
                return;
            }
            // The next poll of the work is followed by the next look.
            let mut looked = false;
            poll_fn(|_| if std::mem::replace(&mut looked, true) { Poll::Ready(()) } else { Poll::Pending }).await;
        }
    }

    fn is_quiet(&self, now: Timestamp) -> bool {
        let mut state = self.state();
        let first = state.pauses.values().chain(state.questions.values()).min().copied();
        let is_long = state.pauses.values().all(|at| now.until(*at) > SHORT);
        let can_end = self.latest.is_some() && is_long && state.kept == 0 && !self.polled.woken.load(Ordering::SeqCst);
        state.due = first.filter(|_| can_end);
        state.due.is_some()
    }
}

/// The waker of a run's work: knows whether the work was woken since it was polled.
#[derive(Default)]
struct Polled {
    woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Polled {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.task.wake();
    }
}

/// A pause that has begun. It ends when this is dropped.
struct Begun<'p> {
    pauses: &'p Pauses,
    id: u64,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.pauses.state().pauses.remove(&self.id);
    }
}

/// Work for which the run keeps its worker.
pub(super) struct Kept<'p>(&'p Pauses);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.kept = state.kept.saturating_sub(1);
    }
}
