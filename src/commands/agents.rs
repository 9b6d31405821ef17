//! Agents: listings.

use crate::error::CommandError;
use base::{clock, config};
use definitions::agent::AgentRecord;
use engine::model::registry::ModelInfo;
use serde::{Deserialize, Serialize};
use storage::store::{Damaged, Listed, Store};
use types::budget::Limits;
use types::timestamp::Timestamp;

/// What a listing shows of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AgentSummary {
    /// Key of the agent.
    pub agent_id: String,
    /// The name it goes by.
    pub name: String,
    /// The model that it asks first.
    pub model: String,
    /// All that it asks: the next where the one before does not answer.
    #[serde(default)]
    pub models: Vec<String>,
    /// What speaks for the first: `openai`, `offline`, or `unknown` where the settings do not have it.
    pub provider: String,
    /// It serves workflows and takes no chat sessions.
    pub task: bool,
    /// The tokens that it may use; what is not there is not limited.
    #[serde(default)]
    pub budget: Limits,
    /// What it has used today (UTC), where a day has a limit.
    #[serde(default)]
    pub day_tokens: Option<u64>,
    /// md5 of its configuration.
    pub hash: String,
    /// When it was applied.
    pub updated_at: Timestamp,
    /// Why it cannot be read: another version wrote it, or a hand did. Applying it again is the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AgentSummary {
    /// Of an agent that cannot be read.
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

    /// Of an agent whose models are among `models`; what it has used today is not in it.
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

/// All agents that are applied, by id, with what they have used today; `models` are those of the settings, and so are the
/// budgets' defaults.
pub async fn applied(
    store: &dyn Store,
    models: &[ModelInfo],
    defaults: &config::Budget,
) -> Result<Vec<AgentSummary>, CommandError> {
    summaries(store, store.agents().await?, models, defaults).await
}

/// The same of these agents.
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
