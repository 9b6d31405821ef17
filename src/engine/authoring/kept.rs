//! Reads the state of a dialogue. What is damaged or missing is repaired.

use std::collections::BTreeMap;
use storage::store::{Store, StoreError};
use types::authoring::{Publish, Speaker, StoredState, WorkflowContext};
use types::session::{Role, Session};
use types::timestamp::Timestamp;

/// A state that was read, and its damage.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The state, which the next save repairs.
    pub state: StoredState,
    /// The fields that could not be read.
    pub problem: Option<String>,
}

/// Loads the state of a dialogue. A damaged one is repaired, and a missing one begins again with the session's history.
pub async fn state(store: &dyn Store, session: &Session, now: Timestamp) -> Result<Kept, StoreError> {
    let (mut state, problem) = match store.authoring(&session.session_id).await? {
        Some(loaded) => {
            let problem = (!loaded.problems.is_empty()).then(|| loaded.problems.join("; "));
            (loaded.repaired(now), problem)
        }
        None => (rebuilt(session, now), Some("the state is missing".to_owned())),
    };
    if state.id.is_empty() {
        state.id = uuid::Uuid::new_v4().to_string();
    }
    if state.state.user_id.is_empty() {
        state.state.user_id.clone_from(&session.user_id);
    }
    Ok(Kept { state, problem })
}

/// Builds a new state for a dialogue whose state is missing, from the session's history.
fn rebuilt(session: &Session, now: Timestamp) -> StoredState {
    let context = WorkflowContext::default();
    let mut stored = StoredState::new(String::new(), &session.session_id, &session.user_id, context, now);
    // The settings are lost with the state, so the dialogue must not publish without a request.
    stored.publish = Publish::Manual;
    for entry in session.history.iter() {
        let speaker = if entry.role == Role::User { Speaker::User } else { Speaker::Assistant };
        stored.state.say(speaker, &entry.text, BTreeMap::new(), entry.at);
        stored.turns += u32::from(speaker == Speaker::User);
        stored.total_entries += 1;
    }
    stored.repaired_at = Some(now);
    stored
}
