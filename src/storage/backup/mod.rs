//! The file that a backup is: a tar archive, which other programs can open as well.
//!
//! Its last entry is the [`Manifest`], with the size and the checksum of every other entry. So a file that was cut off
//! is recognised, and so is one with a damaged entry. [`writer`] writes the file, [`reader`] checks and reads it.
//! [`FileCopy`] is the copy of the embedded file that a backup contains.

mod file_copy;
pub mod reader;
pub mod writer;

pub use file_copy::FileCopy;
pub use reader::Archive;
pub use writer::ArchiveWriter;

use base::error::SharedError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use thiserror::Error;
use types::timestamp::Timestamp;

/// The name of the manifest in the archive.
pub const MANIFEST: &str = "manifest.json";
/// The version of the archive's form that this program writes. It reads this one and earlier ones.
pub const FORMAT: u32 = 1;
/// The name of the embedded file in the archive.
pub const EMBEDDED_FILE: &str = "turnwheel.redb";

/// The backend that a backup was made of. It can be restored only to the same backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The file of `turnwheel dev`.
    Embedded,
    /// NATS and MongoDB.
    Cluster,
}

impl Source {
    /// The name in the manifest.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Cluster => "cluster",
        }
    }
}

/// The description of a backup and of its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the archive's form.
    pub format: u32,
    /// The version of the program that wrote it.
    pub version: String,
    /// The backend.
    pub backend: Source,
    /// The namespace; of an embedded file, it has no meaning.
    pub namespace: String,
    /// The layout of the embedded file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<u64>,
    /// When the backup began. All that was accepted before is in it.
    pub started_at: Timestamp,
    /// When it was complete.
    pub completed_at: Timestamp,
    /// The streams of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamPositions>,
    /// The number of documents or messages, by collection or stream.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// The other entries, in the order of the archive.
    #[serde(default)]
    pub entries: Vec<Entry>,
}

impl Manifest {
    /// The manifest of a backup that begins now, without its entries.
    pub fn begin(backend: Source, namespace: &str, layout: Option<u64>) -> Self {
        let now = base::clock::now();
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backend,
            namespace: namespace.to_owned(),
            layout,
            started_at: now,
            completed_at: now,
            streams: None,
            counts: BTreeMap::new(),
            entries: Vec::new(),
        }
    }

    /// The size of all entries in bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }
}

/// Where the streams stood at the time of the backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPositions {
    /// The creation time of the stream of jobs, in which sequences of jobs and sessions count.
    pub jobs_created_at: Timestamp,
    /// The last sequence of the stream of events.
    pub out_last_seq: u64,
    /// The last sequence of the stream of dead letters.
    pub dead_last_seq: u64,
}

/// An entry of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its path in the archive.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its checksum in hexadecimal digits.
    pub sha256: String,
}

/// Why a backup cannot be made, read or restored.
#[derive(Debug, Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The archive is none, or it is cut off or damaged.
    #[error("{path} is not a complete backup: {problem}")]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// It cannot be done as things are.
    #[error("{problem}")]
    Refused {
        /// Why not.
        problem: String,
        /// The remedy.
        hint: String,
    },
    /// A request to a backend failed.
    #[error("{what}: {source}")]
    Backend {
        /// The request.
        what: String,
        /// The error of the backend.
        source: SharedError,
    },
    /// Queue or store returned an error.
    #[error("{0}")]
    Servers(#[source] SharedError),
}

impl BackupError {
    /// Creates [`Self::File`].
    pub fn file(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }

    /// Creates [`Self::Refused`].
    pub fn refused(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), hint: hint.into() }
    }

    /// Creates [`Self::Backend`]; `what` names the request.
    pub fn backend(what: impl Into<String>, source: impl Into<SharedError>) -> Self {
        Self::Backend { what: what.into(), source: source.into() }
    }

    /// Creates [`Self::Servers`].
    pub fn servers(error: impl Into<SharedError>) -> Self {
        Self::Servers(error.into())
    }

    /// The remedy.
    pub fn hint(&self) -> String {
        match self {
            Self::File { .. } => "check that the folder exists, may be written and has room".to_owned(),
            Self::Damaged { .. } => "take another backup; a copy over a network may have been cut off".to_owned(),
            Self::Refused { hint, .. } => hint.clone(),
            Self::Backend { .. } | Self::Servers(_) => {
                "check NATS and MongoDB with `turnwheel doctor`, then repeat the command".to_owned()
            }
        }
    }
}

/// The result of a step of a backup.
pub type Result<T> = std::result::Result<T, BackupError>;
