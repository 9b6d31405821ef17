//! The error of a node, with its code.

use super::trouble::Trouble;
use crate::journal::JournalError;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::StageContext;
use serde::{Deserialize, Serialize};
use types::run_outcome::RunFailure;

/// The longest message of a node's failure in bytes.
pub(super) const MAX_MESSAGE: usize = 8 * 1024;

/// A recorded failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::workflow) struct NodeFailure {
    /// The error code, such as `TIMEOUT` or `HTTP_503`.
    pub(in crate::workflow) code: String,
    /// What failed and how to correct it.
    pub(in crate::workflow) message: String,
    /// True if another attempt may succeed.
    pub(in crate::workflow) transient: bool,
    /// True if neither another attempt nor a recovery can help, because a limit of the run is exceeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::workflow) fatal: bool,
}

/// Why a node has no output.
#[derive(Debug)]
pub(in crate::workflow) enum NodeError {
    /// The journal failed. The run is repeated, cancelled or abandoned.
    Journal(JournalError),
    /// The node itself failed.
    Failed(NodeFailure),
    /// Nodes in the body of a LOOP need a replan of the graph.
    Troubled(Vec<Trouble>),
}

impl NodeFailure {
    /// A failure that another attempt would repeat.
    pub(super) fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        let message = base::http_client::bounded(&message.into(), MAX_MESSAGE);
        Self { code: code.into(), message, transient: false, fatal: false }
    }

    /// A failure after which another attempt may succeed.
    pub(super) fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { transient: true, ..Self::permanent(code, message) }
    }

    /// A failure for which the whole run fails.
    pub(super) fn fatal(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { fatal: true, ..Self::permanent(code, message) }
    }

    /// The failure of a run, at the place of the node.
    pub(super) fn of_run(&self, context: &StageContext, attempts: u32) -> Failure {
        let cause = format!("{}: {}", self.code, self.message);
        let failure = RunFailure { path: context.path().to_owned(), cause, attempts };
        Failure::Failed { failure, fatal: self.fatal }
    }
}

impl NodeError {
    /// The failure of a run that cannot continue after this error, at the place of the node.
    pub(super) fn into_failure(self, context: &StageContext, attempts: u32) -> Failure {
        match self {
            Self::Journal(error) => Failure::Journal(error),
            Self::Failed(failure) => failure.of_run(context, attempts),
            Self::Troubled(troubles) => match troubles.into_iter().next() {
                Some(trouble) => trouble.failure.of_run(context, attempts),
                None => Failure::fatal(context, "the node needs a replan"),
            },
        }
    }

    /// The error of a node whose part of the run failed, such as a RUNNABLE's workflow. A fatal failure there is one of
    /// the whole run.
    pub(super) fn of_part(code: &str, failure: Failure) -> Self {
        match failure {
            Failure::Journal(error) => Self::Journal(error),
            Failure::Failed { failure, fatal } => {
                Self::Failed(NodeFailure { fatal, ..NodeFailure::transient(code, failure.to_string()) })
            }
        }
    }
}

impl From<JournalError> for NodeError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl From<NodeFailure> for NodeError {
    fn from(failure: NodeFailure) -> Self {
        Self::Failed(failure)
    }
}
