//! Why a step has no result.

use storage::store::StoreError;
use thiserror::Error;

/// Why the journal could not record or repeat a step.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The recorded step was asked something else: the code, or what it reads, changed under a turn in hand.
    #[error(
        "step `{key}` of turn `{turn_id}` was recorded for another input ({recorded}) than it is now asked ({asked})"
    )]
    Mismatch {
        /// The turn.
        turn_id: String,
        /// The step.
        key: String,
        /// Hash of the recorded input.
        recorded: String,
        /// Hash of the input now.
        asked: String,
    },
    /// While the step ran, it was recorded for another input: by a worker that had the turn before, or has it by now.
    #[error("step `{key}` of turn `{turn_id}` was recorded by another worker, for another input")]
    Overtaken {
        /// The turn.
        turn_id: String,
        /// The step.
        key: String,
    },
    /// The recorded output does not fit the code that reads it.
    #[error("the recorded output of step `{key}` of turn `{turn_id}` cannot be read: {problem}")]
    Unreadable {
        /// The turn.
        turn_id: String,
        /// The step.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// The lane is somebody else's by now: nothing was begun.
    #[error("the lane was taken over")]
    Lost,
    /// The run cannot go on now: nothing more of it is begun.
    #[error("nothing more is begun, since what was done cannot be told")]
    Halted,
    /// An operator has cancelled the turn: nothing more of it is begun, and what ran is broken off.
    #[error("the turn is cancelled")]
    Cancelled,
    /// The store did not record it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a step has no result.
#[derive(Debug, Error)]
pub enum StepError<E> {
    /// The journal's fault.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The operation failed, and nothing was recorded.
    #[error("{0}")]
    Operation(E),
}
