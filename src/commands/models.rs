//! Models with their circuits, the agents that use them, and stages of workflows that name some.

use super::agents::{AgentSummary, summaries};
use crate::error::CommandError;
use base::config;
use definitions::workflow::known::models_of_stages;
use engine::model::registry::ModelInfo;
use serde::{Deserialize, Serialize};
use storage::store::Store;

/// A stage of a workflow that names its models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StageModels {
    /// The workflow.
    pub workflow_id: String,
    /// The stage within it, such as `outer_loop/verify`.
    pub stage: String,
    /// What it asks, in place of what its agent names.
    pub models: Vec<String>,
}

/// Agents, models and stages, without keys and addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ModelList {
    /// All agents that are applied, by id, and after them the task agents that come with the program.
    pub agents: Vec<AgentSummary>,
    /// Stages of workflows that name their models, by workflow.
    pub stages: Vec<StageModels>,
    /// The models that can be named.
    pub models: Vec<ModelInfo>,
}

/// All of it; `models` are those that agents may name.
pub async fn list(
    store: &dyn Store,
    models: Vec<ModelInfo>,
    defaults: &config::Budget,
) -> Result<ModelList, CommandError> {
    let agents = summaries(store, engine::execution::stored::agents(store).await?, &models, defaults).await?;
    let mut stages = Vec::new();
    for record in engine::execution::stored::workflows(store).await?.good {
        stages.extend(models_of_stages(&record.workflow).into_iter().map(|(stage, names)| StageModels {
            workflow_id: record.id().to_owned(),
            stage,
            models: names.iter().map(str::to_owned).collect(),
        }));
    }
    Ok(ModelList { agents, stages, models })
}
