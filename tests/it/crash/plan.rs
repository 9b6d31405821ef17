//! Which operation a fault strikes, and how.
//!
//! An operation is known by its name, its lane, its item (the message pulled or acknowledged, the step recorded, the event
//! published; the first one where a call has several) and a count of the calls with that item. So its name is the same in every
//! run, however lanes, renewals and polls interleave, and whichever items share a call; its number is its place in the
//! undisturbed run. Not counted is what comes by the clock: empty pulls, `progress`, `renew`, `lead`,
//! `resign`, `due_timers`, `abandoned_lanes`, `idle_sessions`, `prune`, `ping`, and subscriptions. How many of them there
//! are says nothing about a turn, and no turn waits for them: a process that dies or freezes in one of them is, to
//! everybody else, one that does so between two operations that are counted. Calls that a process
//! makes after the operation that kills it, before it is dead, are not counted either.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// One call of a process to queue or store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    pub name: &'static str,
    /// The session, where there is one.
    pub lane: String,
    /// A message, step or event; empty for other calls.
    pub item: String,
    /// Counts from 1.
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

/// What happens at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before it asks.
    CrashBefore,
    /// It dies before it is answered.
    CrashAfter,
    /// It is told that nobody can be reached, and nothing has happened.
    ErrorBefore,
    /// It is told the same, but what it asked for has happened.
    ErrorAfter,
    /// It freezes before it asks, until others have done all its work; it does not learn of that.
    PauseBefore,
    /// It freezes before it is answered, until others have done all its work; it does not learn of that.
    PauseAfter,
    /// It freezes before it asks, until somebody else has taken a lane.
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
    /// Those that a worker outlives its lease in.
    pub const PAUSES: [Self; 3] = [Self::PauseBefore, Self::PauseAfter, Self::PauseBeforeBrief];
    /// Those that a call ends in, for its caller.
    pub const ERRORS: [Self; 2] = [Self::ErrorBefore, Self::ErrorAfter];
    /// Those that kill.
    pub const CRASHES: [Self; 2] = [Self::CrashBefore, Self::CrashAfter];

    pub fn crashes(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter)
    }

    pub fn pauses(self) -> bool {
        matches!(self, Self::PauseBefore | Self::PauseAfter | Self::PauseBeforeBrief)
    }

    /// The operation takes effect before the fault does.
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

/// The points of one run, which all its processes share. The second point is looked for once the first has struck, and
/// its operations are counted from there.
pub struct Plan {
    progress: Mutex<Progress>,
    /// The processes struck, in order.
    strikes: watch::Sender<Vec<usize>>,
    /// A process lost its lease, or did not get its result in.
    lost: Mutex<Option<&'static str>>,
    /// Lanes taken so far.
    grants: AtomicUsize,
}

#[derive(Default)]
struct Progress {
    armed: bool,
    ahead: VecDeque<Point>,
    counts: HashMap<(&'static str, String, String), usize>,
    /// Processes that a fault has killed: their last calls are not counted.
    dying: HashSet<usize>,
    /// What has been asked for, from one strike to the next.
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

    /// Counting begins.
    pub fn arm(&self) {
        self.progress.lock().unwrap().armed = true;
    }

    /// Counts a call of a process; returns the fault that strikes it.
    pub fn count(&self, process: usize, name: &'static str, (lane, items): (&str, &[String])) -> Option<Fault> {
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

    /// The fault has taken effect on a process.
    pub fn struck(&self, process: usize) {
        self.strikes.send_modify(|strikes| strikes.push(process));
    }

    /// How many faults are under way or have taken effect.
    pub fn begun(&self) -> usize {
        self.progress.lock().unwrap().seen.len() - 1
    }

    pub fn strikes(&self) -> watch::Receiver<Vec<usize>> {
        self.strikes.subscribe()
    }

    pub fn note_lost(&self, how: &'static str) {
        *self.lost.lock().unwrap() = Some(how);
    }

    /// How a process lost its lease, if one did.
    pub fn lost(&self) -> Option<&'static str> {
        *self.lost.lock().unwrap()
    }

    pub fn note_grant(&self) {
        self.grants.fetch_add(1, Ordering::SeqCst);
    }

    pub fn grants(&self) -> usize {
        self.grants.load(Ordering::SeqCst)
    }

    /// The operations so far, from one strike to the next.
    pub fn seen(&self) -> Vec<Vec<Operation>> {
        self.progress.lock().unwrap().seen.clone()
    }
}

impl Progress {
    fn operation(&mut self, name: &'static str, lane: &str, item: &str) -> Operation {
        let nth = self.counts.entry((name, lane.to_owned(), item.to_owned())).or_default();
        *nth += 1;
        Operation { name, lane: lane.to_owned(), item: item.to_owned(), nth: *nth }
    }
}
