//! Children that wait for a script, and the limit on working children.

use crate::child::Child;
use crate::error::{ErrorKind, ScriptError};
use crate::protocol::{Request, Response};
use crate::runner::Runner;
use base::metrics::{GaugeGuard, metrics};
use base::tasks::{OnPanic, Tasks};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tracing::debug;

/// How much longer than the script's own limit the worker waits. The built-in Python ends itself first, and then names
/// the line.
const GRACE: Duration = Duration::from_millis(300);

/// Starts children ahead of time, so that a script costs a pipe and not the start of a process. A child serves one
/// script, so nothing passes from one script to the next.
pub(crate) struct Pool {
    runner: Runner,
    warm: usize,
    waiting: Mutex<Vec<Child>>,
    filling: AtomicBool,
    permits: Semaphore,
    tasks: Tasks,
}

impl Pool {
    pub(crate) fn new(runner: Runner, concurrency: usize, warm: usize, tasks: Tasks) -> Self {
        let (waiting, filling, permits) = (Mutex::default(), AtomicBool::new(false), Semaphore::new(concurrency));
        Self { runner, warm, waiting, filling, permits, tasks }
    }

    pub(crate) fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Gives the request to a child, and kills it afterwards, or after `timeout`, or when the future is dropped.
    pub(crate) async fn call(self: &Arc<Self>, request: &Request, timeout: Duration) -> Result<Response, ScriptError> {
        self.runner.program()?;
        let mut line = serde_json::to_vec(request).map_err(|error| {
            ScriptError::new(ErrorKind::Crashed, format!("the request to the Python runner cannot be written: {error}"))
        })?;
        line.push(b'\n');
        // The semaphore is never closed. Without a permit the script would run beyond the limit, and not wrongly.
        let _permit = self.permits.acquire().await.ok();
        let _running = GaugeGuard::increment(&metrics().scripts_running);
        let mut child = self.take()?;
        // The time of a process, which no clock of a test moves.
        let called = tokio::time::timeout(timeout + GRACE, child.call(&line, &request.limits)).await;
        self.tasks.spawn("python-end", OnPanic::Log, child.end());
        let called = called.unwrap_or_else(|_| {
            let message =
                format!("the script took longer than {} ms; compute less, or raise its timeout", timeout.as_millis());
            Err(ScriptError::new(ErrorKind::Timeout, message))
        });
        if let Some(kind) = called.as_ref().err().and_then(|error| error.kind.death()) {
            metrics().script_death(kind);
        }
        called
    }

    /// Takes a waiting child or starts one, and has another waiting child started.
    fn take(self: &Arc<Self>) -> Result<Child, ScriptError> {
        let waiting = loop {
            let waiting = self.waiting().pop();
            let Some(mut child) = waiting else { break None };
            // One that has ended meanwhile, for example by a lack of memory, is of no use.
            if child.is_running() {
                break Some(child);
            }
        };
        let child = match waiting {
            Some(child) => child,
            None => Child::start(self.runner.program()?)?,
        };
        self.refill();
        Ok(child)
    }

    /// Starts children in the background, until enough wait.
    fn refill(self: &Arc<Self>) {
        if self.warm == 0 || self.filling.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::clone(self);
        self.tasks.spawn("python-children", OnPanic::Log, async move {
            let stop = pool.tasks.stop_token();
            while !stop.is_cancelled() && pool.waiting().len() < pool.warm {
                match pool.runner.program().and_then(Child::start) {
                    Ok(child) => pool.waiting().push(child),
                    // The next script finds the same problem and reports it.
                    Err(error) => {
                        debug!("no Python runner waits: {error}");
                        break;
                    }
                }
                tokio::task::yield_now().await;
            }
            pool.filling.store(false, Ordering::Release);
        });
    }

    /// The process ids of the waiting children.
    pub(crate) fn waiting_pids(&self) -> Vec<u32> {
        self.waiting().iter().filter_map(Child::pid).collect()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Child>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
