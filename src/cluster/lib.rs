//! The backends of a cluster: the queue on NATS JetStream ([`nats`]) and the store on MongoDB ([`mongo`]).

pub mod mongo;
pub mod nats;
