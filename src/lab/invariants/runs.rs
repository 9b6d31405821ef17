//! Checks the events of workflow runs: each turn of a run has one end, no event is published twice, and none follows
//! the end.

use super::evidence::Lane;
use engine::workflow::orchestration::event::{RunEvent, RunEventType};
use std::collections::HashSet;
use types::event::Event;
use types::job::JobBody;
use types::outcome::Outcome;
use types::run::{RunRecord, RunStatus};
use types::turn::TurnRecord;

pub(super) fn check(lane: &Lane) -> Vec<String> {
    let mut found = Vec::new();
    let mut known = HashSet::new();
    for event in &lane.run_events {
        if !known.insert(&event.event_id) {
            found.push(format!("run event {} is on the stream twice", event.event_id));
        }
    }
    found.extend(decisions(lane));
    for run in &lane.runs {
        let events: Vec<_> = lane.run_events.iter().filter(|event| event.root_run_id == run.run_id).collect();
        found.extend(ends(lane, run, &events).into_iter().map(|what| format!("run {}: {what}", run.run_id)));
    }
    found
}

/// Checks that no event of a run's decision is repeated, and that verdicts follow their decision.
fn decisions(lane: &Lane) -> Vec<String> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for event in lane.events.iter().filter_map(|event| match event {
        Event::Decision(event) if event["run_id"].is_string() => Some(event),
        _ => None,
    }) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let (id, kind) = (text("decision_id"), text("type"));
        if matches!(kind.as_str(), "decision_validated" | "decision_rejected")
            && !known.contains(&(id.clone(), "decision_made".to_owned()))
        {
            found.push(format!("{kind} of {id} is on the stream before its decision"));
        }
        if !known.insert((id.clone(), kind.clone())) {
            found.push(format!("{kind} of {id} is on the stream twice"));
        }
    }
    found
}

fn ends(lane: &Lane, run: &RunRecord, events: &[&RunEvent]) -> Vec<String> {
    let mut found = Vec::new();
    let waiting = lane.session.as_ref().and_then(|session| session.waiting.as_ref()?.run_id.as_ref());
    let waits = waiting == Some(&run.run_id);
    if waits != (run.status == RunStatus::Waiting) || (!waits && !run.status.has_ended()) {
        found.push(format!("it remains {}", run.status.as_str()));
    }
    let of_root = |event: &&&RunEvent| event.run_id == run.run_id && event.depth == 0;
    let last = |event: &RunEvent| matches!(event.kind, RunEventType::RunCompleted | RunEventType::RunFailed);
    let ends: Vec<_> = events.iter().filter(of_root).filter(|event| last(event)).collect();
    // In a run's own lane, each start ends the run, possibly in a later turn, when the run has waited. Within a session, the
    // run ends with the session's turn.
    let own = run.lane == run.run_id;
    let starts = |turn: &&TurnRecord| turn.outcome != Outcome::Noop && matches!(turn.job.body, JobBody::Run { .. });
    let started = lane.turns.iter().filter(starts).count();
    let expected = if own { started.saturating_sub(usize::from(waits)) } else { usize::from(!waits) };
    if ends.len() != expected {
        found.push(format!("it has {} end events, expected {expected}", ends.len()));
    }
    let begun = events.iter().filter(of_root).filter(|event| event.kind == RunEventType::RunStarted).count();
    if begun > 1 {
        found.push(format!("it began {begun} times"));
    }
    let Some(end) = ends.last() else { return found };
    let after = events.iter().rev().take_while(|event| event.event_id != end.event_id);
    let after: Vec<_> = after.map(|event| event.event_id.as_str()).collect();
    if !after.is_empty() {
        found.push(format!("events follow its end: {}", after.join(", ")));
    }
    let completed = end.kind == RunEventType::RunCompleted;
    if completed != (run.status == RunStatus::Completed) {
        found.push(format!("its status is {}, but its last event is {}", run.status.as_str(), end.kind.as_str()));
    }
    let output = end.data.as_ref().and_then(|data| data.get("output")?.as_str());
    if completed && output != run.output.as_deref() {
        found.push(format!("its output is {:?}, but its last event has {output:?}", run.output));
    }
    found
}
