//! The benchmark suite (`turnwheel bench …`): how many turns, how quickly, and how far from what the servers could do.
//!
//! One file for each benchmark: [`turns`], [`inflight`], [`timers`], [`sessions`], [`recovery`], [`workflows`], [`stream`]. What they share: [`site`]
//! has the servers (its own ones by [`servers`]) and a fresh [`site::Ground`] for each measurement; [`crew`] runs workers
//! there, as processes of their own where the backend allows it; [`load`] publishes messages and awaits their replies,
//! which [`replies`] sees; [`mod@stored`] writes sessions without turns; [`floor`] takes the workers' place and issues the
//! same commands with no engine between them; [`usage`] reads who took how much processor time; [`figures`] and [`report`] say what came of it, with the
//! [`conditions`] under which it was measured.

mod agent;
mod conditions;
pub mod crew;
mod figures;
mod floor;
pub mod inflight;
mod load;
pub mod options;
mod process;
pub mod recovery;
mod replies;
pub mod report;
mod servers;
pub mod sessions;
mod site;
mod size;
mod stored;
pub mod stream;
pub mod timers;
pub mod turns;
mod usage;
pub mod workflows;

use thiserror::Error;

/// A benchmark that cannot be run, with a remedy.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl Problem {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// Where the suite tells how far it is.
pub trait Progress: Send + Sync {
    /// A line for the next phase.
    fn phase(&self, text: &str);
    /// What the phase has come to; replaced by the next one.
    fn tick(&self, text: &str);
}
