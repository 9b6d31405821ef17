//! Benchmarks, chaos runs and demonstration of Turnwheel.
//!
//! - [`demo`]: the order-support conversation of `turnwheel demo`;
//! - [`mod@bench`]: `turnwheel bench …`, throughput, latency and memory, compared with the limit of the servers;
//! - [`chaos`]: `turnwheel chaos`, conversations while processes are killed and servers fail;
//! - [`invariants`]: the guarantees that a chaos run checks, as functions over recorded data;
//! - [`port`]: free ports for the servers of all of them.

pub mod bench;
pub mod chaos;
pub mod demo;
pub mod invariants;
pub mod port;
