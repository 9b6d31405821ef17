//! Why the file cannot be opened.

use super::tables::LAYOUT;
use std::path::PathBuf;
use thiserror::Error;

/// Why the file cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "{0} is open in another process, probably a running `turnwheel dev`; stop that one, or give this one another `data_dir`"
    )]
    InUse(PathBuf),
    /// Its folder cannot be made.
    #[error("the folder of {path} cannot be made: {problem}; make it writable or give another `data_dir`")]
    Folder {
        /// The file.
        path: PathBuf,
        /// What happened.
        problem: std::io::Error,
    },
    /// Its tables are laid out in another way.
    #[error(
        "{path} was written by another version of turnwheel: its tables have layout {found}, and this version knows {LAYOUT}; use that version, or give another `data_dir`"
    )]
    Layout {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: u64,
    },
    /// It is no such file, or cannot be read or written.
    #[error("{path} cannot be opened: {problem}; restore it from a backup or give another `data_dir`")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What happened.
        problem: String,
    },
}
