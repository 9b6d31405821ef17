//! Timers: armed by the last user turn, fired once, not early, not after their cancellation.

use super::case::{Case, Of, Turn};
use super::{Found, Promise};
use crate::chaos::agents::{Manner, TIMERS};
use std::collections::HashSet;
use types::job::JobBody;
use types::outcome::Outcome;
use types::timer::timer_id;
use types::timestamp::Timestamp;

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    if case.manner() != Manner::Timed {
        return no_timers(case, found);
    }
    // The turn whose timers are armed now.
    let mut armed: Option<&Turn<'_>> = None;
    let mut fired: HashSet<usize> = HashSet::new();
    for turn in &case.turns {
        match turn.of {
            Of::User(_) => {
                count_cancelled(armed, &fired, found);
                armed = Some(turn).filter(|turn| arms(turn));
                fired.clear();
            }
            Of::Timer if turn.is(Outcome::Noop) => {}
            // An abandoned timer turn cancels the remaining timers.
            Of::Timer if turn.is_given_up() => armed = None,
            Of::Timer => fires(case, turn, armed, &mut fired, found),
            Of::Nobody => {}
        }
    }
    for (number, (name, _)) in TIMERS.iter().enumerate() {
        if let Some(turn) = armed.filter(|_| !fired.contains(&number)) {
            found.broken(Promise::Timers, format!("timer {name} of turn {} did not fire", turn.turn_id));
        }
    }
}

fn no_timers(case: &Case<'_>, found: &mut Found<'_>) {
    for turn in case.turns.iter().filter(|turn| matches!(turn.of, Of::Timer)) {
        found.broken(Promise::Timers, format!("timer {} fired, but the agent has no timers", turn.turn_id));
    }
}

/// True if the turn arms timers. A turn that closes the conversation or was dead-lettered arms none.
fn arms(turn: &Turn<'_>) -> bool {
    let closes = turn.lines().iter().any(|line| line.verb == crate::chaos::conversations::Verb::Bye);
    !closes && (turn.is(Outcome::Answered) || turn.is(Outcome::Silent))
}

fn count_cancelled(armed: Option<&Turn<'_>>, fired: &HashSet<usize>, found: &mut Found<'_>) {
    if armed.is_some() {
        found.counts().timers_cancelled += u64::try_from(TIMERS.len() - fired.len()).unwrap_or(0);
    }
}

fn fires(
    case: &Case<'_>,
    turn: &Turn<'_>,
    armed: Option<&Turn<'_>>,
    fired: &mut HashSet<usize>,
    found: &mut Found<'_>,
) {
    let Some(JobBody::Timer { timer_id: id, due_at, .. }) = turn.record.map(|record| &record.job.body) else { return };
    let of = |armed: &Turn<'_>, number: usize| timer_id(case.session_id, armed.turn_id, number) == *id;
    let Some(armed) = armed else {
        return found.broken(Promise::Timers, format!("timer {} fired after its cancellation", turn.turn_id));
    };
    let Some(number) = (0..TIMERS.len()).find(|number| of(armed, *number)) else {
        return found.broken(Promise::Timers, format!("timer {} fired after its cancellation", turn.turn_id));
    };
    if !fired.insert(number) {
        found.broken(Promise::Timers, format!("timer {} fired twice", turn.turn_id));
    }
    found.counts().timers_fired += 1;
    if let Some(begun) = armed.record.map(|record| record.started_at)
        && *due_at < begun.plus(TIMERS[number].1)
    {
        found.broken(Promise::Timers, format!("timer {} was due before its delay had passed", turn.turn_id));
    }
    for at in effects(case, turn) {
        if at < *due_at {
            let early = at.until(*due_at);
            found.broken(Promise::Timers, format!("timer {} took effect {early:?} early", turn.turn_id));
        }
    }
    found.findings.lateness.extend(effects(case, turn).min().map(|at| due_at.until(at)));
}

/// Times of the effects of a timer's turn: its replies and calls.
fn effects(case: &Case<'_>, turn: &Turn<'_>) -> impl Iterator<Item = Timestamp> {
    let said = case.replies.iter().filter(|reply| reply.turn_id == turn.turn_id).map(|reply| reply.at);
    let done = case.calls.iter().filter(|call| call.turn().1 == turn.turn_id).map(|call| call.at);
    said.chain(done)
}
