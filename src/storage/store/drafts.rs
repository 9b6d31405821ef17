//! Drafts: versions of agents and workflows that are not in use, and their publication.

use super::Result;
use super::versioned::Versioned;
use super::versions::VersionLabel;
use async_trait::async_trait;
use base::error::SharedError;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use serde_json::Value;
use types::authoring::Artifact;
use types::canonical;

/// A document that a dialogue or a person has made. That of a dialogue may be invalid for every program.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftVersion {
    /// Its kind.
    pub artifact: Artifact,
    /// The id of the agent or workflow.
    pub id: String,
    /// The hash of the document.
    pub hash: String,
    /// The whole file.
    pub document: Value,
    /// Its text, who has made it, and why.
    pub label: VersionLabel,
}

impl DraftVersion {
    /// Checks that a stored version with the same id and hash has the same document. A version never changes.
    pub fn check_unchanged(&self, stored: &Value) -> std::result::Result<(), SharedError> {
        if canonical::to_string(stored) == canonical::to_string(&self.document) {
            return Ok(());
        }
        let (kind, id, hash) = (self.artifact.as_str(), &self.id, &self.hash);
        Err(SharedError::from(format!(
            "{kind} `{id}` has another document with the hash {hash}, and a stored version never changes"
        )))
    }
}

/// An agent or a workflow.
#[derive(Clone, Debug)]
pub enum Definition {
    /// An agent.
    Agent(AgentRecord),
    /// A workflow.
    Workflow(WorkflowRecord),
}

impl Definition {
    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Agent(agent) => agent.id(),
            Self::Workflow(workflow) => workflow.id(),
        }
    }

    /// The hash of its document.
    pub fn hash(&self) -> &str {
        match self {
            Self::Agent(agent) => &agent.hash,
            Self::Workflow(workflow) => &workflow.hash,
        }
    }

    /// Its document.
    pub fn document(&self) -> &Value {
        match self {
            Self::Agent(agent) => agent.document(),
            Self::Workflow(workflow) => workflow.document(),
        }
    }
}

/// The version that a publication may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Any, or none.
    Anything,
    /// None: the id must be unused.
    Nothing,
    /// The version with this hash.
    Version(String),
}

impl Over {
    /// Whether the current version may be replaced. `known` is its hash.
    pub fn allows(&self, known: Option<&str>) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => known.is_none(),
            Self::Version(hash) => known == Some(hash),
        }
    }
}

/// A definition to put into use.
#[derive(Clone, Debug)]
pub struct PublishDefinition {
    /// The definition.
    pub definition: Definition,
    /// The version that it may replace.
    pub over: Over,
    /// The user who owns it from now on; `None` leaves the owner as it is.
    pub owner: Option<String>,
    /// Its text, who publishes it, and why.
    pub label: VersionLabel,
}

/// The result of a [`PublishDefinition`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishEnd {
    /// The definition is the current version now.
    Published,
    /// It was already the current version, which keeps a text or note that is given with it.
    Unchanged,
    /// Not the expected version is the current one, but the one with this hash. Nothing is changed.
    Moved(Option<String>),
}

/// Drafts, and their publication.
///
/// A draft is a version with the field `draft_of`: the sessions of the dialogues to which it belongs. Listings of
/// agents and workflows do not show it, and quotas do not count it. It is deleted with the last of its sessions
/// ([`Erasure::erase_records`](super::Erasure::erase_records)), not with the agent or workflow of its id. A draft that
/// no dialogue has made belongs to [`NO_DIALOGUE`](super::NO_DIALOGUE): it expires like an ordinary version, and is
/// deleted with its agent or workflow. When a draft becomes the current version of its id, it becomes an ordinary
/// version.
#[async_trait]
pub trait Drafts {
    /// Stores a draft of a session. If the version exists and is not a draft, only its text and note change. Durable on
    /// return. Refuses a version that is stored with another document.
    async fn put_draft(&self, draft: DraftVersion, session_id: &str) -> Result<()>;

    /// Returns the document of a version, even if it cannot be decoded as an agent or a workflow.
    async fn version_document(&self, artifact: Artifact, id: &str, hash: &str) -> Result<Option<Value>>;

    /// Deletes the drafts that belong to this session only. Durable on return. Returns their number.
    async fn drop_drafts(&self, session_id: &str) -> Result<u64>;

    /// Makes a version the current one, if the current version is still the one that the caller expects. Durable on
    /// return, and visible to every later [`Store::agent`](super::Store::agent) and
    /// [`Store::workflow`](super::Store::workflow).
    async fn publish(&self, publish: PublishDefinition) -> Result<PublishEnd>;

    /// Returns the user who owns the current version of an agent or a workflow.
    async fn owner(&self, artifact: Artifact, id: &str) -> Result<Option<String>>;
}
