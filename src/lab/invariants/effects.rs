//! Checks the effects outside of the engine: calls of models and APIs, and timers.

use super::evidence::{Lane, SeenCall};
use std::collections::HashMap;
use types::job::{Command, Control, JobBody};
use types::outcome::Outcome;
use types::step::StepRecord;
use types::timer::timer_id;
use types::turn::TurnRecord;

pub(super) fn check(lane: &Lane, outlived: bool) -> Vec<String> {
    let mut found = calls(lane);
    if !outlived {
        found.extend(repeats(lane));
        found.extend(overlaps(lane));
    }
    found.extend(timers(lane));
    found
}

/// Splits the key `<session>/<turn>/<step>` into turn and step.
fn parts(key: &str) -> Option<(&str, &str)> {
    key.split_once('/')?.1.split_once('/')
}

/// True if a step records the call under the key `called`. All attempts of a graph's node with the same request call
/// under the key of the first; each records its result in a step of its own, `<node>~<attempt>/run`, or its failure in
/// `<node>/failed`. A request that a recovery or a replan has changed has its digest at the end of its key, and a node
/// that runs after a replan is `<node>@<replan>`.
fn records(recorded: &StepRecord, called: &str) -> bool {
    let (called, digest) = match called.rsplit_once("/run/") {
        Some((node, digest)) => (node, Some(digest)),
        None => match called.strip_suffix("/run") {
            Some(node) => (node, None),
            None => return recorded.key == called,
        },
    };
    let Some((place, end @ ("run" | "failed"))) = recorded.key.rsplit_once('/') else { return false };
    // A failure has no digest of its request.
    let is_same = digest.is_none_or(|digest| end == "failed" || recorded.input_hash.starts_with(digest));
    is_same && without_number(without_number(place, '~'), '@') == called
}

/// The place without the number after `sign`.
fn without_number(place: &str, sign: char) -> &str {
    match place.rsplit_once(sign) {
        Some((first, number)) if number.parse::<u32>().is_ok() => first,
        _ => place,
    }
}

/// Checks that every API call is a recorded step of a turn, that repeated calls have the same key and the same request,
/// and that every recorded action has a call.
fn calls(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    let mut asked: HashMap<&str, &str> = HashMap::new();
    for call in &lane.api {
        let earlier = asked.entry(call.key.as_str()).or_insert(call.what.as_str());
        if *earlier != call.what {
            found.push(format!("{} was called with “{}”, then with “{}”", call.key, earlier, call.what));
        }
        let recorded = parts(&call.key).is_some_and(|(turn, step)| {
            lane.steps.get(turn).is_some_and(|steps| steps.iter().any(|recorded| records(recorded, step)))
                || lane.turns.iter().any(|record| {
                    record.turn_id == turn
                        && (was_given_up(record) || was_broken_off(record, lane.steps.get(turn), call))
                })
        });
        if !recorded {
            found.push(format!("{} was called, but no turn has recorded it", call.key));
        }
    }
    for (turn, steps) in &lane.steps {
        for step in steps.iter().filter(|step| matches!(step.kind.as_str(), "skill" | "handoff") && step.ok) {
            let seen = lane.api.iter().any(|call| parts(&call.key) == Some((turn, &step.key)));
            if !seen {
                found.push(format!("{turn}/{} is recorded, but was never called", step.key));
            }
        }
    }
    found
}

/// True if the turn was dead-lettered. Such a turn may have calls without a record.
fn was_given_up(turn: &TurnRecord) -> bool {
    let reason = turn.reason.as_deref().unwrap_or_default();
    ["attempts", "replay", "panic"].iter().any(|word| reason.starts_with(word))
}

/// True if an operator's cancellation interrupted the call: the turn recorded nothing after it.
fn was_broken_off(turn: &TurnRecord, steps: Option<&Vec<StepRecord>>, call: &SeenCall) -> bool {
    let by_human = |reason: &str| reason.starts_with("operator") || reason.starts_with("taken_over");
    let by_operator = turn.reason.as_deref().is_some_and(by_human);
    by_operator && steps.into_iter().flatten().all(|step| step.at <= call.at)
}

/// Checks that recorded steps did not run again.
fn repeats(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    for call in lane.api.iter().chain(&lane.model) {
        let Some((turn, key)) = parts(&call.key) else { continue };
        let mut steps = lane.steps.get(turn).into_iter().flatten().filter(|step| {
            // Another attempt may follow a failure.
            !step.key.ends_with("/failed") && records(step, key)
        });
        if let Some(step) = steps.find(|step| call.at > step.at) {
            let ms = step.at.until(call.at).as_millis();
            found.push(format!("{} ran again after it was recorded, {ms} ms later", call.key));
        }
    }
    found
}

/// Checks that no two turns of the session call a model or an API concurrently. Calls without an end are skipped: their
/// worker was killed.
fn overlaps(lane: &Lane) -> Vec<String> {
    let mut calls: Vec<_> = lane.model.iter().chain(&lane.api).collect();
    calls.sort_by_key(|call| call.began);
    let turn = |call: &SeenCall| parts(&call.key).map(|(turn, _)| turn.to_owned());
    let mut found = Vec::new();
    for (place, earlier) in calls.iter().enumerate() {
        let Some(ended) = earlier.ended else { continue };
        let overlapping = calls[place + 1..].iter().filter(|later| later.began < ended && turn(later) != turn(earlier));
        found.extend(overlapping.map(|later| format!("{} and {} overlap", earlier.key, later.key)));
    }
    found
}

/// Checks that no timer fired early or after its cancellation.
fn timers(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    for (place, turn) in lane.turns.iter().enumerate() {
        let JobBody::Timer { timer_id, name, due_at, .. } = &turn.job.body else { continue };
        if turn.outcome == Outcome::Noop {
            continue;
        }
        if turn.statuses.iter().any(|status| status.at < *due_at) {
            found.push(format!("timer {name} fired before it was due at {due_at}"));
        }
        match lane.turns[..place].iter().rposition(|armed| arms(armed, timer_id)) {
            None => found.push(format!("timer {name} fired, but no turn armed it")),
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
    let indexes = (0..16).chain([usize::MAX - 1, usize::MAX]);
    indexes.into_iter().any(|index| timer_id(&turn.session_id, &turn.turn_id, index) == id)
}

/// A user's turn cancels all timers, unless it only forwards the message to a human. A control command that changes the
/// session does so, too.
fn cancels(turn: &TurnRecord) -> bool {
    match &turn.job.body {
        JobBody::UserMessage(_) => !turn.statuses.is_empty(),
        JobBody::Control(Control { command: Command::CancelTimers, name: Some(_), .. }) => false,
        // These change only the timeout of a claim.
        JobBody::Control(Control { command: Command::Unclaim | Command::Transfer | Command::Note, .. }) => false,
        // A takeover changes the status, the claim of a conversation that is handed off does not.
        JobBody::Control(Control { command: Command::Claim, .. }) => !turn.statuses.is_empty(),
        JobBody::Control(_) => turn.outcome != Outcome::Noop,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(key: &str, input_hash: &str) -> StepRecord {
        let record = json!({"key": key, "kind": "node", "target": "HTTP", "input_hash": input_hash, "output": null,
            "ok": true, "ms": 0, "at": "2026-01-01T00:00:00Z"});
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn an_attempt_of_a_node_is_recorded_by_its_result_or_its_failure() {
        let recorded = |key: &str, called: &str| records(&step(key, "abcdef"), called);
        for key in ["0/g/a/run", "0/g/a/failed", "0/g/a~2/run", "0/g/a~12/failed", "0/g/a@1/run", "0/g/a@1~2/run"] {
            assert!(recorded(key, "0/g/a/run"), "{key}");
        }
        for key in ["0/g/a~x/run", "0/g/b/run", "0/g/a/0/model", "0/g/a", "0/act"] {
            assert!(!recorded(key, "0/g/a/run"), "{key}");
        }
        assert!(recorded("0/act", "0/act") && !recorded("0/act", "1/act"));
        assert!(recorded("0/g/a~2/run", "0/g/a/run/abc") && recorded("0/g/a~2/failed", "0/g/a/run/abc"));
        assert!(!recorded("0/g/a~2/run", "0/g/a/run/bcd"), "another request");
    }
}
