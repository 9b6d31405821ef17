//! The reasons for which a step has no result.

use storage::store::StoreError;
use thiserror::Error;

/// The journal could not run, record or replay a step.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The step is recorded with another input: the code, or the data that it reads, changed while the turn was in
    /// flight.
    #[error(
        "step `{key}` of turn `{turn_id}` is recorded with another input (hash {recorded}) than it has now (hash {asked})"
    )]
    Mismatch {
        /// Id of the turn.
        turn_id: String,
        /// Key of the step.
        key: String,
        /// Hash of the recorded input.
        recorded: String,
        /// Hash of the current input.
        asked: String,
    },
    /// While the step ran, another worker recorded it with another input. That worker held the lease before, or holds
    /// it now.
    #[error("step `{key}` of turn `{turn_id}` was recorded by another worker with another input")]
    Overtaken {
        /// Id of the turn.
        turn_id: String,
        /// Key of the step.
        key: String,
    },
    /// The recorded output does not fit the code that reads it.
    #[error("the recorded output of step `{key}` of turn `{turn_id}` cannot be read: {source}")]
    Unreadable {
        /// Id of the turn.
        turn_id: String,
        /// Key of the step.
        key: String,
        /// The error of the deserialisation.
        source: serde_json::Error,
    },
    /// Another worker has taken the lane. The step was not started.
    #[error("the lane was taken over")]
    Lost,
    /// An earlier write of this attempt failed, and its outcome is unknown. No further step starts in this attempt.
    #[error("journal halted: an earlier write failed, so this attempt starts no further steps")]
    Halted,
    /// An operator has cancelled the turn. No further step starts, and the running operation was aborted.
    #[error("the turn is cancelled")]
    Cancelled,
    /// The store failed to record the step.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason for which a step has no result: the journal, or the operation itself.
#[derive(Debug, Error)]
pub enum StepError<E> {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The operation failed, and nothing was recorded.
    #[error("{0}")]
    Operation(E),
}
