//! Authoring dialogues: their sessions, and their states in `workflow_agent_states`.

use super::Result;
use async_trait::async_trait;
use types::authoring::{Artifact, Loaded, Stage, StoredState};
use types::session::{Kind, Session};
use types::timestamp::Timestamp;

/// A dialogue to create.
#[derive(Clone, Debug)]
pub struct NewAuthoring {
    /// The agent of the session.
    pub agent_id: String,
    /// The channel under which its events are published.
    pub channel: String,
    /// The state, which also names session and user. Its version is ignored.
    pub state: StoredState,
}

impl NewAuthoring {
    /// Returns the session of the dialogue. `epoch` is its first epoch.
    pub fn session(&self, epoch: u64, now: Timestamp) -> Session {
        Session {
            agent_id: self.agent_id.clone(),
            channel: self.channel.clone(),
            user_id: self.state.state.user_id.clone(),
            kind: Kind::Authoring,
            epoch,
            ..Session::new(&self.state.state.session_id, now)
        }
    }
}

/// A state to save.
#[derive(Clone, Debug)]
pub struct SaveAuthoring {
    /// The state, with the version of the state that was read, or 0 if there was no state.
    pub state: StoredState,
    /// The epoch of the caller's lease. Without it, the caller saves between two turns.
    pub epoch: Option<u64>,
}

/// The result of a [`SaveAuthoring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The state is saved under this version.
    Saved(u64),
    /// The stored state has another version: another program has written it. Nothing is changed.
    Conflict,
    /// The caller's epoch is stale, or the session does not exist. For a caller without a lease: a turn is open.
    /// Nothing is changed.
    Fenced,
}

/// A filter for listing dialogues.
#[derive(Clone, Debug, Default)]
pub struct AuthoringQuery {
    /// Only dialogues of this user.
    pub user_id: Option<String>,
    /// Only dialogues in this stage.
    pub stage: Option<Stage>,
    /// Only dialogues that have not changed since this time.
    pub before: Option<Timestamp>,
    /// Only dialogues after this position of the listing: the time of the last change, and the session.
    pub after: Option<(Timestamp, String)>,
    /// The largest number of dialogues to return.
    pub limit: usize,
}

/// A dialogue in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthoringSummary {
    /// The session.
    pub session_id: String,
    /// Its user.
    pub user_id: String,
    /// The current stage.
    pub stage: Stage,
    /// The kind of artefact that the dialogue makes.
    pub artifact: Artifact,
    /// The user's wish, in one sentence.
    pub intent_summary: String,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// True if there is a document.
    pub has_workflow: bool,
}

impl From<StoredState> for AuthoringSummary {
    fn from(stored: StoredState) -> Self {
        Self {
            has_workflow: stored.has_workflow(),
            artifact: stored.artifact,
            session_id: stored.state.session_id,
            user_id: stored.state.user_id,
            stage: stored.state.stage,
            intent_summary: stored.state.intent_summary,
            updated_at: stored.state.updated_at,
        }
    }
}

/// The states of authoring dialogues.
///
/// The worker that holds a dialogue's lane saves its state, under the epoch of its lease. The deletion of a session
/// ([`Erasure::erase_records`](super::Erasure::erase_records)) deletes its state, and the deletion of a workflow or
/// agent leaves no state that names it.
#[async_trait]
pub trait Authoring {
    /// Creates the session of a dialogue together with its state. Durable on return. Returns false, and changes
    /// nothing, if a session with this id exists.
    async fn create_authoring(&self, new: NewAuthoring) -> Result<bool>;

    /// Returns the readable part of a dialogue's state. The next save repairs a damaged state.
    async fn authoring(&self, session_id: &str) -> Result<Option<Loaded>>;

    /// Saves a state together with the session's `agent_stage`, if no other state was saved since the caller read it,
    /// and the caller's lease is valid. Durable on return. If an earlier attempt of the same save has succeeded,
    /// returns [`Saved::Saved`], too.
    async fn save_authoring(&self, save: SaveAuthoring) -> Result<Saved>;

    /// Returns dialogues, the last changed first. Dialogues with the same time are ordered by id, descending.
    async fn authorings(&self, query: AuthoringQuery) -> Result<Vec<AuthoringSummary>>;
}
