//! The state of a dialogue as it can be worked with, whatever is left of it.

use std::collections::BTreeMap;
use storage::store::{Store, StoreError};
use types::authoring::{Publish, Speaker, StoredState, WorkflowContext};
use types::session::{Role, Session};
use types::timestamp::Timestamp;

/// A state, and what was lost of it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The state, which the next save repairs.
    pub state: StoredState,
    /// What could not be read, if anything.
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

/// The state of a dialogue whose state is lost.
fn rebuilt(session: &Session, now: Timestamp) -> StoredState {
    let context = WorkflowContext::default();
    let mut stored = StoredState::new(String::new(), &session.session_id, &session.user_id, context, now);
    // What the dialogue was to make is lost with its state, so nothing is published by itself.
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
