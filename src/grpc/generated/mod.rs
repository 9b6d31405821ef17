//! Code and descriptors made from `proto/workflow_agent.proto`. A test makes them again and compares.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used, clippy::expect_used)]

#[rustfmt::skip]
pub mod workflow_agent;

/// The file descriptor set, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("workflow_agent.fds");
