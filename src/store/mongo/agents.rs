//! Agents, their versions, and plans.

use super::Db;
use super::document::{damaged, date, failed, free, read, unseal};
use crate::agent::{AgentRecord, StoredAgent};
use crate::clock::Timestamp;
use crate::plan::Plan;
use crate::store::{Result, StoreError};
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::ReturnDocument;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// A plan as stored: tools, skills and timers are free-form JSON.
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
    pub(super) async fn agent_version(&self, agent_id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>> {
        let collection = self.database.collection::<RawDocumentBuf>("agent_versions");
        let found = collection.find_one(doc! {"_id": format!("{agent_id}/{hash}")}).await.map_err(failed)?;
        found.map(|raw| read_agent(&raw)).transpose()
    }

    /// The hashes of agents as they are now.
    pub(super) async fn agent_hashes(self, items: Arc<Vec<String>>) -> Result<Vec<Result<Option<String>>>> {
        let mut ids: Vec<&str> = items.iter().map(String::as_str).collect();
        ids.sort_unstable();
        ids.dedup();
        let collection = self.database.collection::<Document>("agents");
        let find = collection.find(doc! {"_id": {"$in": ids}}).projection(doc! {"hash": 1});
        let found: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
        let text = |document: &Document, field: &str| document.get_str(field).unwrap_or_default().to_owned();
        let by_id: HashMap<_, _> = found.iter().map(|found| (text(found, "_id"), text(found, "hash"))).collect();
        Ok(items.iter().map(|id| Ok(by_id.get(id).cloned())).collect())
    }

    pub(super) async fn put_agent(&self, agent: AgentRecord) -> Result<bool> {
        let config = free(&agent.document)?;
        let fields =
            doc! {"agent_id": agent.id(), "hash": &agent.hash, "config": config, "updated_at": date(agent.updated_at)};
        // The version first, so that whoever sees the hash finds its configuration.
        let versions = self.database.collection::<Document>("agent_versions");
        let version = format!("{}/{}", agent.id(), agent.hash);
        versions.update_one(doc! {"_id": version}, doc! {"$set": fields.clone()}).upsert(true).await.map_err(failed)?;
        let agents = self.database.collection::<Document>("agents");
        let current = agents.find_one(doc! {"_id": agent.id()}).await.map_err(failed)?;
        if current.is_some_and(|current| current.get_str("hash").is_ok_and(|hash| hash == agent.hash)) {
            return Ok(false);
        }
        agents.update_one(doc! {"_id": agent.id()}, doc! {"$set": fields}).upsert(true).await.map_err(failed)?;
        Ok(true)
    }

    pub(super) async fn agents(&self) -> Result<Vec<Arc<AgentRecord>>> {
        let collection = self.database.collection::<RawDocumentBuf>("agents");
        let found: Vec<_> = collection
            .find(doc! {})
            .sort(doc! {"_id": 1})
            .await
            .map_err(failed)?
            .try_collect()
            .await
            .map_err(failed)?;
        found.iter().map(read_agent).collect()
    }

    pub(super) async fn plan(&self, workflow_id: &str, hash: &str) -> Result<Option<Arc<Plan>>> {
        let collection = self.database.collection::<RawDocumentBuf>("plan_cache");
        let found = collection.find_one(doc! {"workflow_id": workflow_id, "hash": hash}).await.map_err(failed)?;
        found.map(|raw| read_plan(&raw)).transpose()
    }

    pub(super) async fn put_plan(&self, plan: Plan) -> Result<Arc<Plan>> {
        let key = doc! {"workflow_id": &plan.workflow_id, "hash": &plan.hash};
        let fields = doc! {
            "name": &plan.name,
            "tone": &plan.tone,
            "greeting": plan.greeting.clone(),
            "sop": &plan.sop,
            "tools": free(&json(&plan.tools)?)?,
            "skills": free(&json(&plan.skills)?)?,
            "timers": free(&json(&plan.timers)?)?,
            "constraints": &plan.constraints,
            "created_at": date(plan.created_at),
        };
        let collection = self.database.collection::<RawDocumentBuf>("plan_cache");
        let put = || {
            let update = collection.find_one_and_update(key.clone(), doc! {"$setOnInsert": fields.clone()});
            update.upsert(true).return_document(ReturnDocument::After)
        };
        // Two planners at once: the unique index refuses one, which then finds the other's.
        let stored = match put().await {
            Ok(stored) => stored,
            Err(_) => put().await.map_err(failed)?,
        };
        read_plan(&stored.ok_or_else(|| StoreError::Unavailable("the plan was deleted meanwhile".into()))?)
    }
}

fn read_agent(raw: &RawDocumentBuf) -> Result<Arc<AgentRecord>> {
    let what = format!("agent `{}`", raw.get_str("_id").unwrap_or("?"));
    #[derive(Deserialize)]
    struct Stored {
        agent_id: String,
        hash: String,
        config: Value,
        updated_at: Timestamp,
    }
    let Stored { agent_id, hash, config, updated_at } = read(raw, &what)?;
    let stored = StoredAgent { agent_id, hash, config: unseal(config), updated_at };
    AgentRecord::from_stored(stored).map(Arc::new).map_err(|error| damaged(&what, &error))
}

fn read_plan(raw: &RawDocumentBuf) -> Result<Arc<Plan>> {
    let stored: StoredPlan = read(raw, "a plan")?;
    let wrong = |error: serde_json::Error| damaged("a plan", &error);
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
    serde_json::to_value(value).map_err(|error| StoreError::Refused(error.to_string()))
}
