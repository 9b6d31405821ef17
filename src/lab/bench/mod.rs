//! The benchmark suite (`turnwheel bench …`): throughput, latency and memory, and how close they come to the limit of
//! the servers.
//!
//! Shared parts, in the order of a measurement:
//! - [`options`]: the command line's options of each benchmark;
//! - [`test_cluster`]: the servers (started by [`servers`] as a [`process`] each, unless the options name existing
//!   ones) and a fresh [`test_cluster::TestNamespace`] for each measurement;
//! - [`agent`], [`member`] and [`workers`]: the agent, and the workers and schedulers that run its turns, each a
//!   process;
//! - [`load`] and [`replies`]: publish messages, and watch for their replies;
//! - [`consoles`]: read the events of all sessions meanwhile, as open consoles do;
//! - [`runs`]: start runs of a workflow, and wait for their ends;
//! - [`mod@stored`] and [`size`]: write sessions without turns, and measure the data on disk;
//! - [`baseline`]: replaces the workers and issues the same commands without the engine;
//! - [`usage`], [`figures`], [`report`] and [`conditions`]: processor time, percentiles, the table or JSON, and the
//!   conditions of the measurement.
//!
//! Benchmarks, one file each: [`turns`], [`inflight`], [`timers`], [`sessions`], [`recovery`], [`workflows`],
//! [`graph`], [`stream`], [`python`], [`authoring`].

mod agent;
pub mod authoring;
mod baseline;
mod conditions;
mod consoles;
mod figures;
pub mod graph;
pub mod inflight;
mod load;
pub mod member;
pub mod options;
mod process;
pub mod python;
pub mod recovery;
mod replies;
pub mod report;
mod runs;
mod servers;
pub mod sessions;
mod size;
mod stored;
pub mod stream;
mod test_cluster;
pub mod timers;
pub mod turns;
mod usage;
mod workers;
pub mod workflows;

use thiserror::Error;

/// The reason why a benchmark cannot run, with a remedy.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct Problem {
    /// The reason.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

impl Problem {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// Receives the progress of a benchmark.
pub trait Progress: Send + Sync {
    /// Begins a phase.
    fn phase(&self, text: &str);
    /// Reports the state of the current phase. Each call replaces the previous text.
    fn tick(&self, text: &str);
}
