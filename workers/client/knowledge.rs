//! Requests about knowledge texts.

use super::GatewayClient;
use commands::knowledge::{NewText, RemovedSource, StoredSource};
use definitions::knowledge::files::NamedText;
use definitions::knowledge::source::{Origin, SourceEntry};
use engine::knowledge::Hit;
use engine::knowledge::sync::Changes;
use reqwest::Method;

impl GatewayClient {
    /// Replaces the texts that an agent has from its file. Returns true if a text has changed.
    pub async fn apply_knowledge(&self, agent_id: &str, texts: Vec<NamedText>) -> anyhow::Result<bool> {
        let there = self.knowledge(Some(agent_id)).await?;
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
        let request = self.api(Method::PUT, &["knowledge", agent_id, name]).query(&[("refresh", last && !self.is_own)]);
        self.call(request.json(new)).await
    }

    /// Removes a text. `last` has the same meaning as in [`GatewayClient::put_knowledge`].
    pub async fn remove_knowledge(&self, agent_id: &str, name: &str, last: bool) -> anyhow::Result<RemovedSource> {
        self.call(self.api(Method::DELETE, &["knowledge", agent_id, name]).query(&[("refresh", last && !self.is_own)]))
            .await
    }

    pub async fn knowledge(&self, agent_id: Option<&str>) -> anyhow::Result<Vec<SourceEntry>> {
        let filter: Vec<_> = agent_id.map(|agent_id| ("agent_id", agent_id)).into_iter().collect();
        self.entries(self.api(Method::GET, &["knowledge"]).query(&filter), "sources", usize::MAX).await
    }

    pub async fn search_knowledge(&self, agent_id: &str, query: &str, limit: usize) -> anyhow::Result<Vec<Hit>> {
        let asked = [("agent_id", agent_id), ("query", query), ("limit", &limit.to_string())];
        self.listing(self.api(Method::GET, &["knowledge", "search"]).query(&asked), "hits").await
    }
}
