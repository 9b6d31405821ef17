//! The one place that starts background tasks, so that each has a name, a fate and an end.

use std::future::Future;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
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
}

impl Tasks {
    /// A set without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set that ends with `parent`, or earlier by its own [`Tasks::shutdown`].
    pub fn child_of(parent: &CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), stop: parent.child_token() }
    }

    /// The token that tells tasks to stop taking new work.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Asks every task to stop; returns at once.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Starts `task` in the background under `name`.
    #[allow(clippy::disallowed_methods)]
    pub fn spawn(&self, name: &'static str, on_panic: OnPanic, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let work = tokio::spawn(self.tracker.track_future(task).in_current_span());
        // The watcher is not tracked: it ends with the task that it watches.
        tokio::spawn(async move {
            if let Err(failure) = work.await
                && failure.is_panic()
            {
                error!(task = name, "a background task panicked: {failure}");
                if on_panic == OnPanic::Shutdown {
                    stop.cancel();
                }
            }
        });
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
