//! Deletes expired data during the scheduler's housekeeping: closed conversations, unchanged authoring dialogues, and
//! unused versions of agents and workflows. Each round has a limited amount of work.

use super::housekeeping;
use crate::erasure::{LaneErasure, session_of};
use base::clock::{Clock, Moment};
use base::config::Settings;
use base::metrics::metrics;
use futures::{FutureExt, StreamExt, stream};
use std::collections::HashSet;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::authoring::AuthoringQuery;
use storage::store::{ExpiredVersions, Store};
use tokio::sync::Mutex;
use tracing::{debug, info, warn};
use types::session::Session;
use types::timestamp::Timestamp;

/// The most conversations that are deleted in a round.
const MAX_SESSIONS: usize = 500;
/// The number of conversations that are deleted at the same time.
const CONCURRENT_DELETIONS: usize = 4;
/// The most versions of agents, versions of workflows, and plans that are looked at in a round.
const MAX_VERSIONS: usize = 5_000;
/// The interval at which versions are looked at.
const VERSIONS_INTERVAL: Duration = Duration::from_secs(600);
/// How much longer than the turns and runs that name it an unused version is kept at least. A worker stores a version
/// again after a shorter time.
const MARGIN: Duration = Duration::from_secs(86_400);

/// The expiry of the process that leads.
pub(super) struct Expiry {
    /// The setting `retention.closed_sessions`; `None` if it is 0.
    closed_for: Option<Duration>,
    /// The setting `retention.authoring`.
    dialogues_for: Duration,
    /// How long a version is kept after its last use.
    unused_for: Duration,
    /// The setting `worker.ack_wait`.
    ack_wait: Duration,
    clock: Clock,
    /// When versions were looked at. Locked during a round, since a slow round must not overlap with the next one.
    looked_at: Mutex<Option<Moment>>,
}

impl Expiry {
    pub(super) fn new(settings: &Settings, clock: Clock) -> Self {
        let closed_for = Some(settings.retention.closed_sessions.0).filter(|closed_for| !closed_for.is_zero());
        let unused_for = settings.retention.versions.0.max(settings.retention.turns.0 + MARGIN);
        let dialogues_for = settings.retention.authoring.0;
        Self {
            closed_for,
            dialogues_for,
            unused_for,
            ack_wait: settings.worker.ack_wait.0,
            clock,
            looked_at: Mutex::default(),
        }
    }

    /// Deletes expired data. Does nothing while a round is running.
    pub(super) async fn expire(&self, queue: &dyn Queue, store: &dyn Store) {
        let Ok(mut looked_at) = self.looked_at.try_lock() else { return };
        if let Some(closed_for) = self.closed_for {
            self.sessions(queue, store, closed_for).await;
        }
        self.dialogues(queue, store).await;
        let now = self.clock.moment();
        if looked_at.is_none_or(|at| at.until(now) >= VERSIONS_INTERVAL) {
            *looked_at = Some(now);
            self.versions(store).await;
        }
    }

    async fn sessions(&self, queue: &dyn Queue, store: &dyn Store, closed_for: Duration) {
        let found = match store.closed_sessions(closed_for, MAX_SESSIONS).await {
            Ok(found) => found,
            Err(error) => return warn!("reading closed sessions failed: {error}"),
        };
        let sessions = self.delete_all(queue, store, &found).await;
        if sessions > 0 {
            info!(sessions, "deleted conversations that were closed for longer than retention.closed_sessions");
        }
    }

    /// Deletes dialogues that have not changed for `retention.authoring`. A dialogue that is open is closed first, and
    /// deleted in a later round, unless a message reopens it.
    async fn dialogues(&self, queue: &dyn Queue, store: &dyn Store) {
        let before = Some(self.clock.now().minus(self.dialogues_for));
        let query = AuthoringQuery { before, limit: MAX_SESSIONS, ..AuthoringQuery::default() };
        let idle = match store.authorings(query).await {
            Ok(idle) => idle,
            Err(error) => return warn!("reading idle authoring dialogues failed: {error}"),
        };
        let mut closed = Vec::new();
        for dialogue in idle {
            match store.session(&dialogue.session_id).await {
                Ok(Some(Session { session_id, closed_at: Some(at), .. })) => closed.push((session_id, at)),
                Ok(Some(session)) => housekeeping::close_idle(queue, &session.session_id, session.last_seq).await,
                Ok(None) => {}
                Err(error) => warn!(session_id = dialogue.session_id, "reading an idle dialogue failed: {error}"),
            }
        }
        let dialogues = self.delete_all(queue, store, &closed).await;
        if dialogues > 0 {
            info!(dialogues, "deleted authoring dialogues that had not changed for retention.authoring");
        }
    }

    /// Deletes sessions that were closed at these times. Returns the number of deleted sessions.
    async fn delete_all(&self, queue: &dyn Queue, store: &dyn Store, found: &[(String, Timestamp)]) -> usize {
        if found.is_empty() {
            return 0;
        }
        let erasure = LaneErasure::new(queue, store, self.ack_wait);
        let deletions: Vec<_> =
            found.iter().map(|(session_id, closed_at)| delete(erasure, session_id, *closed_at).boxed()).collect();
        let deleted: Vec<Option<Vec<String>>> =
            stream::iter(deletions).buffer_unordered(CONCURRENT_DELETIONS).collect().await;
        let sessions = deleted.iter().flatten().count();
        let lanes: HashSet<String> = deleted.into_iter().flatten().flatten().collect();
        if let Err(error) = erasure.letters(|kept| lanes.contains(session_of(kept))).await {
            warn!("deleting the dead letters of expired sessions failed: {error}");
        }
        metrics().record_expired("sessions", sessions as u64);
        sessions
    }

    async fn versions(&self, store: &dyn Store) {
        match store.expire_versions(self.unused_for, MAX_VERSIONS).await {
            Ok(ExpiredVersions { agents, workflows, plans }) => {
                for (kind, count) in [("agent_versions", agents), ("workflow_versions", workflows), ("plans", plans)] {
                    metrics().record_expired(kind, count);
                }
                if agents + workflows + plans > 0 {
                    info!(agents, workflows, plans, "deleted versions that nothing uses, and their plans");
                }
            }
            Err(error) => warn!("looking for versions that nothing uses failed: {error}"),
        }
    }
}

/// Returns the deleted lanes; `None` if the session is in use again, or the deletion failed.
async fn delete(erasure: LaneErasure<'_>, session_id: &str, closed_at: Timestamp) -> Option<Vec<String>> {
    match erasure.expired(session_id, closed_at).await {
        Ok(Some((lanes, deleted))) => {
            debug!(session_id, "expired session deleted: {}", deleted.words());
            Some(lanes)
        }
        Ok(None) => None,
        Err(error) => {
            warn!(session_id, "an expired session was not deleted, trying again later: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::duration::Text;

    #[test]
    fn conversations_stay_by_default_and_versions_longer_than_what_names_them() {
        let mut settings = Settings::default();
        let expiry = Expiry::new(&settings, Clock::system());
        assert_eq!((expiry.closed_for, expiry.unused_for), (None, settings.retention.versions.0));
        settings.retention.closed_sessions = Text(MARGIN);
        (settings.retention.turns, settings.retention.versions) = (Text(MARGIN * 90), Text(MARGIN));
        let expiry = Expiry::new(&settings, Clock::system());
        assert_eq!((expiry.closed_for, expiry.unused_for), (Some(MARGIN), MARGIN * 91));
    }
}
