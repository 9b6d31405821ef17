//! TODO

pub mod bench;
pub mod chaos;
pub mod demo;
pub mod invariants;
