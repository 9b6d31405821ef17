//! The deliveries of jobs, in memory: which jobs wait, which are in flight, and which lane each belongs to. The jobs
//! themselves are in the file. The functions do no I/O and get the time from the caller. After a restart all jobs wait.

use base::clock::Moment;
use base::telemetry::TraceContext;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The state of one job.
#[derive(Debug)]
struct Job {
    session: Arc<str>,
    /// The number of deliveries so far.
    delivered: u64,
    /// When the job is delivered again, while it is in flight or delayed.
    due: Option<Moment>,
    /// The job's trace. It is not in the file, so a turn after a restart begins a new trace.
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

/// A delivered job: its sequence, and the number of its deliveries so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenJob {
    pub(super) seq: u64,
    pub(super) delivered: u64,
}

impl Deliveries {
    /// Adds a job that was stored.
    pub(super) fn add(&mut self, seq: u64, session: &str, trace: Option<TraceContext>) {
        let session =
            self.lanes.get_key_value(session).map_or_else(|| Arc::from(session), |(known, _)| Arc::clone(known));
        self.lanes.entry(Arc::clone(&session)).or_default().insert(seq);
        self.jobs.insert(seq, Job { session, delivered: 0, due: None, trace: trace.map(Box::new) });
        self.ready.insert(seq);
    }

    /// Delivers up to `max` jobs, oldest first. They are redelivered after `ack_wait`.
    pub(super) fn take(&mut self, max: usize, now: Moment, ack_wait: Duration) -> Vec<TakenJob> {
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
                taken.push(TakenJob { seq, delivered: job.delivered });
                self.reschedule(seq, now + ack_wait);
            }
        }
        taken
    }

    /// True when another job can be delivered immediately.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The time of the next redelivery.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Sets the time of a job's redelivery to `due`. Has no effect when the job was redelivered since.
    pub(super) fn postpone(&mut self, taken: TakenJob, due: Moment) {
        if self.jobs.get(&taken.seq).is_some_and(|job| job.delivered == taken.delivered && job.due.is_some()) {
            self.reschedule(taken.seq, due);
        }
    }

    fn reschedule(&mut self, seq: u64, due: Moment) {
        if let Some(job) = self.jobs.get_mut(&seq) {
            if let Some(before) = job.due.replace(due) {
                self.due.remove(&(before, seq));
            }
            self.due.insert((due, seq));
        }
    }

    /// Removes an acknowledged job, whichever of its deliveries was acknowledged. Returns false when it was already
    /// removed.
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

    /// Returns the sequence of a lane's first job above `after`.
    pub(super) fn next(&self, session: &str, after: u64) -> Option<u64> {
        self.lanes.get(session)?.range(after.checked_add(1)?..).next().copied()
    }

    /// Returns the sequences of all jobs of a lane.
    pub(super) fn lane(&self, session: &str) -> Vec<u64> {
        self.lanes.get(session).map(|lane| lane.iter().copied().collect()).unwrap_or_default()
    }

    /// Returns the trace of a job.
    pub(super) fn trace(&self, seq: u64) -> Option<TraceContext> {
        self.jobs.get(&seq)?.trace.as_deref().cloned()
    }

    /// Returns the number of jobs in all lanes, and the sequence of the oldest.
    pub(super) fn backlog(&self) -> (u64, Option<u64>) {
        let first = self.lanes.values().filter_map(|lane| lane.first().copied()).min();
        (self.jobs.len() as u64, first)
    }

    /// Returns the number of jobs in a lane.
    pub(super) fn depth(&self, session: &str) -> u64 {
        self.lanes.get(session).map_or(0, |lane| lane.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(6);

    fn seqs(taken: &[TakenJob]) -> Vec<u64> {
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
        assert!(jobs.take(10, start + WAIT, WAIT).is_empty(), "progress delays the redelivery");
        let again = jobs.take(10, start + WAIT * 2, WAIT);
        assert_eq!(again, [TakenJob { seq: 1, delivered: 2 }]);
        jobs.postpone(first[0], start);
        assert!(jobs.take(10, start + WAIT * 2, WAIT).is_empty(), "an old delivery has no effect");
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
