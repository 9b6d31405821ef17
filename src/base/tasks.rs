//! Background tasks. Only this module starts them, so that each task has a name, a consequence of its panic, and an
//! end.

use futures::FutureExt;
use std::any::Any;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{Instrument, error};

/// The consequence of a task's panic for its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPanic {
    /// The process cannot work without the task: shut down.
    Shutdown,
    /// Only the task's own work is lost: log an error.
    Log,
}

/// A set of background tasks of one process. They are stopped together and joined at shutdown. Cheap to clone; clones
/// share the set.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failure: Arc<OnceLock<String>>,
}

impl Tasks {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty set that is stopped with `parent`, or earlier by its own [`Tasks::shutdown`].
    pub fn child_of(parent: &CancellationToken) -> Self {
        Self { stop: parent.child_token(), ..Self::default() }
    }

    /// The token that asks tasks to take no new work.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Asks every task to stop. Does not wait for them.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Asks every task to stop because of a fatal problem, and logs the problem. Only the first problem is kept.
    pub fn fail(&self, problem: String) {
        error!("{problem}");
        // A second problem at the same time adds nothing.
        let _ = self.failure.set(problem);
        self.stop.cancel();
    }

    /// The fatal problem that stopped the tasks; `None` if there was none.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// Starts `task` in the background. `name` appears in the log if the task panics.
    #[allow(clippy::disallowed_methods)]
    pub fn spawn(&self, name: &'static str, on_panic: OnPanic, task: impl Future<Output = ()> + Send + 'static) {
        let failing = (on_panic == OnPanic::Shutdown).then(|| self.clone());
        // The task catches its own panic. A second task that watches it would cost every turn a spawn and a wake-up.
        let watched = async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let panic = panic_text(panic.as_ref());
                match failing {
                    Some(tasks) => tasks.fail(format!("the background task `{name}` panicked: {panic}")),
                    None => error!(task = name, "a background task panicked: {panic}"),
                }
            }
        };
        // The span within the tracked future: it has ended when `finish` returns.
        tokio::spawn(self.tracker.track_future(watched.in_current_span()));
    }

    /// Waits until every task has ended, at most for `limit`. Returns true if all have. The caller must not start
    /// further tasks.
    pub async fn finish(&self, limit: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.is_ok()
    }

    /// Asks every task to stop, and waits at most for `limit`. Returns true if all have ended.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.finish(limit).await
    }
}

/// Runs `task` on a worker thread of the runtime and returns its result. The future of `block_on` runs on the calling
/// thread, where each wake-up costs a switch between threads; loops that wake often should run here instead. Dropping
/// the returned future aborts the task. A panic of the task resumes in the caller.
#[allow(clippy::disallowed_methods)]
pub async fn run_as_task<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    match AbortOnDropHandle::new(tokio::spawn(task.in_current_span())).await {
        Ok(done) => done,
        Err(failure) => match failure.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // Only a runtime that shuts down cancels the task. It drops this future, too.
            Err(_) => pending().await,
        },
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
