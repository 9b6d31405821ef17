//! The checks that an agent or a workflow passes before it is stored: the same for `PUT /api/v1/agents` and
//! `PUT /api/v1/workflows`, for programs, and for the drafts of authoring dialogues.
//!
//! [`workers_overview`] has the running workers, against which definitions are checked.

pub mod workers_overview;

pub use workers_overview::WorkersOverview;

use crate::run;
use base::config::Quotas;
use definitions::agent::AgentRecord;
use definitions::agent::load::AgentError;
use definitions::agent::validate::KnownNames;
use definitions::document::Finding;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::read::WorkflowError;
use std::sync::Arc;
use storage::store::{Store, StoreError};
use thiserror::Error;

/// Why a definition was not admitted.
#[derive(Debug, Error)]
pub enum AdmissionError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The agent cannot work.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The workflow cannot work.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
}

impl AdmissionError {
    /// The individual problems. Fails if they are unknown because the store failed.
    pub fn into_findings(self) -> Result<Vec<Finding>, StoreError> {
        let one = |path: &str, problem: String| {
            vec![Finding { at: None, path: path.to_owned(), problem, hint: String::new() }]
        };
        Ok(match self {
            Self::Store(error) => return Err(error),
            Self::Agent(AgentError::Invalid(findings)) | Self::Workflow(WorkflowError::Invalid(findings)) => findings,
            Self::Agent(AgentError::Field { path, problem, .. }) => one(&path, problem),
            Self::Agent(error) => one("", error.to_string()),
            Self::Workflow(error) => one("", error.to_string()),
        })
    }
}

/// Checks an agent against all running workers, or against the names `here` when none runs. Returns it with its warnings.
pub async fn agent(
    store: &dyn Store,
    here: &KnownNames,
    agent: AgentRecord,
) -> Result<(AgentRecord, Vec<Finding>), AdmissionError> {
    let known = WorkersOverview::from_store(store).await?.check_against(store, here).await?;
    Ok(known.check(agent)?)
}

/// Checks a workflow and its task agents against all running workers, or against `flows` and the names `here` when none
/// runs. Returns it with its warnings.
pub async fn workflow(
    store: &dyn Store,
    flows: Vec<String>,
    here: &KnownNames,
    workflow: WorkflowRecord,
) -> Result<(WorkflowRecord, Vec<Finding>), AdmissionError> {
    let crew = WorkersOverview::from_store(store).await?;
    let names = crew.check_against(store, here).await?;
    let flows = if crew.is_empty() { flows } else { crew.flows() };
    let agents = store.agents().await?.good;
    let known = run::runnables(store, flows).await?.with_names(&names);
    let known = known.with_needs(agents.iter().map(Arc::as_ref), &names);
    Ok(known.check(workflow)?)
}

/// Returns the number of stored versions of an agent if it may have no further one.
pub async fn full_agent(store: &dyn Store, quotas: &Quotas, agent_id: &str) -> Result<Option<u64>, StoreError> {
    Ok(reached(store.agent_version_count(agent_id).await?, quotas))
}

/// Returns the number of stored versions of a workflow if it may have no further one.
pub async fn full_workflow(store: &dyn Store, quotas: &Quotas, workflow_id: &str) -> Result<Option<u64>, StoreError> {
    Ok(reached(store.workflow_version_count(workflow_id).await?, quotas))
}

fn reached(stored: u64, quotas: &Quotas) -> Option<u64> {
    (quotas.versions > 0 && stored >= quotas.versions).then_some(stored)
}
