//! The failure state of a file that cannot be read or written.

use super::fault::Fault;
use base::tasks::Tasks;
use std::path::Path;
use std::sync::OnceLock;
use tracing::error;

/// The first failure of the file. After it the file is not touched any further, and the process ends.
pub(super) struct FirstFailure {
    path: String,
    problem: OnceLock<String>,
    /// The tasks of the process, which a failure ends.
    ends: OnceLock<Tasks>,
}

impl FirstFailure {
    /// The state of a file without a failure.
    pub(super) fn from_path(path: &Path) -> Self {
        Self { path: path.display().to_string(), problem: OnceLock::new(), ends: OnceLock::new() }
    }

    /// Makes a failure end these tasks. A file belongs to one process.
    pub(super) fn stop_on_failure(&self, tasks: &Tasks) {
        let _ = self.ends.set(tasks.clone());
    }

    pub(super) fn get(&self) -> Option<&String> {
        self.problem.get()
    }

    /// Records a failure. Returns the fault of the first failure.
    fn set(&self, problem: String) -> Fault {
        let mut new = false;
        let problem = self.problem.get_or_init(|| {
            new = true;
            problem
        });
        match self.ends.get() {
            Some(tasks) if new => tasks.fail(problem.clone()),
            None if new => error!("{problem}"),
            _ => {}
        }
        Fault::Storage(problem.clone())
    }

    /// Records that the file cannot be read or written.
    pub(super) fn record_failure(&self, what: &str, fault: &Fault) -> Fault {
        let Self { path, .. } = self;
        self.set(format!(
            "{path} cannot be {what} ({fault}); make sure that its disk has space and works, then restart"
        ))
    }
}
