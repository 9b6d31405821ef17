//! The error of a part of a run.

use super::stage_context::StageContext;
use crate::journal::{JournalError, StepError};
use crate::model::ModelError;
use std::fmt::Display;
use types::run_outcome::RunFailure;

/// Why a part of a run has no output.
#[derive(Debug)]
pub enum Failure {
    /// The journal failed. The turn is repeated, cancelled or abandoned.
    Journal(JournalError),
    /// The part itself failed.
    Failed {
        /// Place, cause and number of attempts.
        failure: RunFailure,
        /// True if a retry cannot help, because a limit of the run is exceeded or a budget is spent, for example.
        fatal: bool,
    },
}

impl Failure {
    /// A failure in `context` that may be retried.
    pub(crate) fn retryable(context: &StageContext, cause: impl Display) -> Self {
        Self::Failed { failure: failure(context, &cause), fatal: false }
    }

    /// A failure in `context` that must not be retried.
    pub fn fatal(context: &StageContext, cause: impl Display) -> Self {
        Self::Failed { failure: failure(context, &cause), fatal: true }
    }

    /// Converts the error of a step that called a model.
    pub(crate) fn from_model_error(context: &StageContext, error: StepError<ModelError>) -> Self {
        match error {
            StepError::Journal(error) => Self::Journal(error),
            StepError::Operation(error @ (ModelError::Unknown(_) | ModelError::Spent { .. })) => {
                Self::fatal(context, error)
            }
            StepError::Operation(error) => Self::retryable(context, error),
        }
    }
}

fn failure(context: &StageContext, cause: &dyn Display) -> RunFailure {
    RunFailure { path: context.path().to_owned(), cause: cause.to_string(), attempts: 1 }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}
