//! Deletion of sessions, of a user's data, of agents, workflows and dead letters.
//!
//! [`engine::erasure`] deletes a session with everything that belongs to it. This module finds what to delete.

use crate::dead_letters::{self, DeadLetterSummary};
use crate::error::{CommandError, ErrorKind};
use crate::messages::require_known;
pub use engine::erasure::DeletedData;
use engine::erasure::{ErasureError, LaneErasure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use storage::queue::{Queue, StoredDeadLetter};
use storage::store::Store;
use tracing::info;
use types::ids;

/// The most sessions of a user that a call deletes.
pub const MAX_SESSIONS: usize = 100;

/// A deleted session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedSession {
    /// The id of the session.
    pub session_id: String,
    /// The numbers of deleted things.
    #[serde(flatten)]
    pub deleted: DeletedData,
}

/// The deleted data of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedUser {
    /// The id of the user.
    pub user_id: String,
    /// False if the user has more sessions than one request deletes: repeat the request.
    pub complete: bool,
    /// The numbers of deleted things.
    #[serde(flatten)]
    pub deleted: DeletedData,
}

/// A deleted dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedLetter {
    /// The number of the letter.
    pub seq: u64,
    /// The session of its job.
    pub session_id: String,
}

/// Deletes sessions and what belongs to them.
#[derive(Clone, Copy)]
pub struct Deletion<'a> {
    queue: &'a dyn Queue,
    store: &'a dyn Store,
    erasure: LaneErasure<'a>,
}

impl<'a> Deletion<'a> {
    /// A deletion in this queue and store. `ack_wait` is the workers' setting.
    pub fn new(queue: &'a dyn Queue, store: &'a dyn Store, ack_wait: Duration) -> Self {
        Self { queue, store, erasure: LaneErasure::new(queue, store, ack_wait) }
    }

    /// Deletes a session, or a run in a lane of its own, with everything that belongs to it. Durable on return. Takes
    /// milliseconds if no worker is in the lane, else at most about the time `worker.ack_wait`.
    pub async fn session(self, session_id: &str) -> Result<DeletedSession, CommandError> {
        ids::check("session_id", session_id)?;
        if self.store.run(session_id).await?.is_none() {
            require_known(self.queue, self.store, session_id).await?;
        }
        let deleted = self.erasure.session(session_id).await?;
        info!(session_id, "session deleted: {}", deleted.words());
        Ok(DeletedSession { session_id: session_id.to_owned(), deleted })
    }

    /// Deletes the sessions and runs of a user, and the dead letters of the user's messages. Fails with `unknown_user`
    /// if the user has no data.
    pub async fn user(self, user_id: &str) -> Result<DeletedUser, CommandError> {
        ids::check("user_id", user_id)?;
        let found = self.store.lanes_of_user(user_id, MAX_SESSIONS + 1).await?;
        let mut deleted = DeletedData::default();
        for session_id in found.iter().take(MAX_SESSIONS) {
            deleted.add(&self.erasure.session(session_id).await?);
        }
        deleted.dead_letters += self.erasure.letters(|kept| names_user(kept, user_id)).await?;
        if deleted == DeletedData::default() {
            let message = format!("there is no data of user `{user_id}`");
            let hint = "`turnwheel sessions list` shows the users of sessions";
            return Err(CommandError::new(ErrorKind::NotFound, "unknown_user", message, hint));
        }
        info!("data of a user deleted: {}", deleted.words());
        Ok(DeletedUser { user_id: user_id.to_owned(), complete: found.len() <= MAX_SESSIONS, deleted })
    }

    /// Deletes one dead letter, by its number or its job id.
    pub async fn letter(self, which: &str) -> Result<DeletedLetter, CommandError> {
        let kept = dead_letters::find(self.queue, which).await?;
        self.queue.remove_dead_letter(kept.seq).await?;
        let DeadLetterSummary { seq, session_id, .. } = DeadLetterSummary::from(&kept);
        Ok(DeletedLetter { seq, session_id })
    }
}

fn names_user(kept: &StoredDeadLetter, user_id: &str) -> bool {
    #[derive(Deserialize)]
    struct OfUser {
        user_id: Option<String>,
    }
    serde_json::from_slice::<OfUser>(&kept.letter.payload).is_ok_and(|job| job.user_id.as_deref() == Some(user_id))
}

impl From<ErasureError> for CommandError {
    fn from(error: ErasureError) -> Self {
        match error {
            ErasureError::Store(error) => error.into(),
            ErasureError::Queue(error) => error.into(),
            ErasureError::Overtaken(_) => {
                Self::unavailable("deletion_overtaken", error.to_string(), "repeat the deletion")
            }
        }
    }
}
