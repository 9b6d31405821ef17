//! What was done outside: calls of models and APIs, and timers.

use super::evidence::{Lane, Seen};
use std::collections::HashMap;
use types::job::{Command, JobBody};
use types::step::StepRecord;
use types::timer::timer_id;
use types::turn::{Outcome, TurnRecord};

pub(super) fn check(lane: &Lane, outlived: bool) -> Vec<String> {
    let mut found = calls(lane);
    if !outlived {
        found.extend(repeats(lane));
        found.extend(overlaps(lane));
    }
    found.extend(timers(lane));
    found
}

/// `<session>/<turn>/<step>` in its parts.
fn parts(key: &str) -> Option<(&str, &str)> {
    key.split_once('/')?.1.split_once('/')
}

/// Calls of an API are steps of a turn on record; a repeat has the same key and asks the same; and every action on record
/// has been seen.
fn calls(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    let mut asked: HashMap<&str, &str> = HashMap::new();
    for call in &lane.api {
        let earlier = asked.entry(call.key.as_str()).or_insert(call.what.as_str());
        if *earlier != call.what {
            found.push(format!("{} asks for “{}”, then for “{}”", call.key, earlier, call.what));
        }
        let recorded = parts(&call.key).is_some_and(|(turn, step)| {
            lane.steps.get(turn).is_some_and(|steps| steps.iter().any(|recorded| recorded.key == step))
                || lane.turns.iter().any(|record| {
                    record.turn_id == turn
                        && (was_given_up(record) || was_broken_off(record, lane.steps.get(turn), call))
                })
        });
        if !recorded {
            found.push(format!("{} was called, and no turn has it on record", call.key));
        }
    }
    for (turn, steps) in &lane.steps {
        for step in steps.iter().filter(|step| matches!(step.kind.as_str(), "skill" | "handoff") && step.ok) {
            let seen = lane.api.iter().any(|call| parts(&call.key) == Some((turn, &step.key)));
            if !seen {
                found.push(format!("{turn}/{} is on record, and nobody was called", step.key));
            }
        }
    }
    found
}

/// A turn that ended in the middle may leave a call without a record.
fn was_given_up(turn: &TurnRecord) -> bool {
    let reason = turn.reason.as_deref().unwrap_or_default();
    ["attempts", "replay", "panic"].iter().any(|word| reason.starts_with(word))
}

/// An operator's cancellation breaks off what is in hand: a call after which nothing of the turn was recorded.
fn was_broken_off(turn: &TurnRecord, steps: Option<&Vec<StepRecord>>, call: &Seen) -> bool {
    let by_operator = turn.reason.as_deref().is_some_and(|reason| reason.starts_with("operator"));
    by_operator && steps.into_iter().flatten().all(|step| step.at <= call.at)
}

/// What was recorded did not run again.
fn repeats(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    for call in lane.api.iter().chain(&lane.model) {
        let Some((turn, key)) = parts(&call.key) else { continue };
        let mut steps = lane.steps.get(turn).into_iter().flatten().filter(|step| step.key == key);
        if let Some(step) = steps.find(|step| call.at > step.at) {
            let ms = step.at.until(call.at).as_millis();
            found.push(format!("{} ran again after it was recorded, {ms} ms later", call.key));
        }
    }
    found
}

/// No two turns of the session were at the model or an API at the same time. A call without an end was cut off with its
/// worker.
fn overlaps(lane: &Lane) -> Vec<String> {
    let mut calls: Vec<_> = lane.model.iter().chain(&lane.api).collect();
    calls.sort_by_key(|call| call.began);
    let turn = |call: &Seen| parts(&call.key).map(|(turn, _)| turn.to_owned());
    let mut found = Vec::new();
    for (place, earlier) in calls.iter().enumerate() {
        let Some(ended) = earlier.ended else { continue };
        let overlapping = calls[place + 1..].iter().filter(|later| later.began < ended && turn(later) != turn(earlier));
        found.extend(overlapping.map(|later| format!("{} and {} overlap", earlier.key, later.key)));
    }
    found
}

/// No timer fired early, none of a generation that was cancelled.
fn timers(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    for (place, turn) in lane.turns.iter().enumerate() {
        let JobBody::Timer { timer_id, name, due_at, .. } = &turn.job.body else { continue };
        if turn.outcome == Outcome::Noop {
            continue;
        }
        if turn.statuses.iter().any(|status| status.at < *due_at) {
            found.push(format!("timer {name} fired early: it was due at {due_at}"));
        }
        match lane.turns[..place].iter().rposition(|armed| arms(armed, timer_id)) {
            None => found.push(format!("timer {name} fired, and no turn armed it")),
            Some(armed) => {
                let between = lane.turns[armed + 1..place].iter().find(|turn| cancels(turn));
                found
                    .extend(between.map(|turn| format!("timer {name} fired after turn {} cancelled it", turn.turn_id)));
            }
        }
    }
    found
}

fn arms(turn: &TurnRecord, id: &str) -> bool {
    let indexes = (0..16).chain([usize::MAX]);
    indexes.into_iter().any(|index| timer_id(&turn.session_id, &turn.turn_id, index) == id)
}

/// A user's turn cancels all timers, unless it only forwards to a human; so does an operator's that does anything.
fn cancels(turn: &TurnRecord) -> bool {
    match &turn.job.body {
        JobBody::UserMessage(_) => !turn.statuses.is_empty(),
        JobBody::Control { command: Command::CancelTimers, name: Some(_), .. } => false,
        JobBody::Control { .. } => turn.outcome != Outcome::Noop,
        _ => false,
    }
}
