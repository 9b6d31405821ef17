//! Deletion of sessions, runs, agents and workflows.

use super::authoring::STATES;
use super::days::DAYS;
use super::document::{date, int};
use super::drafts::DRAFT_OF;
use super::expiry::closed;
use super::lane::{MAX_CONFLICTS, conflict};
use super::runs::RUNS;
use super::update_ops::new_session;
use super::{Db, MongoStore};
use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use futures::TryStreamExt;
use std::time::Duration;
use storage::store::erasure::{ErasedDefinition, ErasedRecords, Erasure, ExpiredVersions, SeizedLane};
use storage::store::lane;
use storage::store::versioned::Versioned;
use storage::store::{Drafts, NO_DIALOGUE, Result};
use types::authoring::Artifact;
use types::session::Session;
use types::timestamp::Timestamp;

#[async_trait]
impl Erasure for MongoStore {
    async fn seize(&self, session_id: &str, owner: &str, lease: Duration) -> Result<SeizedLane> {
        let seized = self.db.seize(session_id, owner, lease).await?;
        self.db.cache.forget(session_id);
        Ok(seized)
    }

    async fn erase_records(&self, session_id: &str) -> Result<ErasedRecords> {
        let plans = self.db.erase_plans(session_id).await?;
        self.workflows.forget_all();
        self.db.delete(STATES, doc! {"session_id": session_id}).await?;
        self.drop_drafts(session_id).await?;
        Ok(ErasedRecords {
            turns: self.db.delete("turns", below(session_id)).await?,
            steps: self.db.delete("steps", below(session_id)).await?,
            runs: self.db.delete(RUNS, doc! {"$or": [{"_id": session_id}, {"origin_session": session_id}]}).await?,
            plans,
        })
    }

    async fn erase_lane(&self, session_id: &str, epoch: u64) -> Result<bool> {
        let held = doc! {"_id": session_id, "epoch": int(epoch), "lease": {"$exists": true}};
        let erased = self.db.delete("sessions", held).await?;
        self.db.cache.forget(session_id);
        Ok(erased > 0)
    }

    async fn lanes_of_user(&self, user_id: &str, limit: usize) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for collection in ["sessions", RUNS] {
            let documents = self.db.database.collection::<Document>(collection);
            let find = documents.find(doc! {"user_id": user_id}).projection(doc! {"_id": 1});
            let ids = self.db.first(find, limit).await?;
            found.extend(ids.iter().filter_map(|id| id.get_str("_id").ok().map(str::to_owned)));
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        Ok(found)
    }

    async fn erase_agent(&self, agent_id: &str) -> Result<ErasedDefinition> {
        let mut erased = self.db.erase_definition::<AgentRecord>(Artifact::Agent, agent_id).await?;
        erased.plans = self.db.delete("plan_cache", doc! {"workflow_id": agent_id}).await?;
        erased.sources = self.db.delete("knowledge", doc! {"agent_id": agent_id}).await?;
        self.db.delete(DAYS, below(agent_id)).await?;
        self.agents.forget(agent_id).await;
        self.plans.invalidate_all();
        Ok(erased)
    }

    async fn erase_workflow(&self, workflow_id: &str) -> Result<ErasedDefinition> {
        let erased = self.db.erase_definition::<WorkflowRecord>(Artifact::Workflow, workflow_id).await?;
        self.workflows.forget(workflow_id).await;
        Ok(erased)
    }

    async fn closed_sessions(&self, closed_for: Duration, limit: usize) -> Result<Vec<(String, Timestamp)>> {
        self.db.closed_sessions(closed_for, limit).await
    }

    async fn seize_closed(
        &self,
        session_id: &str,
        closed_at: Timestamp,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<SeizedLane>> {
        let seized = self.db.seize_closed(session_id, closed_at, owner, lease).await?;
        self.db.cache.forget(session_id);
        Ok(seized)
    }

    async fn expire_versions(&self, grace: Duration, limit: usize) -> Result<ExpiredVersions> {
        self.expire_all(grace, limit).await
    }

    fn forget(&self, session_id: &str) {
        self.db.cache.forget(session_id);
    }
}

/// Matches the documents whose ids begin with `<id>/`. The character after `/` is `0`.
fn below(id: &str) -> Document {
    doc! {"_id": {"$gte": format!("{id}/"), "$lt": format!("{id}0")}}
}

impl Db {
    async fn delete(&self, collection: &str, filter: Document) -> Result<u64> {
        let documents = self.database.collection::<Document>(collection);
        Ok(self.in_time(documents.delete_many(filter)).await?.deleted_count)
    }

    async fn has(&self, collection: &str, filter: Document) -> Result<bool> {
        let documents = self.database.collection::<Document>(collection);
        Ok(self.in_time(documents.find_one(filter).projection(doc! {"_id": 1})).await?.is_some())
    }

    /// Takes a lane from any holder. Reads only the fields of the lane, so that a session that this version cannot
    /// decode can be deleted, too.
    async fn seize(&self, session_id: &str, owner: &str, lease: Duration) -> Result<SeizedLane> {
        for _ in 0..MAX_CONFLICTS {
            let Some(found) = self.lane_fields(doc! {"_id": session_id}).await? else {
                match self.insert_seized(session_id, owner, lease).await? {
                    Some(seized) => return Ok(seized),
                    None => continue,
                }
            };
            if let Some(seized) = self.seize_found(&found, doc! {"_id": session_id}, owner, lease).await? {
                return Ok(seized);
            }
        }
        Err(conflict(session_id))
    }

    /// Takes the lane of a session that is closed, and whose lane is free.
    async fn seize_closed(
        &self,
        session_id: &str,
        closed_at: Timestamp,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<SeizedLane>> {
        let mut wanted = closed(date(closed_at));
        wanted.extend(doc! {"_id": session_id, "closed_at": date(closed_at)});
        match self.lane_fields(wanted.clone()).await? {
            Some(found) => self.seize_found(&found, wanted, owner, lease).await,
            None => Ok(None),
        }
    }

    /// The fields of a lane that [`Db::seize_found`] needs.
    async fn lane_fields(&self, filter: Document) -> Result<Option<Document>> {
        let sessions = self.database.collection::<Document>("sessions");
        let fields = doc! {"epoch": 1, "lease.until": 1, "timers.timer_id": 1};
        self.in_time(sessions.find_one(filter).projection(fields)).await
    }

    /// Takes the lane if it has not changed since it was found, and still matches `seen`.
    async fn seize_found(
        &self,
        found: &Document,
        mut seen: Document,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<SeizedLane>> {
        let epoch = found.get_i64("epoch").or_else(|_| found.get_i32("epoch").map(i64::from)).unwrap_or(0);
        let bounds = self.clock.bounds();
        let until = found.get_document("lease").and_then(|lease| lease.get_datetime("until")).ok();
        let until = until.map(|until| Timestamp::from_millis(until.timestamp_millis()));
        let taken = doc! {"owner": owner, "until": date(bounds.latest.plus(lease)), "token": owner};
        let set = doc! {"epoch": epoch + 1, "lease": taken};
        seen.insert("epoch", found.get("epoch").cloned().unwrap_or_else(|| doc! {"$exists": false}.into()));
        let update = doc! {"$set": set, "$unset": {"fence": "", "waiting_since": ""}};
        let sessions = self.database.collection::<Document>("sessions");
        let matched = self.in_time(sessions.update_one(seen, update)).await?.matched_count > 0;
        Ok(matched.then(|| SeizedLane {
            epoch: (epoch + 1).unsigned_abs(),
            busy_for: until.map_or(Duration::ZERO, |until| bounds.earliest.until(until)),
            timers: found.get_array("timers").map_or(0, |timers| timers.len() as u64),
            existed: true,
        }))
    }

    /// Returns `None` if another process has created the session meanwhile.
    async fn insert_seized(&self, session_id: &str, owner: &str, lease: Duration) -> Result<Option<SeizedLane>> {
        let now = self.clock.latest();
        let mut session = Session { epoch: lane::first_epoch(now), ..Session::new(session_id, now) };
        lane::seize(&mut session, owner, lease, now);
        let document = new_session(&session)?;
        let sessions = self.database.collection::<RawDocumentBuf>("sessions");
        let insert = async {
            match sessions.insert_one(document).await {
                Ok(_) => Ok(true),
                Err(error) if is_duplicate(&error) => Ok(false),
                Err(error) => Err(error),
            }
        };
        let seized = SeizedLane { epoch: session.epoch, busy_for: Duration::ZERO, timers: 0, existed: false };
        Ok(self.in_time(insert).await?.then_some(seized))
    }

    /// Deletes the plans of a session with all their versions, also of plans that are no longer among its last ones.
    async fn erase_plans(&self, session_id: &str) -> Result<u64> {
        let owned = doc! {"owner_session": session_id};
        let versions = self.database.collection::<Document>(<WorkflowRecord as Versioned>::VERSIONS);
        let ids = versions.find(owned.clone()).projection(doc! {"workflow_id": 1});
        let found: Vec<Document> = self.in_time(async { ids.await?.try_collect().await }).await?;
        let mut ids: Vec<&str> = found.iter().filter_map(|found| found.get_str("workflow_id").ok()).collect();
        ids.sort_unstable();
        ids.dedup();
        let plans = ids.len() as u64;
        self.delete(<WorkflowRecord as Versioned>::CURRENT, owned.clone()).await?;
        self.delete(<WorkflowRecord as Versioned>::VERSIONS, owned).await?;
        Ok(plans)
    }

    async fn erase_definition<T: Versioned>(&self, kind: Artifact, id: &str) -> Result<ErasedDefinition> {
        let (current, mut versions) = (doc! {"_id": id}, below(id));
        // The drafts of dialogues belong to these.
        versions.insert("$or", vec![doc! {DRAFT_OF: Bson::Null}, doc! {DRAFT_OF: [NO_DIALOGUE]}]);
        if !self.has(T::CURRENT, current.clone()).await? && !self.has(T::VERSIONS, versions.clone()).await? {
            return Ok(ErasedDefinition::default());
        }
        // The dialogues before the definition: while a state says that it has published the id, the dialogue may
        // replace the state that others put there.
        self.forget_artefact(kind, id).await?;
        // The current one before its versions: a process that finds its hash finds the version, too.
        let existed = self.delete(T::CURRENT, current).await? > 0;
        let versions = self.delete(T::VERSIONS, versions).await?;
        Ok(ErasedDefinition { existed, versions, ..ErasedDefinition::default() })
    }
}

pub(super) fn is_duplicate(error: &mongodb::error::Error) -> bool {
    use mongodb::error::{ErrorKind, WriteFailure};
    matches!(error.kind.as_ref(), ErrorKind::Write(WriteFailure::WriteError(problem)) if problem.code == 11_000)
}
