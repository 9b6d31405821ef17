//! Listing pending timers.

use crate::error::CommandError;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use storage::store::Store;
use storage::store::records::DueTimer;
use types::ids;
use types::timer::Timer;

/// A time span that is longer than the delay of any timer.
const FOREVER: Duration = Duration::from_secs(200 * 365 * 86_400);

/// A pending timer and its session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PendingTimer {
    /// The session that the timer belongs to.
    pub session_id: String,
    /// The timer.
    #[serde(flatten)]
    pub timer: Timer,
}

impl From<DueTimer> for PendingTimer {
    fn from(DueTimer { session_id, timer }: DueTimer) -> Self {
        Self { session_id, timer }
    }
}

/// Lists pending timers of one session, or of all sessions, earliest due time first.
pub async fn pending(
    store: &dyn Store,
    session_id: Option<&str>,
    limit: usize,
) -> Result<Vec<PendingTimer>, CommandError> {
    let Some(session_id) = session_id else {
        return Ok(store.due_timers(FOREVER, limit).await?.timers.into_iter().map(PendingTimer::from).collect());
    };
    ids::check("session_id", session_id)?;
    let session = store.session(session_id).await?.ok_or_else(|| CommandError::unknown_session(session_id))?;
    let of_session = |timer| PendingTimer { session_id: session_id.to_owned(), timer };
    let mut timers: Vec<_> = session.timers.into_iter().map(of_session).collect();
    timers.sort_by_key(|pending| pending.timer.due_at);
    timers.truncate(limit);
    Ok(timers)
}
