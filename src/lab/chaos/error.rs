//! Errors of a run that ends without a verdict.

use super::faults::Fault;
use crate::port::NoFreePort;
use base::error::SharedError;
use std::path::PathBuf;
use thiserror::Error;

/// The reason why a run has no verdict. A broken promise is not an error, but part of the verdict.
#[derive(Debug, Error)]
pub enum ChaosError {
    /// The program of a server was not found.
    #[error("`{program}` not found {looked}")]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// Where the run looked for it.
        looked: String,
    },
    /// A process did not start or did not become ready.
    #[error("{name} failed to start: {source}{}", log_text(.log))]
    Start {
        /// Name of the process.
        name: String,
        /// The reason.
        source: SharedError,
        /// The last lines of its log.
        log: String,
    },
    /// There is no fault with this name.
    #[error("unknown fault `{0}`; known faults: {1}")]
    UnknownFault(String, String),
    /// The fault needs a cluster of NATS servers.
    #[error("fault `{0}` needs several NATS servers")]
    NeedsReplicas(Fault),
    /// There is no port for a process.
    #[error(transparent)]
    NoFreePort(#[from] NoFreePort),
    /// Another step of the run failed.
    #[error("{what}: {source}")]
    Failed {
        /// The step that failed.
        what: String,
        /// The reason.
        source: SharedError,
    },
    /// The caller stopped the run.
    #[error("stopped before the end, so there is no verdict")]
    Stopped,
}

impl ChaosError {
    pub(super) fn failed(what: impl Into<String>, source: impl Into<SharedError>) -> Self {
        Self::Failed { what: what.into(), source: source.into() }
    }

    /// What the user can do about it; empty if nothing.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "install it, or set its path with --nats-server or --mongod (or NATS_SERVER_BIN, MONGOD_BIN); in the source \
                 tree, `tests/run` downloads both to target/servers"
            }
            Self::Start { .. } => {
                "check whether the program runs on this machine by itself; the end of its log is above"
            }
            Self::NeedsReplicas(_) => "add --replicas 3",
            Self::UnknownFault(..) | Self::Stopped => "",
            Self::NoFreePort(_) | Self::Failed { .. } => {
                "check the machine's memory, ports and disk; --keep keeps the logs of all processes"
            }
        }
    }
}

fn log_text(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}

/// Converts the error of creating or writing a file.
pub(super) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> ChaosError {
    let path = PathBuf::from(path);
    move |error| ChaosError::failed(format!("cannot write {}", path.display()), error)
}
