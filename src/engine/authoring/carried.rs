//! Converts the state of a dialogue for the wire. The wire format has no field for some data that this engine needs to
//! resume a dialogue. That data travels in the metadata of the last entry, which a caller must return unchanged.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::authoring::{AgentState, ClarificationQuestion, GapRounds, Speaker, Stage, StoredState};

/// The name in the metadata.
const NAME: &str = "turnwheel";

/// The parts of a stored state without a field on the wire.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Carried {
    resume_stage: Option<Stage>,
    previous_stage: Stage,
    turns: u32,
    total_entries: u32,
    questions: Vec<ClarificationQuestion>,
    gap_rounds: Vec<GapRounds>,
    /// The gap that each alternative closes.
    resolves: BTreeMap<String, String>,
}

/// Returns the state for the caller.
pub fn carried(stored: &StoredState) -> AgentState {
    let mut state = stored.state.clone();
    let resolves = state.alternatives.iter().map(|one| (one.id.clone(), one.resolves.clone()));
    let carried = Carried {
        resume_stage: stored.resume_stage,
        previous_stage: stored.previous_stage,
        turns: stored.turns,
        total_entries: stored.total_entries,
        questions: stored.questions.clone(),
        gap_rounds: stored.gap_rounds.clone(),
        resolves: resolves.filter(|(_, gap)| !gap.is_empty()).collect(),
    };
    if let (Some(last), Ok(carried)) = (state.conversations.last_mut(), serde_json::to_string(&carried)) {
        last.metadata.insert(NAME.to_owned(), carried);
    }
    state
}

/// Restores a caller's state. `id` becomes the id of the state, and of an artefact that has none yet. A state from
/// another server has no such metadata; the dialogue then continues with the fields of the wire.
pub fn restored(mut state: AgentState, id: String) -> StoredState {
    let mut found = None;
    for entry in &mut state.conversations {
        found = entry.metadata.remove(NAME);
    }
    let said = state.conversations.iter().filter(|entry| entry.role == Speaker::User).count();
    let unknown = || Carried {
        turns: u32::try_from(said).unwrap_or(u32::MAX),
        total_entries: u32::try_from(state.conversations.len()).unwrap_or(u32::MAX),
        ..Carried::default()
    };
    let carried = found.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_else(unknown);
    let Carried { resume_stage, previous_stage, turns, total_entries, questions, gap_rounds, mut resolves } = carried;
    for alternative in &mut state.alternatives {
        alternative.resolves = resolves.remove(&alternative.id).unwrap_or_default();
    }
    StoredState {
        id,
        state,
        resume_stage,
        previous_stage,
        turns,
        total_entries,
        questions,
        gap_rounds,
        ..StoredState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::authoring::{AlternativeOption, WorkflowContext};
    use types::timestamp::Timestamp;

    fn stored() -> StoredState {
        let now = Timestamp::from_millis(1);
        let mut stored = StoredState::new("i".into(), "s", "anna", WorkflowContext::default(), now);
        stored.state.say(Speaker::User, "你好", BTreeMap::new(), now);
        stored.state.say(Speaker::Assistant, "哪个城市？", BTreeMap::new(), now);
        stored.state.alternatives =
            vec![AlternativeOption { id: "a".into(), resolves: "短信".into(), ..AlternativeOption::default() }];
        stored.state.stage = Stage::Error;
        (stored.resume_stage, stored.turns, stored.total_entries) = (Some(Stage::Negotiation), 1, 2);
        stored.questions = vec![ClarificationQuestion { id: "q1".into(), ..ClarificationQuestion::default() }];
        stored.gap_rounds = vec![GapRounds { gap: "短信".into(), rounds: 2 }];
        stored
    }

    #[test]
    fn a_state_comes_back_as_it_was() {
        let mut sent = carried(&stored());
        sent.alternatives[0].resolves.clear();
        assert_eq!(restored(sent, "i".into()), stored());
    }

    #[test]
    fn a_state_of_another_server_goes_on() {
        let StoredState { state, .. } = stored();
        let restored = restored(state, "i".into());
        assert_eq!((restored.turns, restored.total_entries, restored.resume_stage), (1, 2, None));
        let mut broken = carried(&stored());
        broken.conversations[1].metadata.insert(NAME.into(), "[".into());
        assert_eq!(super::restored(broken, "i".into()).turns, 1);
    }
}
