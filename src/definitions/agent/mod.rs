//! Agents: the file's structure in [`config`] and as a JSON Schema in [`schema`], reading files in [`load`], checking them in
//! [`validate`], and the hash in [`canonical`].

pub mod load;
pub mod validate;

use types::agent::AgentConfig;
use types::canonical;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use types::model_names::ModelNames;
use types::timestamp::Timestamp;
use utoipa::ToSchema;

/// An agent as applied: what is stored, and the typed configuration read from it.
#[derive(Clone, Debug)]
pub struct AgentRecord {
    /// The typed configuration.
    pub config: Arc<AgentConfig>,
    /// The whole file as applied, secrets as `${NAME}`.
    pub document: Value,
    /// md5 of the canonical JSON of `document`.
    pub hash: String,
    /// When it was applied.
    pub updated_at: Timestamp,
    /// The text that it was read from, if any: what is wrong with it is found there.
    pub source: Option<Arc<str>>,
}

/// The same agent, whatever text it was read from.
impl PartialEq for AgentRecord {
    fn eq(&self, other: &Self) -> bool {
        let of = |agent: &Self| (Arc::clone(&agent.config), agent.updated_at);
        of(self) == of(other) && self.hash == other.hash && self.document == other.document
    }
}

/// An agent as stored (CONTRACT.md, `agents`); the key is `agent_id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoredAgent {
    /// Key of the agent.
    #[serde(alias = "_id")]
    pub agent_id: String,
    /// md5 of the canonical JSON of `config`.
    pub hash: String,
    /// The whole file as applied.
    pub config: Value,
    /// When it was applied.
    pub updated_at: Timestamp,
}

impl AgentRecord {
    /// Reads a file's content; the error names the field.
    pub fn from_document(document: Value, updated_at: Timestamp) -> Result<Self, load::AgentError> {
        let config = load::typed(&document)?;
        let hash = canonical::hash(&document);
        Ok(Self { config: Arc::new(config), document, hash, updated_at, source: None })
    }

    /// Key of the agent.
    pub fn id(&self) -> &str {
        &self.config.id
    }

    /// The same agent, asking these models.
    pub fn asking(&self, models: &ModelNames) -> Self {
        let config = AgentConfig { model: models.clone(), ..AgentConfig::clone(&self.config) };
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// From what a store kept.
    pub fn from_stored(stored: StoredAgent) -> Result<Self, load::AgentError> {
        let config = load::typed(&stored.config)?;
        let StoredAgent { hash, config: document, updated_at, .. } = stored;
        Ok(Self { config: Arc::new(config), document, hash, updated_at, source: None })
    }

    /// What a store keeps.
    pub fn to_stored(&self) -> StoredAgent {
        StoredAgent {
            agent_id: self.config.id.clone(),
            hash: self.hash.clone(),
            config: self.document.clone(),
            updated_at: self.updated_at,
        }
    }
}
