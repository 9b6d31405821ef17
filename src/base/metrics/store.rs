//! Metrics of commands to MongoDB: their durations, and the age of the oldest command in flight.

use super::{observe, seconds};
use prometheus::{Histogram, Registry};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Durations of commands to MongoDB, and the commands in flight.
pub struct StoreCommands {
    seconds: Histogram,
    /// Start of each command in flight. The number distinguishes commands that start at the same instant.
    in_flight: Mutex<(u64, BTreeSet<(Instant, u64)>)>,
}

/// Counts a command as in flight until it is dropped.
pub struct InFlight<'m> {
    commands: &'m StoreCommands,
    begun: (Instant, u64),
}

impl StoreCommands {
    pub(super) fn new(registry: &Registry) -> Self {
        let help = "Duration of a command to MongoDB.";
        Self { seconds: seconds(registry, "turnwheel_store_command_seconds", help), in_flight: Mutex::default() }
    }

    /// Counts a command as sent. Dropping the result records its duration.
    pub fn start(&self) -> InFlight<'_> {
        let mut in_flight = self.lock();
        in_flight.0 += 1;
        let begun = (Instant::now(), in_flight.0);
        in_flight.1.insert(begun);
        InFlight { commands: self, begun }
    }

    /// The age of the oldest command in flight; zero if no command is in flight.
    pub fn oldest(&self) -> Duration {
        self.lock().1.first().map_or(Duration::ZERO, |(begun, _)| begun.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeSet<(Instant, u64)>)> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.commands.lock().1.remove(&self.begun);
        observe(&self.commands.seconds, self.begun.0.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_command_counts_until_it_ends() {
        let commands = StoreCommands::new(&Registry::new());
        assert_eq!(commands.oldest(), Duration::ZERO);
        let (first, second) = (commands.start(), commands.start());
        assert!(commands.oldest() >= second.begun.0.elapsed());
        drop(first);
        assert!(commands.oldest() <= second.begun.0.elapsed());
        drop(second);
        assert_eq!((commands.oldest(), commands.seconds.get_sample_count()), (Duration::ZERO, 2));
    }
}
