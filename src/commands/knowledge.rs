//! Listing, storing, removing and searching knowledge sources of agents.

use crate::error::{CommandError, ErrorKind};
use crate::quotas::check_source;
use base::clock;
use base::config::Quotas;
use definitions::knowledge::source::{Origin, Source, SourceEntry};
use engine::knowledge::{Hit, Library};
use serde::{Deserialize, Serialize};
use storage::store::Store;
use types::ids;

/// The number of hits that a search returns by default.
pub const DEFAULT_HITS: usize = 4;

/// The largest number of hits that a search returns.
pub const MAX_HITS: usize = 50;

/// A text to be stored as a knowledge source.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NewText {
    /// The text, at most 1 MiB. It is Markdown when the source's name ends in `.md` or `.markdown`, else plain text.
    #[schemars(length(min = 1))]
    pub text: String,
    /// The origin of the source; `added` by default. A source with the origin `agent_file` is removed when the agent's
    /// file is applied and no longer names it.
    #[serde(default)]
    pub origin: Origin,
}

/// A stored source.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StoredSource {
    /// The source without its text.
    pub source: SourceEntry,
    /// False when the same source was already stored.
    pub changed: bool,
}

/// A removed source.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RemovedSource {
    /// The agent that had the source.
    pub agent_id: String,
    /// The name of the source.
    pub source: String,
}

/// Lists the sources of one agent, or of all agents, by agent and name.
pub async fn sources(store: &dyn Store, agent_id: Option<&str>) -> Result<Vec<SourceEntry>, CommandError> {
    if let Some(agent_id) = agent_id {
        known_agent(store, agent_id).await?;
    }
    Ok(store.knowledge_entries(agent_id).await?)
}

/// Stores a text as the source `name` of an agent. Durable on return.
pub async fn put(
    store: &dyn Store,
    quotas: &Quotas,
    agent_id: &str,
    name: &str,
    new: &NewText,
) -> Result<StoredSource, CommandError> {
    known_agent(store, agent_id).await?;
    let source = Source::new(agent_id, name, &new.text, new.origin, clock::now())?;
    check_source(store, quotas, &source.entry).await?;
    let entry = source.entry.clone();
    let changed = store.put_knowledge(source).await?;
    Ok(StoredSource { source: entry, changed })
}

/// Removes a source. Durable on return. Fails with `unknown_source` when it does not exist.
pub async fn remove(store: &dyn Store, agent_id: &str, name: &str) -> Result<RemovedSource, CommandError> {
    known_agent(store, agent_id).await?;
    if !store.remove_knowledge(agent_id, name).await? {
        let message = format!("agent `{agent_id}` has no source `{name}`");
        let hint = format!("`turnwheel knowledge list --agent {agent_id}` shows its sources");
        return Err(CommandError::new(ErrorKind::NotFound, "unknown_source", message, hint));
    }
    Ok(RemovedSource { agent_id: agent_id.to_owned(), source: name.to_owned() })
}

/// Returns the passages that match a question, the best first. They are the basis of the agent's reply to it.
pub async fn search(
    store: &dyn Store,
    library: &Library,
    agent_id: &str,
    query: &str,
    limit: Option<usize>,
) -> Result<Vec<Hit>, CommandError> {
    let limit = limit.unwrap_or(DEFAULT_HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        let message = format!("limit: {limit} is not between 1 and {MAX_HITS}");
        return Err(CommandError::invalid("invalid_query", message, format!("the default is {DEFAULT_HITS}")));
    }
    known_agent(store, agent_id).await?;
    Ok(library.ask(agent_id, query, limit).await?)
}

async fn known_agent(store: &dyn Store, agent_id: &str) -> Result<(), CommandError> {
    ids::check("agent_id", agent_id)?;
    match store.agent(agent_id).await? {
        Some(_) => Ok(()),
        None => Err(CommandError::unknown_agent(agent_id)),
    }
}
