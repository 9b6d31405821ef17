//! The failure state of a file that cannot be read or written.

use super::fault::FileFault;
use base::error::SharedError;
use base::tasks::Tasks;
use std::path::Path;
use std::sync::OnceLock;
use tracing::error;

/// The first failure of the file. After it the file is not touched any further, and the process ends.
pub(super) struct FirstFailure {
    path: String,
    problem: OnceLock<SharedError>,
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

    pub(super) fn get(&self) -> Option<&SharedError> {
        self.problem.get()
    }

    /// Records a failure. Returns the fault of the first failure.
    fn set(&self, problem: SharedError) -> FileFault {
        let mut new = false;
        let problem = self.problem.get_or_init(|| {
            new = true;
            problem
        });
        match self.ends.get() {
            Some(tasks) if new => tasks.fail(problem.to_string()),
            None if new => error!("{problem}"),
            _ => {}
        }
        FileFault::Storage(problem.clone())
    }

    /// Records that the file cannot be read or written.
    pub(super) fn record_failure(&self, what: &str, fault: &FileFault) -> FileFault {
        let Self { path, .. } = self;
        let problem =
            format!("{path} cannot be {what} ({fault}); make sure that its disk has space and works, then restart");
        self.set(SharedError::explained(problem, fault.clone()))
    }
}
