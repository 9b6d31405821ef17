//! The reason for which a part of a turn has no result.

use crate::execution::{CancelReason, TurnError};

/// Why a part of a turn has no result.
pub(super) enum Interruption {
    /// The turn must be cancelled.
    Cancel(CancelReason),
    /// The turn has no change to commit.
    Turn(TurnError),
}

impl From<CancelReason> for Interruption {
    fn from(reason: CancelReason) -> Self {
        Self::Cancel(reason)
    }
}

impl<E: Into<TurnError>> From<E> for Interruption {
    fn from(error: E) -> Self {
        Self::Turn(error.into())
    }
}
