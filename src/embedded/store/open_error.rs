//! Errors of opening the file.

use super::tables::LAYOUT;
use base::error::SharedError;
use std::path::PathBuf;
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
    /// The tables of the file have another layout.
    #[error(
        "{path} was written by another version of turnwheel: its tables have layout {found}, \
         and this version needs layout {LAYOUT}; use that version, or set another `data_dir`"
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
