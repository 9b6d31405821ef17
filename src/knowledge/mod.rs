//! What an agent answers from: its files, cut into passages, found by their words (E-20, OP-E20).
//!
//! A file's way: [`files`] reads what an agent's `knowledge.files` name, [`passages`] cuts it, [`source`] is what the store
//! keeps of it. In a process that searches, [`library`] holds an [`index`] for each agent and builds it anew when the store's
//! sources differ; [`words`] says what a word is, in Chinese and in English.
//!
//! The store has the passages, since the processes of a cluster have no files in common. The index is in memory alone: it is
//! built from the store in seconds, so that nothing has to be kept in step on disks that a worker may not even have.

pub mod files;
pub mod index;
pub mod library;
mod passages;
pub mod source;
mod words;

pub use index::Hit;
pub use library::Library;
pub use source::{Origin, Passage, Source, SourceEntry};

pub(crate) use passages::sentences;
pub(crate) use words::terms;

use thiserror::Error;

/// The most bytes of one source's text.
pub const MAX_TEXT: usize = 1024 * 1024;
/// The most passages of one source, which MongoDB keeps in one document.
pub const MAX_PASSAGES: usize = 10_000;
/// The most bytes of a source's name.
pub const MAX_NAME: usize = 512;

/// Why a text cannot be a source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// The name cannot be one.
    #[error("the name of a source has 1 to {MAX_NAME} bytes and no control characters")]
    Name,
    /// There is nothing in it.
    #[error("it has no text")]
    Empty,
    /// Larger than a source may be.
    #[error("it has {0} bytes; a source has at most {MAX_TEXT}: split it into several files")]
    TooLarge(u64),
    /// More than a source may have.
    #[error("it makes {0} passages; a source has at most {MAX_PASSAGES}: split it into several files")]
    TooMany(usize),
    /// Neither Markdown nor text.
    #[error("it is neither Markdown nor text: its name has to end in .md, .markdown or .txt")]
    Kind,
    /// Not UTF-8.
    #[error("it is not UTF-8 (byte {0}); save it as UTF-8")]
    Encoding(usize),
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Read(String),
}
