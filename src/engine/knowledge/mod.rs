//! Search in the knowledge of agents: passages of text files, found by their words.
//!
//! - [`sync`] stores the files of an agent as sources. They are read and split into passages in
//!   [`definitions::knowledge`].
//! - [`library`] holds an [`index`] for each agent in each process that searches, and rebuilds it when the sources in
//!   the store change.
//! - `words` splits Chinese and English text into words.
//!
//! The store has the passages, because the processes of a cluster share no files. The index is only in memory: it is
//! built from the store within seconds, so no files have to be kept in sync on the workers' disks.

pub mod index;
pub mod library;
pub mod sync;
pub(crate) mod words;

pub use index::Hit;
pub use library::Library;

pub(crate) use words::terms;
