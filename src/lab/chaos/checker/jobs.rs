//! Jobs: each is processed or dead-lettered once, in order.

use super::case::{Case, Of};
use super::{Found, Promise};
use crate::chaos::agents::Manner;
use crate::chaos::conversations::Verb;
use crate::chaos::evidence::{SentInvalidJob, SentMessage};
use std::collections::HashSet;
use types::cause::Cause;
use types::outcome::Outcome;

pub(super) fn check(case: &Case<'_>, found: &mut Found<'_>) {
    for sent in &case.sent {
        handled_once(case, sent, found);
    }
    for bad in &case.bad {
        given_up_once(case, bad, found);
    }
    unknown_letters(case, found);
    repeats_and_strangers(case, found);
    in_order(case, found);
    outcomes(case, found);
    written_once(case, found);
}

fn handled_once(case: &Case<'_>, sent: &SentMessage, found: &mut Found<'_>) {
    let job_id = &sent.job_id;
    let handled = case.lane().iter().filter(|handled| *handled == job_id).count();
    let letters: Vec<Cause> = case
        .letters
        .iter()
        .filter(|letter| letter.job_id.as_ref() == Some(job_id))
        .map(|letter| letter.cause)
        .collect();
    if handled == 0 && sent.accepted && letters.is_empty() {
        found.broken(
            Promise::NothingLost,
            format!("message {job_id} was accepted, but neither processed nor dead-lettered"),
        );
    }
    if handled == 0 && !letters.is_empty() {
        found.broken(Promise::DeadLetters, format!("message {job_id} was dead-lettered ({letters:?}) without a turn"));
    }
    if letters.len() > 1 {
        found.broken(Promise::DeadLetters, format!("message {job_id} has {} dead letters", letters.len()));
    }
    let given_up = case.turn(job_id).is_some_and(|(_, turn)| turn.is_given_up());
    if handled > 0 && letters.is_empty() == given_up {
        found.broken(
            Promise::DeadLetters,
            format!("message {job_id}: turn ended after too many attempts: {given_up}, dead letters: {letters:?}"),
        );
    }
    if given_up {
        found.counts().given_up += 1;
    }
}

fn given_up_once(case: &Case<'_>, bad: &SentInvalidJob, found: &mut Found<'_>) {
    let letters: Vec<Cause> =
        case.letters.iter().filter(|letter| letter.payload == bad.payload).map(|letter| letter.cause).collect();
    if letters.is_empty() && bad.accepted {
        found.broken(Promise::NothingLost, format!("an invalid job has no dead letter: {}", bad.payload));
    }
    // A publish without an acknowledgement is repeated. If the first copy has been processed by then, the queue holds
    // the job a second time.
    if letters.len() > bad.sends as usize {
        let times = letters.len();
        found.broken(Promise::DeadLetters, format!("an invalid job has {times} dead letters: {}", bad.payload));
    }
    if letters.iter().any(|cause| *cause != bad.cause) {
        let (wanted, payload) = (bad.cause, &bad.payload);
        found.broken(
            Promise::DeadLetters,
            format!("an invalid job has the cause {letters:?}, expected {wanted:?}: {payload}"),
        );
    }
    found.counts().bad_jobs += u64::from(!letters.is_empty());
}

fn unknown_letters(case: &Case<'_>, found: &mut Found<'_>) {
    for letter in &case.letters {
        let is_bad = case.bad.iter().any(|bad| bad.payload == letter.payload);
        let is_message = case.sent.iter().any(|sent| Some(&sent.job_id) == letter.job_id.as_ref());
        let turn = letter.job_id.as_deref().and_then(|job_id| case.turn(job_id));
        if !is_bad && !is_message && !turn.is_some_and(|(_, turn)| turn.is_given_up()) {
            let (cause, payload) = (letter.cause, &letter.payload);
            found
                .broken(Promise::DeadLetters, format!("a valid job was dead-lettered with cause {cause:?}: {payload}"));
        }
    }
}

fn repeats_and_strangers(case: &Case<'_>, found: &mut Found<'_>) {
    let mut known = HashSet::new();
    for job_id in case.lane() {
        if !known.insert(job_id) {
            found.broken(Promise::NothingTwice, format!("job {job_id} was processed twice"));
        }
    }
    for turn in &case.turns {
        if matches!(turn.of, Of::Nobody) {
            found.broken(Promise::NothingTwice, format!("turn {} belongs to no message and no timer", turn.turn_id));
        }
        if turn.record.is_none() {
            found.broken(Promise::NothingLost, format!("turn {} has no record", turn.turn_id));
        }
    }
    for turn_id in case.records.keys() {
        if case.turn(turn_id).is_none() {
            found.broken(Promise::NothingTwice, format!("turn {turn_id} has a record, but is not in its lane"));
        }
    }
}

fn in_order(case: &Case<'_>, found: &mut Found<'_>) {
    let place = |job_id: &str| case.sent.iter().position(|sent| sent.job_id == job_id);
    let mut last = None;
    for job_id in case.lane() {
        let Some(place) = place(job_id) else { continue };
        if last.is_some_and(|last| place < last) {
            found.broken(Promise::Order, format!("message {job_id} was processed after a later message"));
        }
        last = last.max(Some(place));
    }
}

fn outcomes(case: &Case<'_>, found: &mut Found<'_>) {
    for turn in case.turns.iter().filter(|turn| turn.is_users()) {
        let Some(record) = turn.record else { continue };
        found.counts().turns += 1;
        found.counts().merged += u64::try_from(turn.sent().len() - 1).unwrap_or(0);
        found.counts().turns_resumed += u64::from(record.attempts > 1);
        if turn.sent().len() > 1 && case.manner() != Manner::Merging {
            found.broken(
                Promise::NothingLost,
                format!("turn {} has merged messages, but its agent does not merge", turn.turn_id),
            );
        }
        let lines = turn.lines();
        let wanted = if lines.iter().all(|line| line.verb.is_silent()) {
            Outcome::Silent
        } else if lines.iter().any(|line| line.verb == Verb::Errands) {
            Outcome::Flow
        } else {
            Outcome::Answered
        };
        if record.outcome != wanted && !turn.is_given_up() {
            let (outcome, reason) = (record.outcome, record.reason.as_deref().unwrap_or("no reason"));
            found.broken(Promise::Replies, format!("turn {} has the outcome {outcome:?} ({reason})", turn.turn_id));
        }
    }
}

/// Checks that a turn is committed before the next one begins. A record with a later time was written a second time, by
/// a worker that had lost its lease.
fn written_once(case: &Case<'_>, found: &mut Found<'_>) {
    for pair in case.turns.windows(2) {
        let [Some(first), Some(second)] = [pair[0].record, pair[1].record] else { continue };
        if first.committed_at > second.committed_at {
            let (turn_id, at, later) = (&first.turn_id, first.committed_at, second.committed_at);
            found.broken(
                Promise::NothingTwice,
                format!("turn {turn_id} was committed at {at}, but the turn after it at {later}"),
            );
        }
    }
}
