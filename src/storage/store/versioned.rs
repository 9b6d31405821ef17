//! Storage of agents and workflows alike: the current document under its id, and every version of it under its hash.

use crate::store::StoreError;
use base::error::SharedError;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::warn;
use types::canonical;
use types::timestamp::Timestamp;

/// A definition with an id and a hash that is stored together with its older versions.
pub trait Versioned: Sized + Send + Sync + 'static {
    /// The word for the kind of definition in error messages.
    const WHAT: &'static str;
    /// The collection with the current versions.
    const CURRENT: &'static str;
    /// The collection with all versions.
    const VERSIONS: &'static str;
    /// The field with the definition's id.
    const KEY: &'static str;
    /// The field with the whole file.
    const DOCUMENT: &'static str;

    /// Returns the definition's id.
    fn id(&self) -> &str;
    /// Returns the md5 hash of the canonical JSON of the definition's file.
    fn hash(&self) -> &str;
    /// Returns the whole file.
    fn document(&self) -> &Value;
    /// Returns the text from which the file was parsed, if it is known.
    fn source(&self) -> Option<&str>;
    /// Returns the time at which the definition was stored.
    fn updated_at(&self) -> Timestamp;
    /// Returns the session that owns the definition. Such a definition is in no listing and expires.
    fn owner_session(&self) -> Option<&str> {
        None
    }

    /// Decodes a stored definition. Fails with the reason, which does not name the definition.
    fn from_version(kept: StoredVersion) -> Result<Self, SharedError>;

    /// Returns the stored fields as JSON.
    fn fields(&self) -> Value {
        let mut fields = json!({
            (Self::KEY): self.id(),
            "hash": self.hash(),
            (Self::DOCUMENT): self.document(),
            "updated_at": self.updated_at(),
        });
        if let Some(owner_session) = self.owner_session() {
            fields["owner_session"] = owner_session.into();
        }
        fields
    }

    /// Returns the name of a definition in error messages, for example ``agent `support` ``.
    fn named(id: &str) -> String {
        format!("{} `{id}`", Self::WHAT)
    }
}

/// Checks that the stored version with the hash of `record` is `record`. A version never changes: runs and sessions
/// load the version with which they began by its hash, and md5 does not exclude a second document with the same hash.
pub fn check_unchanged<T: Versioned>(stored: &T, record: &T) -> Result<(), SharedError> {
    if canonical::to_string(stored.document()) == canonical::to_string(record.document()) {
        return Ok(());
    }
    let (named, hash) = (T::named(record.id()), record.hash());
    Err(SharedError::from(format!(
        "{named} has another document with the hash {hash}, and a stored version never changes; change any field of the \
         file and store it again"
    )))
}

/// The stored fields of a definition, as both kinds have them.
#[derive(Deserialize)]
pub struct StoredVersion {
    pub(crate) hash: String,
    #[serde(alias = "config", alias = "definition")]
    /// The whole file.
    pub document: Value,
    pub(crate) updated_at: Timestamp,
    /// The session that owns the definition.
    #[serde(default)]
    pub(crate) owner_session: Option<String>,
}

/// The current definitions of one kind, ordered by id.
#[derive(Debug)]
pub struct Listed<T> {
    /// The definitions that this version of the program can decode.
    pub good: Vec<Arc<T>>,
    /// The definitions that it cannot decode: another version wrote them, or a person edited them.
    pub damaged: Vec<Damaged>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { good: Vec::new(), damaged: Vec::new() }
    }
}

/// A stored definition that this version of the program cannot decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The definition's id.
    pub id: String,
    /// Why it cannot be decoded.
    pub problem: String,
}

impl<T> Listed<T> {
    /// Adds the definition `id`, or lists it as damaged. Any other error fails the whole listing.
    pub fn add(&mut self, id: &str, read: Result<Arc<T>, StoreError>) -> Result<(), StoreError> {
        match read {
            Ok(record) => self.good.push(record),
            Err(StoreError::Damaged { what, source }) => {
                warn!("{what} cannot be decoded, skipping it in the listing: {source}");
                self.damaged.push(Damaged { id: id.to_owned(), problem: source.to_string() });
            }
            Err(StoreError::Newer { what, source }) => {
                warn!("{what} needs a newer version, skipping it in the listing: {source}");
                self.damaged.push(Damaged { id: id.to_owned(), problem: source.to_string() });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Versioned for AgentRecord {
    const WHAT: &'static str = "agent";
    const CURRENT: &'static str = "agents";
    const VERSIONS: &'static str = "agent_versions";
    const KEY: &'static str = "agent_id";
    const DOCUMENT: &'static str = "config";

    fn id(&self) -> &str {
        Self::id(self)
    }

    fn hash(&self) -> &str {
        &self.hash
    }

    fn document(&self) -> &Value {
        &self.document
    }

    fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    fn from_version(kept: StoredVersion) -> Result<Self, SharedError> {
        let agent = Self::from_document(kept.document, kept.updated_at)?;
        Ok(Self { hash: kept.hash, ..agent })
    }
}

impl Versioned for WorkflowRecord {
    const WHAT: &'static str = "workflow";
    const CURRENT: &'static str = "workflows";
    const VERSIONS: &'static str = "workflow_versions";
    const KEY: &'static str = "workflow_id";
    const DOCUMENT: &'static str = "definition";

    fn id(&self) -> &str {
        Self::id(self)
    }

    fn hash(&self) -> &str {
        &self.hash
    }

    fn document(&self) -> &Value {
        &self.document
    }

    fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    fn owner_session(&self) -> Option<&str> {
        self.owner_session.as_deref()
    }

    fn from_version(kept: StoredVersion) -> Result<Self, SharedError> {
        let workflow = Self::from_document(kept.document, kept.updated_at)?;
        Ok(Self { hash: kept.hash, owner_session: kept.owner_session.map(Into::into), ..workflow })
    }
}
