//! What an agent answers from: its files, cut into passages, found by their words (E-20, OP-E20).
//!
//! A file's way: [`files`] reads what an agent's `knowledge.files` name, [`passages`] cuts it, [`source`] is what the store
//! keeps of it. In a process that searches, [`library`] holds an [`index`] for each agent and builds it anew when the store's
//! sources differ; [`words`] says what a word is, in Chinese and in English.
//!
//! The store has the passages, since the processes of a cluster have no files in common. The index is in memory alone: it is
//! built from the store in seconds, so that nothing has to be kept in step on disks that a worker may not even have.

pub mod index;
pub mod library;
pub mod sync;
mod words;

pub use index::Hit;
pub use library::Library;

pub(crate) use words::terms;
