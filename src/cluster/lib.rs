//! TODO

pub mod mongo;
pub mod nats;
