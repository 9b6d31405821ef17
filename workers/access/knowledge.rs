//! The texts that agents answer from.

use super::{Access, direct};
use commands::knowledge::{NewText, RemovedSource, StoredSource};
use definitions::knowledge::files::NamedText;
use definitions::knowledge::source::{Origin, SourceEntry};
use engine::knowledge::sync::{self, Changes};
use engine::knowledge::{Hit, Library};
use std::sync::Arc;

impl Access {
    /// Replaces the texts that an agent has from its file. Returns true if a text has changed.
    pub async fn apply_knowledge(&self, agent_id: &str, texts: Vec<NamedText>) -> anyhow::Result<bool> {
        if let Self::Direct { store, .. } = self {
            return Ok(sync::store(store.as_ref(), agent_id, texts).await?);
        }
        let there = self.list_knowledge(Some(agent_id)).await?;
        let changes = Changes::between(agent_id, &there, texts);
        let mut left = changes.put.len() + changes.remove.len();
        let mut is_last = || {
            left -= 1;
            left == 0
        };
        for NamedText { name, text } in &changes.put {
            let new = NewText { text: text.clone(), origin: Origin::AgentFile };
            self.put_knowledge(agent_id, name, &new, is_last()).await?;
        }
        for name in &changes.remove {
            self.remove_knowledge(agent_id, name, is_last()).await?;
        }
        Ok(!changes.is_empty())
    }

    /// Stores a text. `last` marks the last one of several: only then the gateway indexes the agent's texts again.
    pub async fn put_knowledge(
        &self,
        agent_id: &str,
        name: &str,
        new: &NewText,
        last: bool,
    ) -> anyhow::Result<StoredSource> {
        match self {
            Self::Direct { store, .. } => direct(commands::knowledge::put(store.as_ref(), agent_id, name, new).await),
            Self::Gateway(client) => client.put_knowledge(agent_id, name, new, last).await,
        }
    }

    /// Removes a text. `last` has the same meaning as in [`Access::put_knowledge`].
    pub async fn remove_knowledge(&self, agent_id: &str, name: &str, last: bool) -> anyhow::Result<RemovedSource> {
        match self {
            Self::Direct { store, .. } => direct(commands::knowledge::remove(store.as_ref(), agent_id, name).await),
            Self::Gateway(client) => client.remove_knowledge(agent_id, name, last).await,
        }
    }

    pub async fn list_knowledge(&self, agent_id: Option<&str>) -> anyhow::Result<Vec<SourceEntry>> {
        match self {
            Self::Direct { store, .. } => direct(commands::knowledge::sources(store.as_ref(), agent_id).await),
            Self::Gateway(client) => client.knowledge(agent_id).await,
        }
    }

    pub async fn search_knowledge(&self, agent_id: &str, query: &str, limit: usize) -> anyhow::Result<Vec<Hit>> {
        match self {
            Self::Direct { store, .. } => {
                let library = Library::new(Arc::clone(store));
                direct(commands::knowledge::search((store.as_ref(), &library), agent_id, query, Some(limit)).await)
            }
            Self::Gateway(client) => client.search_knowledge(agent_id, query, limit).await,
        }
    }
}
