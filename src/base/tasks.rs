//! The one place that starts background tasks, so that each has a name, a fate and an end.

use futures::FutureExt;
use std::any::Any;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{Instrument, error};

/// What the end of a task by panic means for its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPanic {
    /// The process cannot do its work without the task: begin the shutdown.
    Shutdown,
    /// The task's own work is lost, others go on.
    Log,
}

/// Background tasks of one process: started by name, told to stop together, joined at the end.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failure: Arc<OnceLock<String>>,
}

impl Tasks {
    /// A set without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set that ends with `parent`, or earlier by its own [`Tasks::shutdown`].
    pub fn child_of(parent: &CancellationToken) -> Self {
        Self { stop: parent.child_token(), ..Self::default() }
    }

    /// The token that tells tasks to stop taking new work.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Asks every task to stop; returns at once.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Asks every task to stop, because of a problem that the process cannot go on with. The first one counts.
    pub fn fail(&self, problem: String) {
        error!("{problem}");
        // Of two problems at once one is enough.
        let _ = self.failure.set(problem);
        self.stop.cancel();
    }

    /// The problem that ended these tasks; `None` when there was none.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// Starts `task` in the background under `name`.
    #[allow(clippy::disallowed_methods)]
    pub fn spawn(&self, name: &'static str, on_panic: OnPanic, task: impl Future<Output = ()> + Send + 'static) {
        let failing = (on_panic == OnPanic::Shutdown).then(|| self.clone());
        // In the task itself: a second one to watch it would cost every turn a start and a wake-up.
        let watched = async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let panic = panic_text(panic.as_ref());
                match failing {
                    Some(tasks) => tasks.fail(format!("the background task `{name}` panicked: {panic}")),
                    None => error!(task = name, "a background task panicked: {panic}"),
                }
            }
        };
        tokio::spawn(self.tracker.track_future(watched).in_current_span());
    }

    /// Waits until every task has come to its own end, `limit` at most. True when all did. No further ones are to be started.
    pub async fn finish(&self, limit: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.is_ok()
    }

    /// Asks every task to stop and waits for them, `limit` at most. True when all ended.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.finish(limit).await
    }
}

/// Runs `task` on the runtime's own threads. A loop that is woken often is worth it: whatever the process waits for at its
/// outermost is on a thread of its own, so that each wake-up is a switch between threads. A panic goes on in the caller.
#[allow(clippy::disallowed_methods)]
pub async fn apart<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    match AbortOnDropHandle::new(tokio::spawn(task.in_current_span())).await {
        Ok(done) => done,
        Err(failure) => match failure.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is ending, and everything with it.
            Err(_) => pending().await,
        },
    }
}

/// What a panic says.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
