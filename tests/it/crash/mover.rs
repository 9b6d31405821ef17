//! Advances the clock of a run while all its processes are idle.
//!
//! Leases are much longer than the delays of a slow machine, but no test waits for their expiry: after a crash the
//! clock advances by a whole lease, and by a [`STEP`] whenever all processes are idle. The next step waits until each
//! process has noticed the previous one and is idle again. By then, a process with a lease to renew has renewed it,
//! however slow the machine is.

use super::process::CrashProcess;
use base::clock::Clock;
use std::sync::Mutex;
use std::time::Duration;

/// Duration of leases and of the ack wait.
pub const LEASE: Duration = Duration::from_secs(18);
/// Interval of renewals; shorter than the lease of the leading scheduler.
const STEP: Duration = Duration::from_secs(3);

/// Advances the clock of one run.
pub struct Mover {
    clock: Clock,
    known: Mutex<Known>,
}

/// Counters of each process, by its number.
#[derive(Default)]
struct Known {
    /// Number of calls at the last check, when all processes were idle.
    calls: Vec<(usize, usize)>,
    /// How often the process had become idle before the last step.
    moved: Vec<(usize, usize)>,
}

impl Mover {
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: Mutex::default() }
    }

    /// Returns true if all processes are idle. Advances the clock by a step if no process has made a call since the
    /// last check.
    pub fn look(&self, processes: &[CrashProcess]) -> bool {
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
