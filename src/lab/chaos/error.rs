//! Why there is no verdict.

use super::faults::Fault;
use std::fmt::Display;
use std::path::PathBuf;
use thiserror::Error;

/// Why a run could not be carried out; a broken promise is a verdict, not an error.
#[derive(Debug, Error)]
pub enum ChaosError {
    /// A server's program is not there.
    #[error("there is no `{program}`; looked for it {looked}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// Where it was looked for.
        looked: String,
    },
    /// A process does not start, or does not answer.
    #[error("{name} does not start: {problem}{}", log_text(.log))]
    Start {
        /// Its name.
        name: String,
        /// Why not.
        problem: String,
        /// The last lines of its log.
        log: String,
    },
    /// A fault of that name is not known.
    #[error("there is no fault `{0}`; they are: {1}")]
    UnknownFault(String, String),
    /// A fault that needs a cluster of NATS.
    #[error("the fault `{0}` needs several NATS servers")]
    NeedsReplicas(Fault),
    /// Something else that the run needs.
    #[error("{what}: {problem}")]
    Failed {
        /// What was tried.
        what: String,
        /// Why it failed.
        problem: String,
    },
    /// It was told to stop.
    #[error("stopped before the end; there is no verdict")]
    Stopped,
}

impl ChaosError {
    pub(super) fn failed(what: impl Into<String>, problem: impl Display) -> Self {
        Self::Failed { what: what.into(), problem: problem.to_string() }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "install it, or name it with --nats-server or --mongod (or NATS_SERVER_BIN, MONGOD_BIN); in the source \
                 tree, `tests/run` puts both into target/servers"
            }
            Self::Start { .. } => "does the program run on this machine by itself? Its log is above",
            Self::NeedsReplicas(_) => "add --replicas 3",
            Self::UnknownFault(..) | Self::Stopped => "",
            Self::Failed { .. } => {
                "is the machine out of memory, ports or disk? --keep keeps the logs of all processes"
            }
        }
    }
}

fn log_text(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}

/// A file that cannot be made or written.
pub(super) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> ChaosError {
    let path = PathBuf::from(path);
    move |error| ChaosError::failed(format!("cannot write {}", path.display()), error)
}
