//! Checks whether a run kept its promises: a pure function over the facts that are gathered at the end.
//!
//! [`case`] groups the facts by session and derives its turns. Each other file checks one kind of promise: [`jobs`]
//! (processed once, in order), [`replies`] (published once, as scripted, as in the history), [`actions`], [`statuses`],
//! [`timers`], [`lanes`], [`dialogues`].

mod actions;
mod case;
mod dialogues;
mod jobs;
mod lanes;
mod replies;
mod statuses;
#[cfg(test)]
mod tests;
mod timers;

use super::agents::Manner;
use super::evidence::RunEvidence;
use case::Case;
use serde::Serialize;
use std::time::Duration;

/// A promise that a run checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// Every accepted job is processed or dead-lettered.
    NothingLost,
    /// No job is processed twice, and every turn belongs to a message or a timer.
    NothingTwice,
    /// The jobs of a session are processed in the order of their publication.
    Order,
    /// A turn publishes exactly the replies that the script expects.
    Replies,
    /// The history has exactly the messages that were sent and the replies that were published.
    History,
    /// An action takes effect once; repeated calls carry its idempotency key.
    Actions,
    /// Status transitions are legal and without gaps.
    Statuses,
    /// Timers fire once, not early, and not after their cancellation.
    Timers,
    /// At the end no lane has waiting work or a lease.
    Lanes,
    /// An authoring dialogue has one state, in the stage that its session names.
    Dialogues,
    /// Every invalid job has one dead letter, and no valid job has one.
    DeadLetters,
    /// No process ends unless the run stops it.
    Processes,
    /// The invariants of every run hold ([`crate::invariants`]).
    Invariants,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The broken promise.
    pub promise: Promise,
    /// The session; empty if the violation concerns the whole run.
    pub session_id: String,
    /// Description of the violation.
    pub what: String,
}

/// Result of the check.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    pub(super) violations: Vec<Violation>,
    pub(super) counts: Counts,
    /// Delay between due time and effect of each fired timer.
    pub(super) lateness: Vec<Duration>,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Sessions.
    pub sessions: u64,
    /// Turns for messages of users.
    pub turns: u64,
    /// Messages that were merged into the turn of another message.
    pub merged: u64,
    /// Turns that began more than once.
    pub turns_resumed: u64,
    /// Messages dead-lettered after too many attempts. The user gets an apology.
    pub given_up: u64,
    /// Invalid jobs. All of them are dead-lettered.
    pub bad_jobs: u64,
    /// Replies with distinct ids.
    pub replies: u64,
    /// Replies that were published again under the same id.
    pub replies_repeated: u64,
    /// Actions that took effect.
    pub actions: u64,
    /// Calls of actions that were repeated under the same key, without a second effect.
    pub calls_repeated: u64,
    /// Timers that fired.
    pub timers_fired: u64,
    /// Timers that were cancelled before they fired.
    pub timers_cancelled: u64,
    /// Authoring dialogues.
    pub dialogues: u64,
    /// Workflows that dialogues have published.
    pub workflows: u64,
}

/// Checks all promises. Sorts the violations by promise and session.
pub(super) fn check(evidence: &RunEvidence) -> Findings {
    let mut findings = Findings::default();
    for case in Case::from_evidence(evidence) {
        let mut found = Found { findings: &mut findings, session_id: case.session_id };
        found.findings.counts.sessions += u64::from(case.session.is_some());
        jobs::check(&case, &mut found);
        if case.manner() == Manner::Authoring {
            dialogues::check(&case, &mut found);
        } else {
            replies::check(&case, &mut found);
            actions::check(&case, &mut found);
        }
        statuses::check(&case, &mut found);
        timers::check(&case, &mut found);
        lanes::check(&case, &mut found);
    }
    let mut found = Found { findings: &mut findings, session_id: "" };
    if evidence.jobs_left > 0 {
        found.broken(Promise::Lanes, format!("{} jobs remain in the stream", evidence.jobs_left));
    }
    for trouble in &evidence.troubles {
        found.broken(Promise::Processes, trouble.clone());
    }
    findings.violations.sort_by(|a, b| (a.promise, &a.session_id).cmp(&(b.promise, &b.session_id)));
    findings
}

/// Collects the findings in one session.
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
