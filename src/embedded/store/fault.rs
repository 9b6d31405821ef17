//! The errors of the file, which queue and store share.

use storage::queue::QueueError;
use storage::store::StoreError;
use thiserror::Error;

/// Why an operation on the file failed. Cloneable, because every caller of a failed batch gets it.
#[derive(Clone, Debug, Error)]
pub enum Fault {
    /// The file cannot be read or written.
    #[error("{0}")]
    Storage(String),
    /// A document in the file cannot be decoded.
    #[error("{what} cannot be read: {problem}")]
    Damaged {
        /// The document, as errors name it.
        what: String,
        /// Why it cannot be decoded.
        problem: String,
    },
    /// The file cannot hold the data, or the request is invalid.
    #[error("{0}")]
    Refused(String),
}

macro_rules! storage {
    ($($error:ty),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self::Storage(error.to_string())
            }
        })*
    };
}

storage!(redb::StorageError, redb::TableError, redb::TransactionError, redb::CommitError, redb::SetDurabilityError);

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Storage(problem) => Self::Unavailable(problem),
            Fault::Damaged { what, problem } => Self::Damaged { what, problem },
            Fault::Refused(problem) => Self::Refused(problem),
        }
    }
}

impl From<Fault> for QueueError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Storage(problem) => Self::Unavailable(problem),
            other @ (Fault::Damaged { .. } | Fault::Refused(_)) => Self::Refused(other.to_string()),
        }
    }
}
