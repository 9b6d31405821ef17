//! Plans and agents, kept in memory once read: there are few, and every turn asks for them. Leaders, too.

use super::EmbeddedFile;
use super::fault::Fault;
use super::tables::{AGENT_VERSIONS, AGENTS, PLANS, Tables, decode, encode};
use crate::agent::{AgentRecord, StoredAgent};
use crate::clock::Timestamp;
use crate::plan::Plan;
use redb::ReadableTable;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type ById<T> = HashMap<String, Arc<T>>;
type ByVersion<T> = HashMap<(String, String), Arc<T>>;

/// What has been read so far.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    plans: Mutex<ByVersion<Plan>>,
    agents: Mutex<ById<AgentRecord>>,
    versions: Mutex<ByVersion<AgentRecord>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Catalog {
    /// The plan of (workflow, hash), which never changes once it is there.
    pub(super) fn plan(&self, file: &EmbeddedFile, workflow: &str, hash: &str) -> Result<Option<Arc<Plan>>, Fault> {
        let key = (workflow.to_owned(), hash.to_owned());
        if let Some(plan) = lock(&self.plans).get(&key) {
            return Ok(Some(Arc::clone(plan)));
        }
        let found = file.read(|read| match read.open_table(PLANS)?.get((workflow, hash))? {
            Some(bytes) => decode(|| plan_name(workflow, hash), bytes.value()).map(Some),
            None => Ok(None),
        })?;
        Ok(found.map(|plan: Plan| Arc::clone(lock(&self.plans).entry(key).or_insert(Arc::new(plan)))))
    }

    /// The agent as last applied.
    pub(super) fn agent(&self, file: &EmbeddedFile, id: &str) -> Result<Option<Arc<AgentRecord>>, Fault> {
        if let Some(agent) = lock(&self.agents).get(id) {
            return Ok(Some(Arc::clone(agent)));
        }
        let found = file.read(|read| match read.open_table(AGENTS)?.get(id)? {
            Some(bytes) => agent(id, bytes.value()).map(Some),
            None => Ok(None),
        })?;
        // What has been applied since the read stays.
        Ok(found.map(|agent| Arc::clone(lock(&self.agents).entry(id.to_owned()).or_insert(Arc::new(agent)))))
    }

    /// The agent as it was under `hash`.
    pub(super) fn version(&self, file: &EmbeddedFile, id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>, Fault> {
        let key = (id.to_owned(), hash.to_owned());
        if let Some(agent) = lock(&self.versions).get(&key) {
            return Ok(Some(Arc::clone(agent)));
        }
        let found = file.read(|read| match read.open_table(AGENT_VERSIONS)?.get((id, hash))? {
            Some(bytes) => agent(id, bytes.value()).map(Some),
            None => Ok(None),
        })?;
        Ok(found.map(|agent| Arc::clone(lock(&self.versions).entry(key).or_insert(Arc::new(agent)))))
    }

    /// All agents, by id.
    pub(super) fn agents(&self, file: &EmbeddedFile) -> Result<Vec<Arc<AgentRecord>>, Fault> {
        let ids = file.read(|read| {
            let rows = read.open_table(AGENTS)?;
            let ids: Result<Vec<_>, Fault> = rows.iter()?.map(|row| Ok(row?.0.value().to_owned())).collect();
            ids
        })?;
        ids.iter().filter_map(|id| self.agent(file, id).transpose()).collect()
    }

    /// An agent has been applied; called in the order of the commits.
    pub(super) fn applied(&self, agent: Arc<AgentRecord>) {
        lock(&self.agents).insert(agent.id().to_owned(), agent);
    }
}

fn plan_name(workflow: &str, hash: &str) -> String {
    format!("plan `{workflow}` of {hash}")
}

fn agent(id: &str, bytes: &[u8]) -> Result<AgentRecord, Fault> {
    let stored: StoredAgent = decode(|| format!("agent `{id}`"), bytes)?;
    AgentRecord::from_stored(stored)
        .map_err(|error| Fault::Damaged { what: format!("agent `{id}`"), problem: error.to_string() })
}

/// See [`Store::put_plan`](crate::store::Store::put_plan).
pub(super) fn put_plan(tables: &mut Tables<'_>, plan: Plan) -> Result<Arc<Plan>, Fault> {
    let key = (plan.workflow_id.as_str(), plan.hash.as_str());
    if let Some(found) = tables.plans.get(key)? {
        return decode(|| plan_name(key.0, key.1), found.value()).map(Arc::new);
    }
    let bytes = encode("the plan", &plan)?;
    tables.plans.insert(key, bytes.as_slice())?;
    Ok(Arc::new(plan))
}

/// See [`Store::put_agent`](crate::store::Store::put_agent).
pub(super) fn put_agent(tables: &mut Tables<'_>, agent: &AgentRecord) -> Result<bool, Fault> {
    let id = agent.id();
    // One that cannot be read any more is replaced: applying it again is the remedy.
    let known = tables.agents.get(id)?.and_then(|found| decode::<StoredAgent>(String::new, found.value()).ok());
    if known.is_some_and(|known| known.hash == agent.hash) {
        return Ok(false);
    }
    let bytes = encode("the agent", &agent.to_stored())?;
    tables.agents.insert(id, bytes.as_slice())?;
    tables.agent_versions.insert((id, agent.hash.as_str()), bytes.as_slice())?;
    Ok(true)
}

/// See [`Store::lead`](crate::store::Store::lead).
pub(super) fn lead(
    tables: &mut Tables<'_>,
    role: &str,
    owner: &str,
    lease: Duration,
    now: Timestamp,
) -> Result<bool, Fault> {
    let taken = tables.leaders.get(role)?.is_some_and(|leader| {
        let (leader, until) = leader.value();
        leader != owner && now.as_millis() < until
    });
    if !taken {
        tables.leaders.insert(role, (owner, now.plus(lease).as_millis()))?;
    }
    Ok(!taken)
}

/// See [`Store::resign`](crate::store::Store::resign).
pub(super) fn resign(tables: &mut Tables<'_>, role: &str, owner: &str) -> Result<(), Fault> {
    if tables.leaders.get(role)?.is_some_and(|leader| leader.value().0 == owner) {
        tables.leaders.remove(role)?;
    }
    Ok(())
}
