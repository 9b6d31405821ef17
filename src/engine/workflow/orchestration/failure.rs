//! Why a part of a run has no output.

use super::part::Part;
use crate::journal::{JournalError, StepError};
use crate::model::ModelError;
use std::fmt::Display;
use types::run_outcome::RunFailure;

/// See the module.
#[derive(Debug)]
pub enum Failure {
    /// The journal's fault: the run is repeated, cancelled or given up as a turn is.
    Journal(JournalError),
    /// The part's own.
    Failed {
        /// Where, why, and how often it was tried.
        failure: RunFailure,
        /// Trying again is of no use: a limit of the run is reached, or a budget is spent.
        fatal: bool,
    },
}

impl Failure {
    /// What went wrong in `part`; the stage may be tried again.
    pub fn of(part: &Part, cause: impl Display) -> Self {
        Self::Failed { failure: failure(part, &cause), fatal: false }
    }

    /// What went wrong in `part`; nothing is tried again.
    pub fn fatal(part: &Part, cause: impl Display) -> Self {
        Self::Failed { failure: failure(part, &cause), fatal: true }
    }

    /// Of a step that asked a model.
    pub fn of_model(part: &Part, error: StepError<ModelError>) -> Self {
        match error {
            StepError::Journal(error) => Self::Journal(error),
            StepError::Operation(error @ (ModelError::Unknown(_) | ModelError::Spent { .. })) => {
                Self::fatal(part, error)
            }
            StepError::Operation(error) => Self::of(part, error),
        }
    }
}

fn failure(part: &Part, cause: &dyn Display) -> RunFailure {
    RunFailure { path: part.path().to_owned(), cause: cause.to_string(), attempts: 1 }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}
