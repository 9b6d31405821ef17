//! A dialogue that an author on another server leads: its state and events become those of this dialogue.

use super::machine::NewDraft;
use super::recorder::{Recorder, attempt, workflow_id};
use std::collections::BTreeMap;
use types::authoring::message::DraftWritten;
use types::authoring::{AgentState, Body, Draft, Stage, StoredState};
use types::timestamp::Timestamp;

/// What the other author has shown since its last state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relayed {
    /// The events, in their order.
    pub events: Vec<Body>,
    /// The document among them, which is kept as a draft here.
    pub draft: Option<NewDraft>,
    /// The author's state after the events, with the fields that gRPC does not have.
    pub state: Option<StoredState>,
    /// True if the turn ends with the last event.
    pub is_final: bool,
}

/// Applies what another author has shown. Its draft is unchecked, so the next step of the dialogue is to check it here:
/// the author's report of its own checks is dropped.
pub fn relay(stored: &mut StoredState, relayed: Relayed, now: Timestamp) {
    let Relayed { mut events, draft, state, is_final } = relayed;
    let stage = stored.state.stage;
    if let Some(state) = state {
        adopt(stored, state);
    }
    // A status tells that a stage is entered.
    events.retain(|event| !matches!(event, Body::Status { content } if content.new_stage == stage));
    let Some(draft) = draft else {
        record(stored, events, is_final, now);
        return;
    };
    let workflow_id = workflow_id(stored);
    stored.state.workflow_id = Some(workflow_id.clone());
    let data = DraftWritten {
        hash: draft.hash.clone(),
        base_hash: draft.base_hash.clone(),
        definition: None,
        definition_url: None,
        tests: draft.tests,
        attempt: attempt(stored),
    };
    let NewDraft { hash, base_hash, cases, .. } = draft;
    stored.draft = Some(Draft { hash, base_hash, cases, ..Draft::default() });
    stored.state.stage = stage;
    events.retain(|event| matches!(event, Body::Message { .. } | Body::WorkflowGenerationStarted { .. }));
    events.push(Body::WorkflowDraft { workflow_id, data });
    record(stored, events, false, now).enter(Stage::Debug);
}

fn record(stored: &mut StoredState, events: Vec<Body>, is_final: bool, now: Timestamp) -> Recorder<'_> {
    let mut recorder = Recorder::new(stored, BTreeMap::new(), now);
    let count = events.len();
    for (index, event) in events.into_iter().enumerate() {
        recorder.push(event, is_final && index + 1 == count);
    }
    recorder
}

/// Takes the author's state over, but for the identity of the dialogue.
fn adopt(stored: &mut StoredState, author: StoredState) {
    let own = std::mem::take(&mut stored.state);
    stored.state = AgentState {
        session_id: own.session_id,
        user_id: own.user_id,
        workflow_id: own.workflow_id.or(author.state.workflow_id),
        workflow_context: own.workflow_context,
        created_at: own.created_at,
        ..author.state
    };
    stored.questions = author.questions;
    stored.resume_stage = author.resume_stage;
    stored.previous_stage = author.previous_stage;
    stored.gap_rounds = author.gap_rounds;
    stored.total_entries = stored.total_entries.max(author.total_entries);
}
