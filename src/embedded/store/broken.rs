//! The end of a file that cannot be read or written.

use super::fault::Fault;
use base::tasks::Tasks;
use std::path::Path;
use std::sync::OnceLock;
use tracing::error;

/// What is wrong with the file, once something is: it is not touched any more, and the process ends.
pub(super) struct Broken {
    path: String,
    problem: OnceLock<String>,
    /// The tasks of the process.
    ends: OnceLock<Tasks>,
}

impl Broken {
    /// Nothing yet.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.display().to_string(), problem: OnceLock::new(), ends: OnceLock::new() }
    }

    /// From now on a problem ends these tasks. A file has one process.
    pub(super) fn ends(&self, tasks: &Tasks) {
        let _ = self.ends.set(tasks.clone());
    }

    pub(super) fn get(&self) -> Option<&String> {
        self.problem.get()
    }

    /// Answers the problem that was the first.
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

    /// The file cannot be read, or written.
    pub(super) fn cannot(&self, what: &str, fault: &Fault) -> Fault {
        let Self { path, .. } = self;
        self.set(format!(
            "{path} cannot be {what} ({fault}); make sure that its disk has space and works, then restart"
        ))
    }
}
