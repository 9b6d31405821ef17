//! Lookup of workflows and task agents by id: first in the store, then among the built-in ones, which need no
//! registration.

use crate::workflow::orchestration::resolved::{Definitions, ResolveError, ResolvedDefinitions};
use async_trait::async_trait;
use base::clock::{Moment, moment};
use base::error::SharedError;
use definitions::agent::{AgentRecord, load};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::read;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use storage::store::{self, Listed, Store, StoreError};
use tracing::error;

/// A version is stored again after this time, since versions that nothing stores or uses expire.
const STORED_AGAIN_AFTER: Duration = Duration::from_secs(3_600);
/// The number of versions that are known to be stored. Beyond it they are stored again.
const MAX_KNOWN: usize = 10_000;

/// The built-in workflows by id.
static WORKFLOWS: LazyLock<BTreeMap<String, Arc<WorkflowRecord>>> = LazyLock::new(|| {
    let good = read::builtin().into_iter().filter_map(|(path, workflow)| {
        let workflow = workflow.inspect_err(|problem| error!("{}: {problem}", path.display())).ok()?;
        Some((workflow.id().to_owned(), Arc::new(workflow)))
    });
    good.collect()
});

/// The built-in agents by id.
static AGENTS: LazyLock<BTreeMap<String, Arc<AgentRecord>>> = LazyLock::new(|| {
    let good = load::builtin().into_iter().filter_map(|(path, agent)| {
        let agent = agent.inspect_err(|problem| error!("{}: {problem}", path.display())).ok()?;
        Some((agent.id().to_owned(), Arc::new(agent)))
    });
    good.collect()
});

/// Returns the ids of the built-in workflows.
pub fn builtin_workflows() -> impl Iterator<Item = String> {
    WORKFLOWS.keys().cloned()
}

/// Returns the workflow with this id: the registered one, else the built-in one.
pub async fn workflow(store: &dyn Store, id: &str) -> store::Result<Option<Arc<WorkflowRecord>>> {
    Ok(store.workflow(id).await?.or_else(|| WORKFLOWS.get(id).cloned()))
}

/// Returns the agent with this id: the applied one, else the built-in one.
pub async fn agent(store: &dyn Store, id: &str) -> store::Result<Option<Arc<AgentRecord>>> {
    Ok(store.agent(id).await?.or_else(|| AGENTS.get(id).cloned()))
}

/// Returns the hash of the definition that a run of `id` executes: a workflow, else a task agent as a workflow of one
/// stage.
pub async fn runs(store: &dyn Store, id: &str) -> store::Result<Option<String>> {
    if let Some(workflow) = workflow(store, id).await? {
        return Ok(Some(workflow.hash.clone()));
    }
    Ok(agent(store, id).await?.filter(|agent| agent.config.is_task_agent()).map(|agent| agent.hash.clone()))
}

/// Returns all workflows, sorted by id. A stored workflow hides the built-in one with its id even if it is
/// unreadable, since the built-in one must not run instead.
pub async fn workflows(store: &dyn Store) -> store::Result<Listed<WorkflowRecord>> {
    let Listed { good, damaged } = store.workflows().await?;
    let mut by_id = WORKFLOWS.clone();
    by_id.extend(good.into_iter().map(|workflow| (workflow.id().to_owned(), workflow)));
    damaged.iter().for_each(|damaged| drop(by_id.remove(&damaged.id)));
    Ok(Listed { good: by_id.into_values().collect(), damaged })
}

/// Returns all applied agents, sorted by id, followed by the built-in task agents.
pub async fn agents(store: &dyn Store) -> store::Result<Listed<AgentRecord>> {
    let mut agents = store.agents().await?;
    let read = agents.good.iter().map(|agent| agent.id().to_owned());
    let applied: HashSet<String> = read.chain(agents.damaged.iter().map(|damaged| damaged.id.clone())).collect();
    let own = AGENTS.values().filter(|agent| agent.config.is_task_agent() && !applied.contains(agent.id()));
    agents.good.extend(own.cloned());
    Ok(agents)
}

/// The definitions that runs use: those of a store, and the built-in ones.
pub struct StoredDefinitions {
    store: Arc<dyn Store>,
    /// Ids and hashes of versions that are known to be in the store, with the time at which they were stored.
    kept: Mutex<HashMap<(String, String), Moment>>,
}

impl StoredDefinitions {
    /// Creates the lookup over `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, kept: Mutex::default() }
    }

    /// Stores the versions of all definitions of a run. Durable on return. A worker of another Turnwheel version,
    /// with other built-in definitions, can then continue the run.
    pub async fn keep(&self, resolved: &ResolvedDefinitions) -> store::Result<()> {
        let (workflows, agents) = resolved.definitions();
        for workflow in workflows {
            if !self.has_kept(workflow.id(), &workflow.hash) {
                self.store.put_workflow_version(workflow).await?;
                self.note(workflow.id(), &workflow.hash);
            }
        }
        for agent in agents {
            if !self.has_kept(agent.id(), &agent.hash) {
                self.store.put_agent_version(agent).await?;
                self.note(agent.id(), &agent.hash);
            }
        }
        Ok(())
    }

    fn has_kept(&self, id: &str, hash: &str) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&(id.to_owned(), hash.to_owned())).is_some_and(|at| at.elapsed() < STORED_AGAIN_AFTER)
    }

    fn note(&self, id: &str, hash: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KNOWN {
            kept.clear();
        }
        kept.insert((id.to_owned(), hash.to_owned()), moment());
    }
}

/// Converts a store error. An unreadable definition fails the run, because waiting does not make it readable.
fn resolve_error(error: StoreError) -> ResolveError {
    match error {
        StoreError::Damaged { .. } => {
            let problem = format!("{error}; apply it again, or run the version of Turnwheel that wrote it");
            ResolveError::Unfit(SharedError::explained(problem, error))
        }
        StoreError::Newer { .. } => ResolveError::Newer(error.into()),
        StoreError::Unavailable(_) | StoreError::Refused(_) => ResolveError::Unavailable(error.into()),
    }
}

#[async_trait]
impl Definitions for StoredDefinitions {
    async fn workflow(&self, id: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError> {
        workflow(self.store.as_ref(), id).await.map_err(resolve_error)
    }

    async fn workflow_version(&self, id: &str, hash: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError> {
        let kept = self.store.workflow_version(id, hash).await.map_err(resolve_error)?;
        Ok(kept.or_else(|| WORKFLOWS.get(id).filter(|workflow| workflow.hash == hash).cloned()))
    }

    async fn agent(&self, id: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError> {
        let applied = self.store.agent(id).await.map_err(resolve_error)?;
        Ok(applied.or_else(|| AGENTS.get(id).cloned()))
    }

    async fn agent_version(&self, id: &str, hash: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError> {
        let kept = self.store.agent_version(id, hash).await.map_err(resolve_error)?;
        Ok(kept.or_else(|| AGENTS.get(id).filter(|agent| agent.hash == hash).cloned()))
    }
}
