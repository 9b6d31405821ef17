//! Expiry of closed conversations, and of versions of agents and workflows that nothing uses.
//!
//! A version that is not in use gets the time since when, `unused_since`; a version that is in use again loses it. A
//! version is deleted when the grace has passed and it still is not in use.

use super::authoring::STATES;
use super::document::date;
use super::drafts::DRAFT_OF;
use super::runs::RUNS;
use super::versioned_collection::version_id;
use super::{Db, MongoStore};
use bson::{Bson, DateTime, Document, doc};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::Duration;
use storage::store::versioned::Versioned;
use storage::store::{ExpiredVersions, Result, StoreError};
use types::timestamp::Timestamp;

/// The number of concurrent searches for users of a version.
const CONCURRENT_SEARCHES: usize = 8;
/// The collection of cached plans.
const PLANS: &str = "plan_cache";

/// The last ids that were looked at, by collection.
pub(super) type Places = std::sync::Mutex<HashMap<&'static str, Bson>>;

/// Matches conversations and authoring dialogues that are closed before a time, and whose lanes are free.
pub(super) fn closed(before: Bson) -> Document {
    // The lower bound is that of the index.
    let closed_at = doc! {"$gt": DateTime::from_millis(0), "$lt": before};
    doc! {"closed_at": closed_at, "lease": null, "turn": null, "waiting_since": null}
}

/// The fields by which the use of a version is decided.
struct Seen {
    /// The id of the document.
    version: String,
    id: String,
    hash: String,
    unused_since: Option<Timestamp>,
    /// The sessions of a draft.
    draft_of: Option<Vec<String>>,
}

impl Seen {
    /// `None` for the versions of a session's plan, which expire with it.
    fn from_document<T: Versioned>(found: &Document) -> Option<Self> {
        if found.contains_key("owner_session") {
            return None;
        }
        let text = |field: &str| found.get_str(field).map(str::to_owned).ok();
        let since = found.get_datetime("unused_since").ok();
        let unused_since = since.map(|since| Timestamp::from_millis(since.timestamp_millis()));
        let sessions = |found: &bson::Array| found.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect();
        let draft_of = found.get_array(DRAFT_OF).ok().map(sessions);
        Some(Self { version: text("_id")?, id: text(T::KEY)?, hash: text("hash")?, unused_since, draft_of })
    }
}

impl Db {
    pub(super) async fn closed_sessions(&self, closed_for: Duration, limit: usize) -> Result<Vec<(String, Timestamp)>> {
        let before = date(self.clock.earliest().minus(closed_for));
        let collection = self.database.collection::<Document>("sessions");
        let mut wanted = closed(before);
        wanted.insert("kind", "chat");
        let find = collection.find(wanted).sort(doc! {"closed_at": 1}).projection(doc! {"closed_at": 1});
        let found = self.first(find, limit).await?;
        let session = |found: &Document| {
            let closed_at = found.get_datetime("closed_at").ok()?;
            Some((found.get_str("_id").ok()?.to_owned(), Timestamp::from_millis(closed_at.timestamp_millis())))
        };
        Ok(found.iter().filter_map(session).collect())
    }

    /// Whether an open conversation or a stored run has the version. A draft is used while one of its dialogues exists.
    async fn is_used(&self, seen: &Seen) -> Result<bool> {
        let has = async |collection: &str, filter: Document| {
            let documents = self.database.collection::<Document>(collection);
            Ok(self.in_time(documents.find_one(filter).projection(doc! {"_id": 1})).await?.is_some())
        };
        let (id, hash) = (seen.id.as_str(), seen.hash.as_str());
        if let Some(sessions) = &seen.draft_of
            && has(STATES, doc! {"session_id": {"$in": sessions}}).await?
        {
            return Ok(true);
        }
        let open = doc! {"workflow_state.hash": hash, "closed_at": null, "agent_id": id};
        Ok(has("sessions", open).await? || has(RUNS, doc! {"hash": hash, "workflow_id": id}).await?)
    }

    /// The ids of the current versions of these definitions.
    async fn current_versions<T: Versioned>(&self, seen: &[Seen]) -> Result<HashSet<String>> {
        let ids: HashSet<&str> = seen.iter().map(|seen| seen.id.as_str()).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let collection = self.database.collection::<Document>(T::CURRENT);
        let find = collection.find(doc! {"_id": {"$in": ids}}).projection(doc! {"hash": 1});
        let found: Vec<Document> = self.in_time(async { find.await?.try_collect().await }).await?;
        let version = |found: &Document| Some(version_id(found.get_str("_id").ok()?, found.get_str("hash").ok()?));
        Ok(found.iter().filter_map(version).collect())
    }

    /// Marks versions that are no longer in use, and deletes the unused ones after `grace`.
    async fn expire<T: Versioned>(&self, page: &[Document], grace: Duration) -> Result<u64> {
        let seen: Vec<Seen> = page.iter().filter_map(Seen::from_document::<T>).collect();
        let current = self.current_versions::<T>(&seen).await?;
        let mut searches = Vec::with_capacity(seen.len());
        for seen in &seen {
            let is_current = current.contains(&seen.version);
            let search = async move { Ok::<_, StoreError>((seen, is_current || self.is_used(seen).await?)) };
            searches.push(search.boxed());
        }
        let searched: Vec<(&Seen, bool)> =
            stream::iter(searches).buffer_unordered(CONCURRENT_SEARCHES).try_collect().await?;
        let (now, before) = (self.clock.latest(), self.clock.earliest().minus(grace));
        let chosen = |wanted: &dyn Fn(&Seen, bool) -> bool| -> Vec<&str> {
            let fitting = searched.iter().filter(|(seen, used)| wanted(seen, *used));
            fitting.map(|(seen, _)| seen.version.as_str()).collect()
        };
        let again = chosen(&|seen, used| used && seen.unused_since.is_some());
        let newly = chosen(&|seen, used| !used && seen.unused_since.is_none());
        let expired = chosen(&|seen, used| !used && seen.unused_since.is_some_and(|since| since <= before));
        let versions = self.database.collection::<Document>(T::VERSIONS);
        if !again.is_empty() {
            let update = doc! {"$unset": {"unused_since": ""}};
            self.in_time(versions.update_many(doc! {"_id": {"$in": again}}, update)).await?;
        }
        if !newly.is_empty() {
            let update = doc! {"$set": {"unused_since": date(now)}};
            self.in_time(versions.update_many(doc! {"_id": {"$in": newly}}, update)).await?;
        }
        if expired.is_empty() {
            return Ok(0);
        }
        // A version that was stored again meanwhile has lost the mark.
        let filter = doc! {"_id": {"$in": expired}, "unused_since": {"$lte": date(before)}};
        Ok(self.in_time(versions.delete_many(filter)).await?.deleted_count)
    }

    /// Deletes cached plans whose version is gone, unless they are younger than `grace`.
    async fn expire_plans(&self, page: &[Document], grace: Duration) -> Result<u64> {
        let before = self.clock.earliest().minus(grace).as_millis();
        let version = |plan: &Document| Some(version_id(plan.get_str("workflow_id").ok()?, plan.get_str("hash").ok()?));
        let old =
            page.iter().filter(|plan| plan.get_datetime("created_at").is_ok_and(|at| at.timestamp_millis() < before));
        let old: Vec<(&Bson, String)> = old.filter_map(|plan| Some((plan.get("_id")?, version(plan)?))).collect();
        let wanted: Vec<&str> = old.iter().map(|(_, version)| version.as_str()).collect();
        let versions = self.database.collection::<Document>(<AgentRecord as Versioned>::VERSIONS);
        let find = versions.find(doc! {"_id": {"$in": wanted}}).projection(doc! {"_id": 1});
        let found: Vec<Document> = self.in_time(async { find.await?.try_collect().await }).await?;
        let stored: HashSet<&str> = found.iter().filter_map(|found| found.get_str("_id").ok()).collect();
        let gone: Vec<&Bson> =
            old.iter().filter(|(_, version)| !stored.contains(version.as_str())).map(|(id, _)| *id).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let plans = self.database.collection::<Document>(PLANS);
        Ok(self.in_time(plans.delete_many(doc! {"_id": {"$in": gone}})).await?.deleted_count)
    }
}

impl MongoStore {
    /// Implements [`Erasure::expire_versions`](storage::store::Erasure::expire_versions).
    pub(super) async fn expire_all(&self, grace: Duration, limit: usize) -> Result<ExpiredVersions> {
        let agents = self.page(<AgentRecord as Versioned>::VERSIONS, limit).await?;
        let agents = self.db.expire::<AgentRecord>(&agents, grace).await?;
        let workflows = self.page(<WorkflowRecord as Versioned>::VERSIONS, limit).await?;
        let workflows = self.db.expire::<WorkflowRecord>(&workflows, grace).await?;
        let plans = self.page(PLANS, limit).await?;
        let plans = self.db.expire_plans(&plans, grace).await?;
        if agents + workflows + plans > 0 {
            self.agents.forget_all();
            self.workflows.forget_all();
            self.plans.invalidate_all();
        }
        Ok(ExpiredVersions { agents, workflows, plans })
    }

    /// The next `limit` documents of a collection, by their ids, without the definitions.
    async fn page(&self, name: &'static str, limit: usize) -> Result<Vec<Document>> {
        let place = self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let filter = place.map_or_else(Document::new, |place| doc! {"_id": {"$gt": place}});
        let fields = doc! {
            "agent_id": 1, "workflow_id": 1, "hash": 1, "owner_session": 1, "unused_since": 1, "created_at": 1, DRAFT_OF: 1,
        };
        let collection = self.db.database.collection::<Document>(name);
        let page = self.db.first(collection.find(filter).sort(doc! {"_id": 1}).projection(fields), limit).await?;
        if page.len() == limit
            && let Some(last) = page.last().and_then(|last| last.get("_id"))
        {
            self.places.lock().unwrap_or_else(PoisonError::into_inner).insert(name, last.clone());
        }
        Ok(page)
    }
}
