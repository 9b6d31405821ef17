//! Checks authoring dialogues: one readable state for each, whose conversation has each message of the user once,
//! exactly one last event of each turn, and one published version for each document that was completed.

use super::evidence::Lane;
use std::collections::{BTreeMap, BTreeSet};
use types::authoring::state::{MAX_BYTES, MAX_ENTRIES};
use types::authoring::{Body, ErrorCode, Event, Loaded, Speaker};
use types::event;
use types::outcome::Outcome;
use types::session::Kind;
use types::turn::TurnRecord;

/// A dialogue as it is stored.
pub(super) struct StoredDialogue {
    /// The readable part of the state; `None` if the state is missing.
    pub(super) state: Option<Loaded>,
    /// How many states the session has.
    pub(super) states: usize,
    /// Versions of the artefact that are or were in use.
    pub(super) versions: u64,
    /// The hash of the document in use.
    pub(super) in_use: Option<String>,
}

pub(super) fn check(lane: &Lane) -> Vec<String> {
    let Some(session) = lane.session.as_ref().filter(|session| session.kind == Kind::Authoring) else {
        return Vec::new();
    };
    let Some(dialogue) = &lane.dialogue else { return Vec::new() };
    let mut found = Vec::new();
    if dialogue.states != 1 {
        found.push(format!("the dialogue has {} states", dialogue.states));
    }
    let Some(loaded) = &dialogue.state else { return found };
    found.extend(loaded.problems.iter().map(|problem| format!("the state of the dialogue is damaged: {problem}")));
    let state = &loaded.state.state;
    if state.session_id != session.session_id {
        found.push(format!("the state of the dialogue names the session {}", state.session_id));
    }
    if loaded.state.in_turn() && !lane.turns.last().is_some_and(is_abandoned) {
        found.push("the state of the dialogue is within a turn, but the lane is at rest".to_owned());
    }
    found.extend(conversation(lane, loaded));
    found.extend(ends(lane));
    found.extend(publications(lane, dialogue));
    found
}

/// True if the turn was cancelled or dead-lettered. Then its progress is unknown.
fn is_abandoned(turn: &TurnRecord) -> bool {
    turn.outcome == Outcome::Cancelled
}

/// True if the state may lack the message of the turn: the turn was abandoned, the message was refused, or another
/// program has changed the state.
fn may_lack(turn: &TurnRecord) -> bool {
    let refused = [ErrorCode::EmptyMessage, ErrorCode::MessageTooLarge, ErrorCode::MaxTurns, ErrorCode::StateConflict];
    is_abandoned(turn) || turn.reason.as_deref().and_then(ErrorCode::parse).is_some_and(|code| refused.contains(&code))
}

/// Checks that the conversation has each message of the user once, in order.
fn conversation(lane: &Lane, loaded: &Loaded) -> Vec<String> {
    let entries = &loaded.state.state.conversations;
    let kept: Vec<&str> =
        entries.iter().filter(|entry| entry.role == Speaker::User).map(|entry| entry.text.as_str()).collect();
    let turns = lane.turns.iter().filter_map(|turn| Some((turn, turn.job.user_message()?.text.as_str())));
    let sent: Vec<(&TurnRecord, &str)> = turns.collect();
    // The conversation is bounded, so its oldest entries may be dropped.
    let bytes: usize = entries.iter().map(|entry| entry.text.len()).sum();
    let is_full = entries.len() >= MAX_ENTRIES || bytes >= MAX_BYTES / 2;
    let mut left = kept.iter().rev().peekable();
    for (turn, text) in sent.iter().rev() {
        match left.peek() {
            Some(last) if *last == text => drop(left.next()),
            _ if may_lack(turn) => {}
            None if is_full => break,
            _ => {
                return vec![format!(
                    "the conversation has the user's messages {kept:?}, but {:?} were sent",
                    texts(&sent)
                )];
            }
        }
    }
    match left.next() {
        None => Vec::new(),
        Some(_) => vec![format!("the conversation has the user's messages {kept:?}, but {:?} were sent", texts(&sent))],
    }
}

fn texts<'a>(sent: &[(&TurnRecord, &'a str)]) -> Vec<&'a str> {
    sent.iter().map(|(_, text)| *text).collect()
}

/// The events of the dialogue, by turn and number. A repeated event has the number of its first publication.
fn events(lane: &Lane) -> BTreeMap<&str, BTreeMap<u64, &Event>> {
    let mut found: BTreeMap<&str, BTreeMap<u64, &Event>> = BTreeMap::new();
    for event in &lane.events {
        if let event::Event::Authoring(event) = event {
            // Pieces of a text are numbered separately.
            if matches!(&event.body, Body::Message { content: None, .. }) {
                continue;
            }
            found.entry(&event.turn_id).or_default().entry(event.seq).or_insert(event.as_ref());
        }
    }
    found
}

/// Checks that each turn has exactly one last event, after its other events.
fn ends(lane: &Lane) -> Vec<String> {
    let (mut found, events) = (Vec::new(), events(lane));
    for turn in lane.turns.iter().filter(|turn| turn.job.user_message().is_some()) {
        let Some(of_turn) = events.get(turn.turn_id.as_str()) else {
            found.push(format!("turn {} has published no event of its dialogue", turn.turn_id));
            continue;
        };
        let last: Vec<u64> = of_turn.iter().filter(|(_, event)| event.is_final).map(|(seq, _)| *seq).collect();
        let is_last = last.last() == of_turn.keys().next_back();
        // An abandoned turn may have published a last event before it failed.
        if last.is_empty() || !is_last || (last.len() > 1 && !is_abandoned(turn)) {
            let all: Vec<&u64> = of_turn.keys().collect();
            found.push(format!("turn {} has the last events {last:?} of {all:?}", turn.turn_id));
        }
    }
    let strangers = events.keys().filter(|id| !lane.turns.iter().any(|turn| turn.turn_id == **id));
    found.extend(strangers.map(|id| format!("events of the dialogue belong to turn {id}, which is not committed")));
    found
}

/// Checks that each completed document was published at most once, and that the document in use is one of them.
fn publications(lane: &Lane, dialogue: &StoredDialogue) -> Vec<String> {
    let Some(loaded) = &dialogue.state else { return Vec::new() };
    let (mut found, mut published) = (Vec::new(), BTreeSet::new());
    for event in events(lane).values().flat_map(BTreeMap::values) {
        if let Body::WorkflowComplete { data, .. } = &event.body
            && data.published
        {
            published.insert(data.hash.as_str());
        }
    }
    let by_hand = loaded.state.published.as_ref().map(|published| published.hash.as_str());
    published.extend(by_hand);
    let is_edit = !loaded.state.state.workflow_context.source_workflow_id.is_empty();
    let most = published.len() as u64;
    if dialogue.versions > most && !is_edit && !lane.turns.iter().any(is_abandoned) {
        found.push(format!("{} versions are in use, but {most} documents were published", dialogue.versions));
    }
    if let Some(hash) = by_hand
        && dialogue.in_use.as_deref() != Some(hash)
    {
        found.push(format!("the dialogue has published {hash}, but {:?} is in use", dialogue.in_use));
    }
    found
}
