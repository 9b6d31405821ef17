//! The operation at which a fault strikes, and its kind.
//!
//! An operation is identified by its name, its lane, its item (the message that is pulled or acknowledged, the step
//! that is recorded, the event that is published; the first one if a call has several), and a count of calls with that
//! item. This identity is the same in every run, regardless of how lanes, renewals and polls interleave and which items
//! share a call. The operation's number is its position in a run without faults.
//!
//! Calls that depend on the clock are not counted: empty pulls, `progress`, `renew`, `lead`, `resign`, `due_timers`,
//! `abandoned_lanes`, `idle_sessions`, `prune`, `ping`, subscriptions, and the publication of a step's begin, which comes
//! only when the step takes long. Their number varies, and no turn waits for them. A process that dies or freezes during
//! such a call is, for all others, like one that does so between two counted operations. Calls that a dying process makes
//! after the operation that kills it are not counted either.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// One call of a process to queue or store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    pub name: &'static str,
    /// The session; empty if the call concerns none.
    pub lane: String,
    /// A message, step or event; empty for other calls.
    pub item: String,
    /// Counted from 1.
    pub nth: usize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, lane, item, nth } = self;
        write!(f, "`{name}`")?;
        if !lane.is_empty() {
            write!(f, " of {lane}")?;
        }
        if !item.is_empty() {
            write!(f, " ({item})")?;
        }
        write!(f, " #{nth}")
    }
}

/// Effect of a fault on the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the call.
    CrashBefore,
    /// The process dies after the call, before it gets the result.
    CrashAfter,
    /// The call fails as unreachable and has no effect.
    ErrorBefore,
    /// The call fails as unreachable, although it has taken effect.
    ErrorAfter,
    /// The process freezes before the call until other processes have done all its work. It does not learn that its
    /// leases are lost.
    PauseBefore,
    /// The process freezes after the call until other processes have done all its work. It does not learn that its
    /// leases are lost.
    PauseAfter,
    /// The process freezes before the call until another process has taken a lane.
    PauseBeforeBrief,
}

impl Fault {
    pub const ALL: [Self; 7] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::ErrorBefore,
        Self::ErrorAfter,
        Self::PauseBefore,
        Self::PauseAfter,
        Self::PauseBeforeBrief,
    ];
    /// Faults in which a worker outlives its lease.
    pub const PAUSES: [Self; 3] = [Self::PauseBefore, Self::PauseAfter, Self::PauseBeforeBrief];
    /// Faults in which a call returns an error.
    pub const ERRORS: [Self; 2] = [Self::ErrorBefore, Self::ErrorAfter];
    /// Faults that kill the process.
    pub const CRASHES: [Self; 2] = [Self::CrashBefore, Self::CrashAfter];

    pub fn crashes(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }

    pub fn pauses(self) -> bool {
        matches!(self, Self::PauseBefore | Self::PauseAfter | Self::PauseBeforeBrief)
    }

    /// True if the operation takes effect before the fault.
    pub fn after(self) -> bool {
        matches!(self, Self::CrashAfter | Self::ErrorAfter | Self::PauseAfter)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CrashBefore => "crash before",
            Self::CrashAfter => "crash after the effect of",
            Self::ErrorBefore => "error in place of",
            Self::ErrorAfter => "error after the effect of",
            Self::PauseBefore => "pause before",
            Self::PauseAfter => "pause after the effect of",
            Self::PauseBeforeBrief => "pause until the lane is taken before",
        })
    }
}

/// A fault at an operation.
#[derive(Clone, Debug)]
pub struct Point {
    pub number: usize,
    pub operation: Operation,
    pub fault: Fault,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operation {}, {}", self.fault, self.number, self.operation)
    }
}

/// The points of one run, shared by all its processes. The second point is matched after the first fault has struck;
/// operations are counted from there.
pub struct Plan {
    progress: Mutex<Progress>,
    /// Numbers of the processes that were struck, in order.
    strikes: watch::Sender<Vec<usize>>,
    /// How a process lost its lease, or failed to deliver its result.
    lost: Mutex<Option<&'static str>>,
    /// Number of lanes acquired so far.
    grants: AtomicUsize,
}

#[derive(Default)]
struct Progress {
    armed: bool,
    ahead: VecDeque<Point>,
    counts: HashMap<(&'static str, String, String), usize>,
    /// Processes that a fault is killing. Their last calls are not counted.
    dying: HashSet<usize>,
    /// Operations, grouped by the strikes between them.
    seen: Vec<Vec<Operation>>,
}

impl Plan {
    pub fn new(points: &[Point]) -> Self {
        let progress =
            Progress { ahead: points.iter().cloned().collect(), seen: vec![Vec::new()], ..Progress::default() };
        Self {
            progress: Mutex::new(progress),
            strikes: watch::Sender::new(Vec::new()),
            lost: Mutex::default(),
            grants: AtomicUsize::new(0),
        }
    }

    /// Starts counting.
    pub fn arm(&self) {
        self.progress.lock().unwrap().armed = true;
    }

    /// Counts a call of a process. Returns the fault that strikes it, if one does.
    pub fn count(&self, process: usize, name: &'static str, lane: &str, items: &[String]) -> Option<Fault> {
        let mut progress = self.progress.lock().unwrap();
        if !progress.armed || progress.dying.contains(&process) {
            return None;
        }
        let about = if items.is_empty() { &[String::new()] } else { items };
        let operations: Vec<_> = about.iter().map(|item| progress.operation(name, lane, item)).collect();
        let struck = progress.ahead.front().is_some_and(|point| operations.contains(&point.operation));
        progress.seen.last_mut().unwrap().extend(operations.into_iter().next());
        if !struck {
            return None;
        }
        progress.counts.clear();
        progress.seen.push(Vec::new());
        let fault = progress.ahead.pop_front()?.fault;
        if fault.crashes() {
            progress.dying.insert(process);
        }
        Some(fault)
    }

    /// Records that a fault has taken effect on a process.
    pub fn struck(&self, process: usize) {
        self.strikes.send_modify(|strikes| strikes.push(process));
    }

    /// Number of faults that have begun or taken effect.
    pub fn begun(&self) -> usize {
        self.progress.lock().unwrap().seen.len() - 1
    }

    pub fn strikes(&self) -> watch::Receiver<Vec<usize>> {
        self.strikes.subscribe()
    }

    pub fn note_lost(&self, how: &'static str) {
        *self.lost.lock().unwrap() = Some(how);
    }

    /// How a process lost its lease, if one has.
    pub fn lost(&self) -> Option<&'static str> {
        *self.lost.lock().unwrap()
    }

    pub fn note_grant(&self) {
        self.grants.fetch_add(1, Ordering::SeqCst);
    }

    pub fn grants(&self) -> usize {
        self.grants.load(Ordering::SeqCst)
    }

    /// The operations so far, grouped by the strikes between them.
    pub fn seen(&self) -> Vec<Vec<Operation>> {
        self.progress.lock().unwrap().seen.clone()
    }
}

impl Progress {
    fn operation(&mut self, name: &'static str, lane: &str, item: &str) -> Operation {
        // The mark of an abandoned turn ends with the epoch, which is another in each run of the scenario.
        let item = item.rsplit_once("given_up-").map_or(item, |(before, _)| before);
        let nth = self.counts.entry((name, lane.to_owned(), item.to_owned())).or_default();
        *nth += 1;
        Operation { name, lane: lane.to_owned(), item: item.to_owned(), nth: *nth }
    }
}
