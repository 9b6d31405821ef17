//! Agents, models, and the workers that run them.

use super::{Access, direct};
use commands::agents::{AgentSummary, applied};
use commands::crew::Crew;
use commands::models::ModelList;
use definitions::agent::{AgentRecord, StoredAgent};

impl Access {
    /// The running workers.
    pub async fn crew(&self) -> anyhow::Result<Crew> {
        match self {
            Self::Direct { store, .. } => Ok(Crew::of(store.as_ref()).await?),
            Self::Gateway(client) => Ok(Crew::new(client.processes().await?)),
        }
    }

    pub async fn list_agents(&self) -> anyhow::Result<Vec<AgentSummary>> {
        match self {
            Self::Direct { store, models, budget, .. } => direct(applied(store.as_ref(), models, budget).await),
            Self::Gateway(client) => client.agents().await,
        }
    }

    /// Agents, models, and the workflow stages that name models.
    pub async fn list_models(&self) -> anyhow::Result<ModelList> {
        match self {
            Self::Direct { store, models, budget, .. } => {
                direct(commands::models::list(store.as_ref(), models.clone(), budget).await)
            }
            Self::Gateway(client) => client.models().await,
        }
    }

    pub async fn get_agent(&self, agent_id: &str) -> anyhow::Result<Option<StoredAgent>> {
        match self {
            Self::Direct { store, .. } => Ok(store.agent(agent_id).await?.map(|agent| agent.to_stored())),
            Self::Gateway(client) => client.agent(agent_id).await,
        }
    }

    /// Applies an agent. Returns true if its configuration has changed.
    pub async fn apply_agent(&self, agent: AgentRecord) -> anyhow::Result<bool> {
        match self {
            Self::Direct { store, .. } => Ok(store.put_agent(agent).await?),
            Self::Gateway(client) => client.apply(&agent).await,
        }
    }
}
