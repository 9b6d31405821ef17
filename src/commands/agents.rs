//! Listing agents.

use crate::error::CommandError;
use base::{clock, config};
use definitions::agent::AgentRecord;
use engine::model::registry::ModelInfo;
use serde::{Deserialize, Serialize};
use storage::store::{Damaged, Listed, Store};
use types::budget::Limits;
use types::timestamp::Timestamp;

/// An agent in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AgentSummary {
    /// The agent's id.
    pub agent_id: String,
    /// The agent's display name.
    pub name: String,
    /// The model that the agent uses first.
    pub model: String,
    /// All models of the agent, in the order in which they are tried: the next one is used when the previous one fails.
    #[serde(default)]
    pub models: Vec<String>,
    /// The provider of the first model: `openai`, `offline`, `rust` (a model added by a program in Rust), or `unknown`
    /// (the settings do not have the model).
    pub provider: String,
    /// True for a task agent: it serves workflows and takes no chat sessions.
    pub task: bool,
    /// The limits on the tokens that the agent may use. A missing limit means unlimited.
    #[serde(default)]
    pub budget: Limits,
    /// The tokens that the agent has used today (UTC). Only present when the agent has a daily limit.
    #[serde(default)]
    pub day_tokens: Option<u64>,
    /// The md5 hash of the agent's configuration.
    pub hash: String,
    /// When the configuration was applied.
    pub updated_at: Timestamp,
    /// Why the stored configuration cannot be decoded: another version wrote it, or a person edited it. Apply the
    /// agent's file again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AgentSummary {
    /// The entry for an agent that cannot be decoded.
    fn damaged(Damaged { id, problem }: Damaged) -> Self {
        Self {
            agent_id: id,
            name: String::new(),
            model: String::new(),
            models: Vec::new(),
            provider: String::new(),
            task: false,
            budget: Limits::default(),
            day_tokens: None,
            hash: String::new(),
            updated_at: Timestamp::from_millis(0),
            error: Some(problem),
        }
    }

    /// The entry for an agent. `models` are the known models. Leaves `day_tokens` empty.
    pub fn new(agent: &AgentRecord, models: &[ModelInfo], defaults: &config::Budget) -> Self {
        let names = &agent.config.model;
        let model = models.iter().find(|model| model.name == names.first());
        Self {
            agent_id: agent.config.id.clone(),
            name: agent.config.name.clone(),
            model: names.first().to_owned(),
            models: names.iter().map(str::to_owned).collect(),
            provider: model.map_or_else(|| "unknown".to_owned(), |model| model.provider.clone()),
            task: agent.config.is_task_agent(),
            budget: defaults.limits(agent.config.budget),
            day_tokens: None,
            hash: agent.hash.clone(),
            updated_at: agent.updated_at,
            error: None,
        }
    }
}

/// Lists all applied agents, by id, with the tokens that they have used today. `models` and `defaults` come from the
/// settings.
pub async fn applied(
    store: &dyn Store,
    models: &[ModelInfo],
    defaults: &config::Budget,
) -> Result<Vec<AgentSummary>, CommandError> {
    summaries(store, store.agents().await?, models, defaults).await
}

/// Lists the given agents in the same form as [`applied`].
pub async fn summaries(
    store: &dyn Store,
    agents: Listed<AgentRecord>,
    models: &[ModelInfo],
    defaults: &config::Budget,
) -> Result<Vec<AgentSummary>, CommandError> {
    let Listed { good, damaged } = agents;
    let mut agents: Vec<_> = good.iter().map(|agent| AgentSummary::new(agent, models, defaults)).collect();
    let limited = agents.iter().filter(|agent| agent.budget.day.is_some());
    let limited: Vec<String> = limited.map(|agent| agent.agent_id.clone()).collect();
    if !limited.is_empty() {
        let used = store.tokens_of_day(&clock::now().day(), limited).await?;
        for agent in agents.iter_mut().filter(|agent| agent.budget.day.is_some()) {
            agent.day_tokens = Some(used.get(&agent.agent_id).copied().unwrap_or(0));
        }
    }
    agents.extend(damaged.into_iter().map(AgentSummary::damaged));
    Ok(agents)
}
