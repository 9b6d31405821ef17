//! Why the file did not do it, for both the queue and the store.

use storage::queue::QueueError;
use storage::store::StoreError;
use thiserror::Error;

/// Why the file did not do it. Cloned, because everybody in a failed batch is told.
#[derive(Clone, Debug, Error)]
pub enum Fault {
    /// The file cannot be read or written.
    #[error("{0}")]
    Storage(String),
    /// A document in it cannot be read.
    #[error("{what} cannot be read: {problem}")]
    Damaged {
        /// The document.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The call cannot be carried out.
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
