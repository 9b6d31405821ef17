//! TODO

pub mod files;
pub mod passages;
pub mod source;
