//! Listing models with their circuits, the agents that use them, and the stages of workflows that name their own
//! models.

use super::agents::{AgentSummary, summaries};
use crate::error::CommandError;
use crate::paging::{Listing, fit, part_of};
use base::config;
use definitions::workflow::runnable_registry::models_of_stages;
use engine::model::registry::ModelInfo;
use serde::{Deserialize, Serialize};
use storage::store::Store;
use types::page::Bounds;

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
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An entry of one of the three lists.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Agent(AgentSummary),
    Stage(StageModels),
    Model(ModelInfo),
}

impl Entry {
    fn key(&self) -> String {
        match self {
            Self::Agent(agent) => format!("agents/{}", agent.agent_id),
            Self::Stage(StageModels { workflow_id, stage, .. }) => format!("stages/{workflow_id}/{stage}"),
            Self::Model(model) => format!("models/{}", model.name),
        }
    }
}

/// The place of an entry: its number in the three lists, and its key.
pub type ModelPlace = (u64, String);

/// Returns a page of the three lists, one after the other. `models` are the models that agents may name.
pub async fn list(
    store: &dyn Store,
    models: Vec<ModelInfo>,
    defaults: &config::Budget,
    bounds: &Bounds<ModelPlace>,
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
    let entries = agents.into_iter().map(Entry::Agent).chain(stages.into_iter().map(Entry::Stage));
    let entries: Vec<Entry> = entries.chain(models.into_iter().map(Entry::Model)).collect();
    let begin = bounds.after.as_ref().map_or(0, |(number, key)| behind(&entries, *number, key));
    let numbered = (0..).zip(entries).skip(begin);
    let page =
        part_of(numbered, &Bounds::<()> { after: None, limit: bounds.limit, max_bytes: bounds.max_bytes }, |_, ()| {
            true
        });
    let Listing { items, next } = fit(page, |(number, entry): &(u64, Entry)| (*number, entry.key()));
    let mut list = ModelList { agents: Vec::new(), stages: Vec::new(), models: Vec::new(), next };
    for (_, entry) in items {
        match entry {
            Entry::Agent(agent) => list.agents.push(agent),
            Entry::Stage(stage) => list.stages.push(stage),
            Entry::Model(model) => list.models.push(model),
        }
    }
    Ok(list)
}

/// The number of entries up to the one with this key. If it is deleted, its former number counts.
fn behind(entries: &[Entry], number: u64, key: &str) -> usize {
    let found = entries.iter().position(|entry| entry.key() == key);
    found.map_or_else(|| usize::try_from(number).unwrap_or(usize::MAX), |at| at + 1)
}
