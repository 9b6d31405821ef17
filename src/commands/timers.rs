//! Listing pending timers.

use crate::error::CommandError;
use crate::paging::{Listing, fit, part_of};
use serde::{Deserialize, Serialize};
use storage::store::Store;
use storage::store::records::{DueTimer, TimerPlace};
use types::ids;
use types::page::Bounds;
use types::timer::Timer;

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
    bounds: Bounds<TimerPlace>,
) -> Result<Listing<PendingTimer>, CommandError> {
    let page = match session_id {
        None => store.timers_page(bounds).await?.map(PendingTimer::from),
        Some(session_id) => {
            ids::check("session_id", session_id)?;
            let session = store.session(session_id).await?.ok_or_else(|| CommandError::unknown_session(session_id))?;
            let of_session = |timer| PendingTimer { session_id: session_id.to_owned(), timer };
            let mut timers: Vec<_> = session.timers.into_iter().map(of_session).collect();
            timers.sort_by_cached_key(place);
            part_of(timers, &bounds, |timer, after| place(timer) > *after)
        }
    };
    Ok(fit(page, place))
}

fn place(PendingTimer { session_id, timer }: &PendingTimer) -> TimerPlace {
    (timer.due_at, (session_id.clone(), timer.timer_id.clone()))
}
