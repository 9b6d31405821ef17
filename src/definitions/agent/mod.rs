//! Agents: [`load`] reads agent files, [`validate`] checks them. The structure of the file is in [`types::agent`], its
//! hash in [`types::canonical`].

pub mod load;
pub mod validate;

use types::agent::AgentConfig;
use types::canonical;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use types::model_names::ModelNames;
use types::timestamp::Timestamp;

/// An agent: the document as applied, and the configuration parsed from it.
#[derive(Clone, Debug)]
pub struct AgentRecord {
    /// The parsed configuration.
    pub config: Arc<AgentConfig>,
    /// The whole file as applied. Secrets are references of the form `${NAME}`.
    pub document: Value,
    /// md5 of the canonical JSON of `document`.
    pub hash: String,
    /// When the agent was applied.
    pub updated_at: Timestamp,
    /// The text that the document was parsed from, to locate problems; `None` for a stored agent.
    pub source: Option<Arc<str>>,
}

/// Compares everything except the source text.
impl PartialEq for AgentRecord {
    fn eq(&self, other: &Self) -> bool {
        let of = |agent: &Self| (Arc::clone(&agent.config), agent.updated_at);
        of(self) == of(other) && self.hash == other.hash && self.document == other.document
    }
}

/// An agent as stored in `agents`, under the key `agent_id`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoredAgent {
    /// Id of the agent.
    #[serde(alias = "_id")]
    pub agent_id: String,
    /// md5 of the canonical JSON of `config`.
    pub hash: String,
    /// The whole file as applied.
    pub config: Value,
    /// When the agent was applied.
    pub updated_at: Timestamp,
}

impl AgentRecord {
    /// Parses a document. The error names the field.
    pub fn from_document(document: Value, updated_at: Timestamp) -> Result<Self, load::AgentError> {
        let config = load::typed(&document)?;
        let hash = canonical::hash(&document);
        Ok(Self { config: Arc::new(config), document, hash, updated_at, source: None })
    }

    /// Id of the agent.
    pub fn id(&self) -> &str {
        &self.config.id
    }

    /// A copy of the agent that uses these models instead of its own.
    pub fn asking(&self, models: &ModelNames) -> Self {
        let config = AgentConfig { model: models.clone(), ..AgentConfig::clone(&self.config) };
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// Parses a stored agent. Keeps the stored hash.
    pub fn from_stored(stored: StoredAgent) -> Result<Self, load::AgentError> {
        let config = load::typed(&stored.config)?;
        let StoredAgent { hash, config: document, updated_at, .. } = stored;
        Ok(Self { config: Arc::new(config), document, hash, updated_at, source: None })
    }

    /// The agent in its stored form.
    pub fn to_stored(&self) -> StoredAgent {
        StoredAgent {
            agent_id: self.config.id.clone(),
            hash: self.hash.clone(),
            config: self.document.clone(),
            updated_at: self.updated_at,
        }
    }
}
