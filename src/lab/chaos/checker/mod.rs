//! Whether a run kept its promises: a pure function over what is known when all is quiet.
//!
//! [`case`] gathers one session's facts and works out its turns. Each file holds one kind of promise: [`jobs`] (each
//! handled once, in order), [`replies`] (said once, as expected, as recorded), [`actions`], [`statuses`], [`timers`],
//! [`lanes`].

mod actions;
mod case;
mod jobs;
mod lanes;
mod replies;
mod statuses;
#[cfg(test)]
mod tests;
mod timers;

use super::facts::Facts;
use case::Case;
use serde::Serialize;
use std::time::Duration;

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// Every accepted job is handled or given up.
    NothingLost,
    /// No job is handled twice, and nothing is handled that nobody sent.
    NothingTwice,
    /// A session's jobs are handled in the order in which they were published.
    Order,
    /// A turn says what it has to say, once.
    Replies,
    /// The recorded conversation is what was sent and said.
    History,
    /// An action happens once; what repeats it has its idempotency key.
    Actions,
    /// Only legal status transitions, without a gap.
    Statuses,
    /// Timers fire once, not early, and not after their cancellation.
    Timers,
    /// No lane is left with work and no holder.
    Lanes,
    /// What is no job goes to the dead letters, once, and nothing else does.
    DeadLetters,
    /// No process ends of its own accord.
    Processes,
    /// What holds after any run ([`crate::invariants`]).
    Invariants,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// Where; empty for what concerns no single session.
    pub session_id: String,
    /// How.
    pub what: String,
}

/// What the checker found.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    pub(super) violations: Vec<Violation>,
    pub(super) counts: Counts,
    /// How late each fired timer took effect.
    pub(super) lateness: Vec<Duration>,
}

/// What is counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Sessions.
    pub sessions: u64,
    /// Turns of users' messages.
    pub turns: u64,
    /// Messages that became part of another one's turn.
    pub merged: u64,
    /// Turns that were begun more than once.
    pub turns_resumed: u64,
    /// Messages given up after too many attempts, with an apology to the user.
    pub given_up: u64,
    /// Payloads that are no jobs, all in the dead letters.
    pub bad_jobs: u64,
    /// Replies, each under an id of its own.
    pub replies: u64,
    /// Replies that channels see again under an id that they know.
    pub replies_repeated: u64,
    /// Actions that took effect.
    pub actions: u64,
    /// Calls of actions again under a known key, without a second effect.
    pub calls_repeated: u64,
    /// Timers that fired.
    pub timers_fired: u64,
    /// Timers that were cancelled before.
    pub timers_cancelled: u64,
}

/// Checks everything.
pub(super) fn check(facts: &Facts) -> Findings {
    let mut findings = Findings::default();
    for case in Case::of(facts) {
        let mut found = Found { findings: &mut findings, session_id: case.session_id };
        found.findings.counts.sessions += u64::from(case.session.is_some());
        jobs::check(&case, &mut found);
        replies::check(&case, &mut found);
        actions::check(&case, &mut found);
        statuses::check(&case, &mut found);
        timers::check(&case, &mut found);
        lanes::check(&case, &mut found);
    }
    let mut found = Found { findings: &mut findings, session_id: "" };
    if facts.jobs_left > 0 {
        found.broken(Promise::Lanes, format!("{} jobs are left in the stream", facts.jobs_left));
    }
    for trouble in &facts.troubles {
        found.broken(Promise::Processes, trouble.clone());
    }
    findings.violations.sort_by(|a, b| (a.promise, &a.session_id).cmp(&(b.promise, &b.session_id)));
    findings
}

/// Takes down what is found in one session.
struct Found<'a> {
    findings: &'a mut Findings,
    session_id: &'a str,
}

impl Found<'_> {
    fn broken(&mut self, promise: Promise, what: String) {
        let session_id = self.session_id.to_owned();
        self.findings.violations.push(Violation { promise, session_id, what });
    }

    fn counts(&mut self) -> &mut Counts {
        &mut self.findings.counts
    }
}
