//! What agents answer from: listing, storing, removing, searching.

use crate::error::{CommandError, ErrorKind};
use base::clock;
use definitions::knowledge::source::{Origin, Source, SourceEntry};
use engine::knowledge::{Hit, Library};
use serde::{Deserialize, Serialize};
use storage::store::Store;
use types::ids;

/// How many hits a search answers unless told otherwise.
const DEFAULT_HITS: usize = 4;

/// The most hits of a search.
const MAX_HITS: usize = 50;

/// A text that an agent is to answer from.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NewText {
    /// Markdown where the source's name ends in `.md` or `.markdown`, else plain text; 1 MiB at most.
    #[schema(min_length = 1)]
    pub text: String,
    /// `added` unless given; an `agent_file` source goes when the agent's file is applied and names it no more.
    #[serde(default)]
    pub origin: Origin,
}

/// A source that is stored.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StoredSource {
    /// What it is.
    pub source: SourceEntry,
    /// False when it was there already.
    pub changed: bool,
}

/// A source that is not there any more.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RemovedSource {
    /// The agent.
    pub agent_id: String,
    /// Its name.
    pub source: String,
}

/// Sources of an agent or of all, by agent and name.
pub async fn sources(store: &dyn Store, agent_id: Option<&str>) -> Result<Vec<SourceEntry>, CommandError> {
    if let Some(agent_id) = agent_id {
        known_agent(store, agent_id).await?;
    }
    Ok(store.knowledge_entries(agent_id).await?)
}

/// Stores a text as the source `name` of an agent.
pub async fn put(store: &dyn Store, agent_id: &str, name: &str, new: &NewText) -> Result<StoredSource, CommandError> {
    known_agent(store, agent_id).await?;
    let source = Source::new(agent_id, (name, &new.text), new.origin, clock::now())?;
    let entry = source.entry.clone();
    let changed = store.put_knowledge(source).await?;
    Ok(StoredSource { source: entry, changed })
}

/// Removes a source.
pub async fn remove(store: &dyn Store, agent_id: &str, name: &str) -> Result<RemovedSource, CommandError> {
    known_agent(store, agent_id).await?;
    if !store.remove_knowledge(agent_id, name).await? {
        let message = format!("agent `{agent_id}` has no source `{name}`");
        let hint = format!("`turnwheel knowledge list --agent {agent_id}` shows those it has");
        return Err(CommandError::new(ErrorKind::NotFound, "unknown_source", message, hint));
    }
    Ok(RemovedSource { agent_id: agent_id.to_owned(), source: name.to_owned() })
}

/// The passages that a question finds, the best first: what a reply to it would be written from.
pub async fn search(
    (store, library): (&dyn Store, &Library),
    agent_id: &str,
    query: &str,
    limit: Option<usize>,
) -> Result<Vec<Hit>, CommandError> {
    let limit = limit.unwrap_or(DEFAULT_HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        let message = format!("limit: {limit} is not between 1 and {MAX_HITS}");
        return Err(CommandError::invalid(
            "invalid_query",
            message,
            format!("{DEFAULT_HITS} is what holds without a limit"),
        ));
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
