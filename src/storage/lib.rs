//! TODO

pub mod queue;
pub mod store;
