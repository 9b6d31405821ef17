//! Workflows.

use super::{Access, direct};
use commands::workflows::WorkflowSummary;
use definitions::workflow::definition::{StoredWorkflow, WorkflowRecord};
use engine::workflow::Flows;

impl Access {
    /// All workflows, including the built-in ones.
    pub async fn list_workflows(&self) -> anyhow::Result<Vec<WorkflowSummary>> {
        match self {
            Self::Direct { store, .. } => direct(commands::workflows::summaries(store.as_ref()).await),
            Self::Gateway(client) => client.workflows().await,
        }
    }

    pub async fn get_workflow(&self, workflow_id: &str) -> anyhow::Result<Option<StoredWorkflow>> {
        match self {
            Self::Direct { store, .. } => {
                let found = direct(commands::workflows::find(store.as_ref(), workflow_id).await)?;
                Ok(found.map(|workflow| workflow.to_stored()))
            }
            Self::Gateway(client) => client.workflow(workflow_id).await,
        }
    }

    /// Registers a workflow. Returns true if its definition has changed.
    pub async fn register(&self, workflow: WorkflowRecord) -> anyhow::Result<bool> {
        match self {
            Self::Direct { store, known, .. } => {
                let here = (Flows::builtin().ids(), known.as_ref());
                direct(
                    commands::workflows::register(store.as_ref(), here, workflow)
                        .await
                        .map(|registered| registered.changed),
                )
            }
            Self::Gateway(client) => client.register(&workflow).await,
        }
    }
}
