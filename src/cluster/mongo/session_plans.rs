//! The plans of sessions: documents of `workflows` with an owner and a status. MongoDB deletes them when they expire.

use super::Db;
use super::document::{date, read};
use super::versioned_collection::{VersionedCollection, fields, revive, version_id};
use bson::{Document, RawDocumentBuf, doc};
use decisions::world::WorkflowStatus;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::session_plan::{MAX_PLANS, PlanState, SessionPlan};
use futures::TryStreamExt;
use storage::store::versioned::Versioned;
use storage::store::versions::Reason;
use storage::store::{Result, StoreError, VersionLabel};
use tracing::warn;
use types::timestamp::Timestamp;

/// The collection of the current versions.
const CURRENT: &str = <WorkflowRecord as Versioned>::CURRENT;
/// The collection of all versions.
const VERSIONS: &str = <WorkflowRecord as Versioned>::VERSIONS;

impl VersionedCollection<WorkflowRecord> {
    /// Implements [`Store::put_session_plan`](storage::store::Store::put_session_plan).
    pub(super) async fn put_session_plan(&self, plan: &WorkflowRecord, agent_id: &str) -> Result<()> {
        let session_id = plan.owner_session.as_deref().unwrap_or_default();
        let (collection, now) = (self.db.database.collection::<Document>(CURRENT), self.db.clock.latest());
        let owner = collection.find_one(doc! {"_id": plan.id()}).projection(doc! {"owner_session": 1});
        let owner = self.db.in_time(owner).await?;
        if owner.is_some_and(|owner| owner.get_str("owner_session").ok() != Some(session_id)) {
            return Err(StoreError::refused(format!(
                "workflow `{}` does not belong to session `{session_id}`",
                plan.id()
            )));
        }
        // The version first: a process that reads the hash must find the version's document.
        self.put_version(plan, Reason::Applied, &VersionLabel::default()).await?;
        let mut set = fields(&self.db, plan)?;
        set.extend(doc! {"agent_id": agent_id, "used_at": date(now)});
        let update = doc! {"$set": set, "$setOnInsert": {"status": WorkflowStatus::Ready.as_str()}};
        self.db.in_time(collection.update_one(doc! {"_id": plan.id()}, update).upsert(true)).await?;
        self.db.drop_old_plans(session_id).await?;
        Self::wait_until_seen().await;
        Ok(())
    }
}

impl Db {
    /// Returns the expiry of a plan that is used now.
    pub(super) fn plan_expiry(&self) -> Timestamp {
        self.clock.latest().plus(self.plan_retention)
    }

    /// Deletes all plans of the session except the last used ones. Their versions stay, since a run may need them.
    async fn drop_old_plans(&self, session_id: &str) -> Result<()> {
        let collection = self.database.collection::<Document>(CURRENT);
        let find = collection.find(doc! {"owner_session": session_id}).projection(doc! {"_id": 1, "status": 1});
        let find = find.sort(doc! {"used_at": -1, "_id": -1}).skip(MAX_PLANS as u64);
        let old: Vec<_> = self.in_time(async { find.await?.try_collect().await }).await?;
        let runs = |plan: &&Document| plan.get_str("status").ok() == Some(WorkflowStatus::Running.as_str());
        let ids: Vec<_> = old.iter().filter(|plan| !runs(plan)).filter_map(|plan| plan.get_str("_id").ok()).collect();
        if !ids.is_empty() {
            self.in_time(collection.delete_many(doc! {"_id": {"$in": ids}, "owner_session": session_id})).await?;
        }
        Ok(())
    }

    /// Implements [`Store::plans_of`](storage::store::Store::plans_of).
    pub(super) async fn plans_of(&self, session_id: &str) -> Result<Vec<SessionPlan>> {
        let collection = self.database.collection::<RawDocumentBuf>(CURRENT);
        let find = collection.find(doc! {"owner_session": session_id}).sort(doc! {"used_at": -1, "_id": -1});
        let found = self.first(find, MAX_PLANS).await?;
        Ok(found
            .iter()
            .filter_map(|raw| read_plan(raw).inspect_err(|error| warn!("plan left out: {error}")).ok())
            .collect())
    }

    /// Implements [`Store::set_workflow_state`](storage::store::Store::set_workflow_state) with the condition of
    /// [`PlanState::may_become`].
    pub(super) async fn set_workflow_state(
        &self,
        workflow_id: &str,
        from: &[WorkflowStatus],
        to: WorkflowStatus,
        run_id: Option<&str>,
    ) -> Result<bool> {
        let names: Vec<&str> = from.iter().map(|status| status.as_str()).collect();
        let (mut allowed, mut made) = (doc! {"status": {"$in": names}}, doc! {"status": to.as_str()});
        let expires_at = date(self.plan_expiry());
        let mut set =
            doc! {"status": to.as_str(), "used_at": date(self.clock.latest()), "expires_at": expires_at.clone()};
        if let Some(run_id) = run_id {
            made.insert("status_run", run_id);
            if to == WorkflowStatus::Running {
                set.insert("status_run", run_id);
            } else {
                allowed.insert("status_run", run_id);
            }
        }
        let filter = doc! {"_id": workflow_id, "owner_session": {"$exists": true}, "$or": [allowed, made]};
        let collection = self.database.collection::<Document>(CURRENT);
        let update = collection.find_one_and_update(filter, doc! {"$set": set}).projection(doc! {"hash": 1});
        let Some(found) = self.in_time(update).await? else { return Ok(false) };
        let version = version_id(workflow_id, found.get_str("hash").unwrap_or_default());
        let versions = self.database.collection::<Document>(VERSIONS);
        let update = doc! {"$set": {"expires_at": expires_at}};
        self.in_time(versions.update_one(doc! {"_id": version}, update)).await?;
        Ok(true)
    }
}

fn read_plan(raw: &RawDocumentBuf) -> Result<SessionPlan> {
    let what = WorkflowRecord::named(raw.get_str("_id").unwrap_or("?"));
    let state: PlanState = read(raw, &what)?;
    Ok(SessionPlan { workflow: revive(raw)?, state })
}
