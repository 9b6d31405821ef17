//! TODO

pub mod agent;
pub mod document;
pub mod knowledge;
pub mod workflow;
