//! Reading and storing plans.

use super::Db;
use super::document::{date, free_form, read, unseal};
use bson::{RawDocumentBuf, doc};
use mongodb::options::ReturnDocument;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use storage::store::{Result, StoreError};
use types::plan::Plan;
use types::timestamp::Timestamp;

/// A plan as it is stored. Tools, skills and timers are free-form JSON.
#[derive(Serialize, Deserialize)]
struct StoredPlan {
    workflow_id: String,
    hash: String,
    name: String,
    tone: String,
    greeting: Option<String>,
    sop: String,
    tools: Value,
    skills: Value,
    timers: Value,
    constraints: String,
    created_at: Timestamp,
}

impl Db {
    pub(super) async fn plan(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<Plan>>> {
        let collection = self.database.collection::<RawDocumentBuf>("plan_cache");
        let found = self.in_time(collection.find_one(doc! {"workflow_id": workflow_id, "hash": hash})).await?;
        found.map(|raw| read_plan(&raw)).transpose()
    }

    pub(super) async fn put_plan(&self, plan: Plan) -> Result<Arc<Plan>> {
        let key = doc! {"workflow_id": &plan.workflow_id, "hash": &plan.hash};
        let fields = doc! {
            "name": &plan.name,
            "tone": &plan.tone,
            "greeting": plan.greeting.clone(),
            "sop": &plan.sop,
            "tools": free_form(&json(&plan.tools)?)?,
            "skills": free_form(&json(&plan.skills)?)?,
            "timers": free_form(&json(&plan.timers)?)?,
            "constraints": &plan.constraints,
            "created_at": date(plan.created_at),
        };
        let collection = self.database.collection::<RawDocumentBuf>("plan_cache");
        let put = || {
            let update = collection.find_one_and_update(key.clone(), doc! {"$setOnInsert": fields.clone()});
            update.upsert(true).return_document(ReturnDocument::After)
        };
        // When two planners store a plan concurrently, the unique index rejects one. Its second try finds the other's
        // plan.
        let stored = match self.in_time(put()).await {
            Ok(stored) => stored,
            Err(_) => self.in_time(put()).await?,
        };
        read_plan(&stored.ok_or_else(|| StoreError::unavailable("the plan was deleted while it was stored"))?)
    }
}

fn read_plan(raw: &RawDocumentBuf) -> Result<Arc<Plan>> {
    let stored: StoredPlan = read(raw, "a plan")?;
    let wrong = |error: serde_json::Error| StoreError::damaged("a plan", error);
    Ok(Arc::new(Plan {
        workflow_id: stored.workflow_id,
        hash: stored.hash,
        name: stored.name,
        tone: stored.tone,
        greeting: stored.greeting,
        sop: stored.sop,
        tools: serde_json::from_value(unseal(stored.tools)).map_err(wrong)?,
        skills: serde_json::from_value(unseal(stored.skills)).map_err(wrong)?,
        timers: serde_json::from_value(unseal(stored.timers)).map_err(wrong)?,
        constraints: stored.constraints,
        created_at: stored.created_at,
    }))
}

fn json(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(StoreError::refused)
}
