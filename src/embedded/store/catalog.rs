//! Plans, with a cache in memory, since there are few and every turn needs one. Also the scheduler's leadership.

use super::EmbeddedFile;
use super::fault::FileFault;
use super::shared_definitions::SharedDefinitions;
use super::tables::{PLANS, Tables, decode, encode};
use super::versioned_table::VersionedTable;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use redb::ReadableTable;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use types::plan::Plan;
use types::timestamp::Timestamp;

/// Caches of the definitions that were read so far.
#[derive(Debug)]
pub(super) struct Catalog {
    plans: Mutex<HashMap<(String, String), Arc<Plan>>>,
    pub(super) agents: Arc<VersionedTable<AgentRecord>>,
    pub(super) workflows: Arc<VersionedTable<WorkflowRecord>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Catalog {
    /// The definitions of a file, and these.
    pub(super) fn over(shared: SharedDefinitions) -> Self {
        let SharedDefinitions { agents, workflows } = shared;
        let (agents, workflows) = (Arc::new(VersionedTable::over(agents)), Arc::new(VersionedTable::over(workflows)));
        Self { plans: Mutex::default(), agents, workflows }
    }

    /// Returns the plan of a configuration by (workflow, hash). A stored plan never changes.
    pub(super) fn plan(&self, file: &EmbeddedFile, workflow: &str, hash: &str) -> Result<Option<Arc<Plan>>, FileFault> {
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
}

impl Catalog {
    /// Drops the copies of all versions that are not current.
    pub(super) fn forget_all_versions(&self) {
        self.agents.forget_all_versions();
        self.workflows.forget_all_versions();
    }

    /// Drops the copies of an agent and its plans.
    pub(super) fn forget_agent(&self, agent_id: &str) {
        self.agents.forget(agent_id);
        lock(&self.plans).retain(|(workflow, _), _| workflow != agent_id);
    }
}

impl Catalog {
    /// Drops the copies of plans that have expired.
    pub(super) fn forget_plans(&self, expired: &[(String, String)]) {
        let mut plans = lock(&self.plans);
        expired.iter().for_each(|plan| drop(plans.remove(plan)));
    }
}

fn plan_name(workflow: &str, hash: &str) -> String {
    format!("plan `{workflow}` of {hash}")
}

/// Implements [`Store::put_plan`](storage::store::Store::put_plan).
pub(super) fn put_plan(tables: &mut Tables<'_>, plan: Plan) -> Result<Arc<Plan>, FileFault> {
    let key = (plan.workflow_id.as_str(), plan.hash.as_str());
    if let Some(found) = tables.plans.get(key)? {
        return decode(|| plan_name(key.0, key.1), found.value()).map(Arc::new);
    }
    let bytes = encode("the plan", &plan)?;
    tables.plans.insert(key, bytes.as_slice())?;
    Ok(Arc::new(plan))
}

/// Implements [`Store::lead`](storage::store::Store::lead).
pub(super) fn lead(
    tables: &mut Tables<'_>,
    role: &str,
    owner: &str,
    lease: Duration,
    now: Timestamp,
) -> Result<bool, FileFault> {
    let taken = tables.leaders.get(role)?.is_some_and(|leader| {
        let (leader, until) = leader.value();
        leader != owner && now.as_millis() < until
    });
    if !taken {
        tables.leaders.insert(role, (owner, now.plus(lease).as_millis()))?;
    }
    Ok(!taken)
}

/// Implements [`Store::resign`](storage::store::Store::resign).
pub(super) fn resign(tables: &mut Tables<'_>, role: &str, owner: &str) -> Result<(), FileFault> {
    if tables.leaders.get(role)?.is_some_and(|leader| leader.value().0 == owner) {
        tables.leaders.remove(role)?;
    }
    Ok(())
}
