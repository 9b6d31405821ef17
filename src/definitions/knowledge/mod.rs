//! Knowledge: the texts that an agent answers from. [`files`] reads the files that an agent names, [`source`] is a text
//! as the store keeps it, and [`passages`] splits a text into the passages that a search returns.

pub mod files;
pub mod passages;
pub mod source;
