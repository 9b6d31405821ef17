//! Errors of opening the file.

use super::tables::LAYOUT;
use base::error::SharedError;
use redb::DatabaseError;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why the file cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the file open.
    #[error("{0} is open in another process, probably a running `turnwheel dev`; stop it, or set another `data_dir`")]
    InUse(PathBuf),
    /// The folder of the file cannot be created.
    #[error("the folder of {path} cannot be created: {source}; make it writable, or set another `data_dir`")]
    Folder {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Only a newer version can use the file.
    #[error(
        "{path} was written by a newer version of turnwheel: its tables have layout {found}, and this version knows \
         layouts up to {LAYOUT}; use the newer version, restore the backup or the copy from before its upgrade, or set \
         another `data_dir`"
    )]
    Layout {
        /// The path of the file.
        path: PathBuf,
        /// The layout of the file.
        found: u64,
    },
    /// The file is no database, or it cannot be read or written.
    #[error("{path} cannot be opened: {source}; restore it from a backup, or set another `data_dir`")]
    Unusable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the storage or the operating system.
        source: SharedError,
    },
}

impl OpenError {
    /// Creates [`Self::Unusable`].
    pub(super) fn unusable(path: &Path, source: impl Into<SharedError>) -> Self {
        Self::Unusable { path: path.to_owned(), source: source.into() }
    }

    /// Converts the error with which a database could not be opened.
    pub(super) fn from_database(path: &Path, error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse(path.to_owned()),
            other => Self::unusable(path, other),
        }
    }
}
