//! TODO

pub mod agents;
pub mod crew;
pub mod dead_letters;
pub mod doctor;
pub mod enqueue;
pub mod error;
pub mod knowledge;
pub mod messages;
pub mod models;
pub mod operator;
pub mod run_details;
pub mod runs;
pub mod sessions;
pub mod timers;
pub mod workflows;
