//! Which jobs wait, which are out, and which lane they belong to: a work queue in memory over the jobs in the file. Pure;
//! the caller brings the time. A restart begins with everything waiting.

use base::clock::Moment;
use base::telemetry::TraceContext;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Where a job stands.
#[derive(Debug)]
struct Job {
    session: Arc<str>,
    /// How often it has been handed out.
    delivered: u64,
    /// When it comes again, while it is out or put off.
    due: Option<Moment>,
    /// The trace that it is a part of. Not in the file: after a restart its turn begins a trace of its own.
    trace: Option<Box<TraceContext>>,
}

/// The jobs that are not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    jobs: HashMap<u64, Job>,
    lanes: HashMap<Arc<str>, BTreeSet<u64>>,
    ready: BTreeSet<u64>,
    due: BTreeSet<(Moment, u64)>,
}

/// A job handed out: its sequence, and which time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) seq: u64,
    pub(super) delivered: u64,
}

impl Deliveries {
    /// A job has been stored.
    pub(super) fn add(&mut self, seq: u64, session: &str, trace: Option<TraceContext>) {
        let session =
            self.lanes.get_key_value(session).map_or_else(|| Arc::from(session), |(known, _)| Arc::clone(known));
        self.lanes.entry(Arc::clone(&session)).or_default().insert(seq);
        self.jobs.insert(seq, Job { session, delivered: 0, due: None, trace: trace.map(Box::new) });
        self.ready.insert(seq);
    }

    /// Hands out up to `max` jobs, oldest first, which come again after `ack_wait`.
    pub(super) fn take(&mut self, max: usize, now: Moment, ack_wait: Duration) -> Vec<Taken> {
        while let Some((due, seq)) = self.due.first().copied()
            && due <= now
        {
            self.due.pop_first();
            if let Some(job) = self.jobs.get_mut(&seq) {
                job.due = None;
                self.ready.insert(seq);
            }
        }
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(seq) = self.ready.pop_first()
        {
            if let Some(job) = self.jobs.get_mut(&seq) {
                job.delivered += 1;
                taken.push(Taken { seq, delivered: job.delivered });
                self.put_off(seq, now + ack_wait);
            }
        }
        taken
    }

    /// Whether more could be handed out at once.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next job comes again by itself.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A job comes again at `due`, unless the delivery is not the last one any more.
    pub(super) fn postpone(&mut self, taken: Taken, due: Moment) {
        if self.jobs.get(&taken.seq).is_some_and(|job| job.delivered == taken.delivered && job.due.is_some()) {
            self.put_off(taken.seq, due);
        }
    }

    fn put_off(&mut self, seq: u64, due: Moment) {
        if let Some(job) = self.jobs.get_mut(&seq) {
            if let Some(before) = job.due.replace(due) {
                self.due.remove(&(before, seq));
            }
            self.due.insert((due, seq));
        }
    }

    /// A job is done, whichever delivery of it says so. False when it was before.
    pub(super) fn remove(&mut self, seq: u64) -> bool {
        let Some(job) = self.jobs.remove(&seq) else { return false };
        if let Some(due) = job.due {
            self.due.remove(&(due, seq));
        }
        self.ready.remove(&seq);
        if let Some(lane) = self.lanes.get_mut(&job.session) {
            lane.remove(&seq);
            if lane.is_empty() {
                self.lanes.remove(&job.session);
            }
        }
        true
    }

    /// The first job of a lane above `after`.
    pub(super) fn next(&self, session: &str, after: u64) -> Option<u64> {
        self.lanes.get(session)?.range(after.checked_add(1)?..).next().copied()
    }

    /// The trace that a job is a part of.
    pub(super) fn trace(&self, seq: u64) -> Option<TraceContext> {
        self.jobs.get(&seq)?.trace.as_deref().cloned()
    }

    /// How many jobs are in all lanes, and the first of them.
    pub(super) fn backlog(&self) -> (u64, Option<u64>) {
        let first = self.lanes.values().filter_map(|lane| lane.first().copied()).min();
        (self.jobs.len() as u64, first)
    }

    /// How many jobs are in a lane.
    pub(super) fn depth(&self, session: &str) -> u64 {
        self.lanes.get(session).map_or(0, |lane| lane.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(6);

    fn seqs(taken: &[Taken]) -> Vec<u64> {
        taken.iter().map(|one| one.seq).collect()
    }

    #[test]
    fn what_is_not_acknowledged_comes_again_after_the_ack_wait() {
        let (mut jobs, start) = (Deliveries::default(), base::clock::moment());
        jobs.add(1, "a", None);
        jobs.add(2, "b", None);
        let first = jobs.take(10, start, WAIT);
        assert_eq!(seqs(&first), [1, 2]);
        assert!(jobs.take(10, start, WAIT).is_empty());
        assert_eq!(jobs.next_due(), Some(start + WAIT));
        assert!(jobs.remove(2) && !jobs.remove(2));
        jobs.postpone(first[0], start + WAIT * 2);
        assert!(jobs.take(10, start + WAIT, WAIT).is_empty(), "progress keeps it away");
        let again = jobs.take(10, start + WAIT * 2, WAIT);
        assert_eq!(again, [Taken { seq: 1, delivered: 2 }]);
        jobs.postpone(first[0], start);
        assert!(jobs.take(10, start + WAIT * 2, WAIT).is_empty(), "an old delivery has no say");
        assert!(jobs.remove(1) && jobs.next_due().is_none() && jobs.lanes.is_empty());
    }

    #[test]
    fn a_lane_knows_its_own_jobs_in_order() {
        let mut jobs = Deliveries::default();
        for (seq, session) in [(1, "甲"), (2, "乙"), (3, "甲"), (7, "甲")] {
            jobs.add(seq, session, None);
        }
        assert_eq!((jobs.next("甲", 0), jobs.next("甲", 1), jobs.next("甲", 7)), (Some(1), Some(3), None));
        assert_eq!((jobs.depth("甲"), jobs.depth("丙"), jobs.next("乙", u64::MAX)), (3, 0, None));
    }
}
