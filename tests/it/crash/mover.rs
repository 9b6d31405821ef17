//! Moves the clock of a run while all of its processes are idle.
//!
//! Leases are much longer than the delays of a slow machine, and no test waits for their end: after a crash the clock is moved
//! by a whole lease, and by a [`STEP`] when all processes are idle. The next step follows after each process has noticed the
//! last one and is idle again. A process that has a lease to renew has renewed it by then, however slow the machine is.

use super::process::Process;
use base::clock::Clock;
use std::sync::Mutex;
use std::time::Duration;

/// The length of leases and of the wait for an acknowledgement.
pub const LEASE: Duration = Duration::from_secs(18);
/// The interval of renewals; shorter than the scheduler's leadership.
const STEP: Duration = Duration::from_secs(3);

/// Moves the clock of one run.
pub struct Mover {
    clock: Clock,
    known: Mutex<Known>,
}

/// Counts of each process, with its number.
#[derive(Default)]
struct Known {
    /// Its calls up to the last look, when all processes were idle.
    calls: Vec<(usize, usize)>,
    /// How often it had become idle by the last step.
    moved: Vec<(usize, usize)>,
}

impl Mover {
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: Mutex::default() }
    }

    /// True when all processes are idle. Moves the clock by a step when none has made a call since the last look.
    pub fn look(&self, processes: &[Process]) -> bool {
        let running = processes.iter().enumerate().filter(|(_, process)| process.is_running());
        let waiting: Option<Vec<_>> = running.map(|(number, process)| Some((number, process.waits()?))).collect();
        let mut known = self.known.lock().unwrap();
        let Some(waiting) = waiting else {
            known.calls.clear();
            return false;
        };
        let (times, calls): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|(number, (times, calls))| ((number, times), (number, calls))).unzip();
        let still = !calls.is_empty() && calls == known.calls;
        if still && !times.iter().any(|time| known.moved.contains(time)) {
            self.clock.advance(STEP);
            known.moved = times;
        }
        known.calls = calls;
        true
    }
}
