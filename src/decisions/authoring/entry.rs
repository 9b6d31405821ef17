//! Begins a turn, and ends a turn after a failure.

use super::choice::choose;
use super::recorder::Recorder;
use std::collections::BTreeMap;
use types::authoring::state::{ALTERNATIVE, MAX_MESSAGE};
use types::authoring::{ErrorCode, Origin, Purpose, Speaker, Stage, StoredState, TurnState};
use types::timestamp::Timestamp;

/// Begins a turn with a message of the user. A refused message ends the turn and is not counted.
pub fn begin(stored: &mut StoredState, turn_id: &str, message: &str, now: Timestamp) {
    stored.turn = Some(TurnState { turn_id: turn_id.to_owned(), ..TurnState::default() });
    let refused = if message.trim().is_empty() {
        Some((ErrorCode::EmptyMessage, String::new()))
    } else if message.len() > MAX_MESSAGE {
        Some((ErrorCode::MessageTooLarge, format!("{} bytes; a message may have {MAX_MESSAGE}", message.len())))
    } else if stored.turns >= stored.config.max_turns {
        let most = stored.config.max_turns;
        Some((
            ErrorCode::MaxTurns,
            format!("{} of {most} turns are used; config.max_turns raises the limit", stored.turns),
        ))
    } else {
        None
    };
    if let Some((code, details)) = refused {
        let mut recorder = Recorder::new(stored, BTreeMap::new(), now);
        recorder.tell_stage();
        recorder.fail(code, &details);
        return;
    }
    stored.turns = stored.turns.saturating_add(1);
    stored.total_entries = stored.total_entries.saturating_add(1);
    stored.state.say(Speaker::User, message, BTreeMap::new(), now);
    enter(stored, message, now);
    let chosen = chosen(stored, message);
    let mut recorder = Recorder::new(stored, BTreeMap::new(), now);
    recorder.tell_stage();
    if let Some((gap, approach)) = chosen {
        recorder.stored.state.collect(&format!("{ALTERNATIVE}{gap}"), &approach);
        recorder.enter(Stage::Negotiation);
    } else if recorder.stored.state.stage == Stage::WorkflowGeneration {
        recorder.tell_generation();
    }
}

/// Begins a turn without a message, from the state of an interrupted turn. Returns false, and changes nothing, if the
/// dialogue waits for the user.
pub fn go_on(stored: &mut StoredState, turn_id: &str, now: Timestamp) -> bool {
    if !stored.state.goes_on() {
        return false;
    }
    stored.turn = Some(TurnState { turn_id: turn_id.to_owned(), ..TurnState::default() });
    leave_error(stored);
    let mut recorder = Recorder::new(stored, BTreeMap::new(), now);
    recorder.tell_stage();
    if recorder.stored.state.stage == Stage::WorkflowGeneration {
        recorder.tell_generation();
    }
    true
}

/// Ends the turn with a failure. The four failures that belong to the dialogue put it into the stage `error`.
pub fn fault(stored: &mut StoredState, code: ErrorCode, details: &str, now: Timestamp) {
    Recorder::new(stored, BTreeMap::new(), now).end(code, details);
}

/// Ends a turn that another attempt has begun, or that has published nothing. Its events are numbered from `next` on.
pub fn leave(stored: &mut StoredState, code: ErrorCode, details: &str, next: u64, now: Timestamp) {
    let turn = stored.turn.get_or_insert_default();
    let is_silent = next == 0 && turn.seq == 0;
    turn.seq = turn.seq.max(next);
    turn.ended = false;
    let mut recorder = Recorder::new(stored, BTreeMap::new(), now);
    if is_silent {
        recorder.tell_stage();
    }
    recorder.end(code, details);
}

/// Returns the stage in which a message begins.
fn enter(stored: &mut StoredState, message: &str, now: Timestamp) {
    stored.state.updated_at = now;
    let context = &mut stored.state.workflow_context;
    if context.origin != Origin::Create && context.modification_intent.is_empty() {
        message.clone_into(&mut context.modification_intent);
    }
    if stored.state.stage == Stage::Completed {
        message.clone_into(&mut stored.state.workflow_context.modification_intent);
        stored.state.clarification_context.purpose = Purpose::TemplateModification;
        stored.state.clarification_context.pending_questions.clear();
        stored.questions.clear();
        (stored.previous_stage, stored.state.stage) = (Stage::Completed, Stage::Negotiation);
    }
    leave_error(stored);
}

fn leave_error(stored: &mut StoredState) {
    if stored.state.stage == Stage::Error {
        let resumed = stored.resume_stage.filter(|stage| !matches!(stage, Stage::Error | Stage::Completed));
        (stored.previous_stage, stored.state.stage) = (Stage::Error, resumed.unwrap_or(Stage::Clarification));
    }
    stored.resume_stage = None;
}

/// Returns the gap that the message closes, and the chosen alternative.
fn chosen(stored: &StoredState, message: &str) -> Option<(String, String)> {
    if stored.state.stage != Stage::AlternativeGeneration {
        return None;
    }
    let one = choose(&stored.state.alternatives, message)?;
    let gap = match (one.resolves.as_str(), stored.state.gaps.as_slice()) {
        ("", [gap]) => gap,
        ("", _) => &one.id,
        (gap, _) => gap,
    };
    let how = [one.title.as_str(), &one.approach].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    Some((gap.to_owned(), how.join(": ")))
}
