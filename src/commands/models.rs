//! Listing models with their circuits, the agents that use them, and the stages of workflows that name their own
//! models.

use super::agents::{AgentSummary, summaries};
use crate::error::CommandError;
use base::config;
use definitions::workflow::runnable_registry::models_of_stages;
use engine::model::registry::ModelInfo;
use serde::{Deserialize, Serialize};
use storage::store::Store;

/// A stage of a workflow that names its own models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StageModels {
    /// The id of the workflow.
    pub workflow_id: String,
    /// The path of the stage within the workflow, such as `outer_loop/verify`.
    pub stage: String,
    /// The models of the stage, which replace those of its agent.
    pub models: Vec<String>,
}

/// Agents, models and stages. Keys and addresses are not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ModelList {
    /// All applied agents, by id, followed by the task agents that are compiled into the program.
    pub agents: Vec<AgentSummary>,
    /// The stages of workflows that name their own models, by workflow.
    pub stages: Vec<StageModels>,
    /// The models that agents and stages can name.
    pub models: Vec<ModelInfo>,
}

/// Returns the whole listing. `models` are the models that agents may name.
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
