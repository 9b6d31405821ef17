//! Reading sessions, and the searches of the housekeeping.

use super::Db;
use super::document::date;
use super::lane::read_session;
use bson::{Document, doc};
use std::sync::Arc;
use std::time::Duration;
use storage::store::Result;
use storage::store::records::{AbandonedLane, IdleSession};
use types::access::Scope;
use types::format;
use types::session::Session;
use types::timestamp::Timestamp;

impl Db {
    /// Reads sessions by id. A session that cannot be decoded fails only its own caller.
    pub(super) async fn read_all(self, ids: Arc<Vec<String>>) -> Result<Vec<Result<Option<Session>>>> {
        let mut wanted: Vec<&str> = ids.iter().map(String::as_str).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let found = self.session_documents(wanted, None).await?;
        let read = |id: &String| found.get(id).map(read_session).transpose();
        let sessions: Vec<Result<Option<Session>>> = ids.iter().map(read).collect();
        // Cached, because a caller that reads a session, for example for a timer's job, acquires its lane next.
        sessions.iter().flatten().flatten().for_each(|session| self.cache.offer(session));
        Ok(sessions)
    }

    pub(super) async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> Result<Vec<AbandonedLane>> {
        let before = self.clock.earliest().minus(grace);
        // One query for each field: the server cannot sort the union of two index scans.
        let (expired, left) = futures::try_join!(
            self.left_since("lease.until", before, limit),
            self.left_since("waiting_since", before, limit)
        )?;
        let mut lanes: Vec<(bson::DateTime, AbandonedLane)> = expired.into_iter().chain(left).collect();
        lanes.sort_by_key(|(since, _)| *since);
        lanes.truncate(limit);
        Ok(lanes.into_iter().map(|(_, lane)| lane).collect())
    }

    /// Returns sessions whose `field` is at the given time or earlier, the earliest first.
    async fn left_since(
        &self,
        field: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(bson::DateTime, AbandonedLane)>> {
        let collection = self.database.collection::<Document>("sessions");
        let find = collection.find(doc! {field: {"$lte": date(before)}}).sort(doc! {field: 1});
        let find = find.projection(doc! {"epoch": 1, "lease.until": 1, "waiting_since": 1});
        let found = self.first(find, limit).await?;
        let lane = |found: &Document| {
            let until = found.get_document("lease").and_then(|lease| lease.get_datetime("until"));
            let since = if field == "waiting_since" { found.get_datetime(field) } else { until };
            let lane = AbandonedLane {
                session_id: found.get_str("_id").unwrap_or_default().to_owned(),
                epoch: u64::try_from(found.get_i64("epoch").unwrap_or(0)).unwrap_or(0),
            };
            (since.copied().unwrap_or(bson::DateTime::MAX), lane)
        };
        Ok(found.iter().map(lane).collect())
    }

    pub(super) async fn idle_sessions(&self, idle: Duration, limit: usize) -> Result<Vec<IdleSession>> {
        let filter = doc! {
            "updated_at": {"$lt": date(self.clock.earliest().minus(idle))},
            "closed_at": null,
            "kind": "chat",
            "workflow_state.status": {"$in": ["ready", "cancelled"]},
            "timers.0": {"$exists": false},
            "waiting": null,
            "task": null,
            "lease": null,
            "turn": null,
        };
        let collection = self.database.collection::<Document>("sessions");
        let found = self.first(collection.find(filter).projection(doc! {"last_seq": 1}), limit).await?;
        let session = |found: &Document| IdleSession {
            session_id: found.get_str("_id").unwrap_or_default().to_owned(),
            last_seq: u64::try_from(found.get_i64("last_seq").unwrap_or(0)).unwrap_or(0),
        };
        Ok(found.iter().map(session).collect())
    }
}

/// The filter for the documents that this version can read. Listings leave out the others, which would hide all.
pub(super) fn readable() -> Document {
    doc! {format::FIELD: {"$not": {"$gt": i64::from(format::current())}}}
}

/// The filter for the documents behind a place in a listing that is sorted by the time `field` and the id, both
/// descending.
pub(super) fn behind(field: &str, at: Timestamp, id: &str) -> Document {
    let earlier = [doc! {field: {"$lt": date(at)}}, doc! {field: date(at), "_id": {"$lt": id}}];
    // The first condition bounds the scan of the index.
    doc! {field: {"$lte": date(at)}, "$or": earlier.to_vec()}
}

/// The filter for the documents behind a place in a listing that is sorted by the time `field` and the id, both
/// ascending.
pub(super) fn behind_in_order(field: &str, at: Timestamp, id: &str) -> Document {
    let later = [doc! {field: {"$gt": date(at)}}, doc! {field: date(at), "_id": {"$gt": id}}];
    doc! {field: {"$gte": date(at)}, "$or": later.to_vec()}
}

/// The filter for the sessions of a scope.
pub(super) fn in_scope(scope: &Scope) -> Document {
    let mut filter = Document::new();
    if !scope.channels.is_empty() {
        filter.insert("channel", doc! {"$in": &scope.channels});
    }
    if !scope.agents.is_empty() {
        filter.insert("agent_id", doc! {"$in": &scope.agents});
    }
    if let Some(prefix) = &scope.session_prefix {
        // No character of an id is greater, so this is the end of all ids with the prefix.
        filter.insert("_id", doc! {"$gte": prefix, "$lt": format!("{prefix}\u{10ffff}")});
    }
    filter
}
