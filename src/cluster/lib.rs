//! The backends of a cluster: the queue on NATS JetStream ([`nats`]) and the store on MongoDB ([`mongo`]).
//! [`backup`] saves and restores both.

pub mod backup;
pub mod mongo;
pub mod nats;
