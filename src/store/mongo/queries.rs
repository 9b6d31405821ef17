//! Reading sessions, and what housekeeping looks for.

use super::Db;
use super::document::{date, failed};
use super::lane::read_session;
use crate::clock::{self, Timestamp};
use crate::session::Session;
use crate::store::{AbandonedLane, Result, SessionQuery};
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use std::sync::Arc;
use std::time::Duration;

impl Db {
    /// The sessions of these ids; each may be damaged for itself.
    pub(super) async fn read_all(self, ids: Arc<Vec<String>>) -> Result<Vec<Result<Option<Session>>>> {
        let mut wanted: Vec<&str> = ids.iter().map(String::as_str).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let found = self.session_documents(wanted, None).await?;
        let read = |id: &String| found.get(id).map(read_session).transpose();
        let sessions: Vec<Result<Option<Session>>> = ids.iter().map(read).collect();
        // Who reads a session, such as for a timer's job, takes its lane next.
        sessions.iter().flatten().flatten().for_each(|session| self.known.offer(session));
        Ok(sessions)
    }

    pub(super) async fn sessions(&self, query: SessionQuery) -> Result<Vec<Session>> {
        let mut filter = doc! {"kind": {"$ne": "run"}};
        if let Some(status) = query.status {
            filter.insert("workflow_state.status", status.as_str());
        }
        if let Some(agent_id) = query.agent_id {
            filter.insert("agent_id", agent_id);
        }
        let collection = self.database.collection::<RawDocumentBuf>("sessions");
        let find = collection.find(filter).sort(doc! {"updated_at": -1}).projection(doc! {"history": 0, "outbox": 0});
        let find = find.limit(i64::try_from(query.limit).unwrap_or(i64::MAX));
        let found: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
        found.iter().map(read_session).collect()
    }

    pub(super) async fn abandoned_lanes(&self, grace: Duration, limit: usize) -> Result<Vec<AbandonedLane>> {
        let before = date(clock::now().minus(grace));
        let filter = doc! {"$or": [{"lease.until": {"$lt": &before}}, {"waiting_since": {"$lt": &before}}]};
        let collection = self.database.collection::<Document>("sessions");
        let find = collection.find(filter).projection(doc! {"epoch": 1});
        let find = find.limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let found: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
        let lane = |found: &Document| AbandonedLane {
            session_id: found.get_str("_id").unwrap_or_default().to_owned(),
            epoch: u64::try_from(found.get_i64("epoch").unwrap_or(0)).unwrap_or(0),
        };
        Ok(found.iter().map(lane).collect())
    }

    pub(super) async fn idle_sessions(&self, before: Timestamp, limit: usize) -> Result<Vec<String>> {
        let filter = doc! {
            "updated_at": {"$lt": date(before)},
            "closed_at": null,
            "kind": "chat",
            "workflow_state.status": {"$in": ["ready", "cancelled"]},
        };
        let collection = self.database.collection::<Document>("sessions");
        let find = collection.find(filter).projection(doc! {"_id": 1});
        let find = find.limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let found: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
        Ok(found.iter().filter_map(|found| found.get_str("_id").ok().map(str::to_owned)).collect())
    }
}
