//! The errors of the file, which queue and store share.

use base::error::SharedError;
use storage::queue::QueueError;
use storage::store::StoreError;
use thiserror::Error;
use types::format::NewerFormat;

/// Why an operation on the file failed. Cloneable, because every caller of a failed batch gets it.
#[derive(Clone, Debug, Error)]
pub enum FileFault {
    /// The file cannot be read or written.
    #[error("{0}")]
    Storage(#[source] SharedError),
    /// A document in the file cannot be decoded.
    #[error("{what} cannot be read: {source}")]
    Damaged {
        /// The document, as errors name it.
        what: String,
        /// Why it cannot be decoded.
        source: SharedError,
    },
    /// A newer version of the program wrote a document, and only such a version can read it.
    #[error("{what} cannot be read: {source}")]
    Newer {
        /// The document, as errors name it.
        what: String,
        /// The formats of the document and of this version.
        source: NewerFormat,
    },
    /// The file cannot hold the data, or the request is invalid.
    #[error("{0}")]
    Refused(#[source] SharedError),
}

macro_rules! storage {
    ($($error:ty),*) => {
        $(impl From<$error> for FileFault {
            fn from(error: $error) -> Self {
                Self::Storage(error.into())
            }
        })*
    };
}

storage!(redb::StorageError, redb::TableError, redb::TransactionError, redb::CommitError, redb::SetDurabilityError);

impl From<FileFault> for StoreError {
    fn from(fault: FileFault) -> Self {
        match fault {
            FileFault::Storage(problem) => Self::Unavailable(problem),
            FileFault::Damaged { what, source } => Self::Damaged { what, source },
            FileFault::Newer { what, source } => Self::Newer { what, source },
            FileFault::Refused(problem) => Self::Refused(problem),
        }
    }
}

impl From<FileFault> for QueueError {
    fn from(fault: FileFault) -> Self {
        match fault {
            FileFault::Storage(problem) => Self::Unavailable(problem),
            other @ (FileFault::Damaged { .. } | FileFault::Newer { .. } | FileFault::Refused(_)) => {
                Self::Refused(other.into())
            }
        }
    }
}
