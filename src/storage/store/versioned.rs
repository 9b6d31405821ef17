//! What both stores keep of agents and of workflows alike: a document under its id as it is now, and every version of it
//! under its hash.

use crate::store::StoreError;
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::warn;
use types::timestamp::Timestamp;

/// Something with an id and a hash, kept with its older versions.
pub trait Versioned: Sized + Send + Sync + 'static {
    /// What errors call it.
    const WHAT: &'static str;
    /// The collection of those that are current.
    const CURRENT: &'static str;
    /// The collection of all versions.
    const VERSIONS: &'static str;
    /// The field of its id.
    const KEY: &'static str;
    /// The field of the whole file.
    const DOCUMENT: &'static str;

    /// Its key.
    fn id(&self) -> &str;
    /// md5 of the canonical JSON of its document.
    fn hash(&self) -> &str;
    /// The whole file.
    fn document(&self) -> &Value;
    /// When it was stored.
    fn updated_at(&self) -> Timestamp;

    /// From what was kept.
    fn revive(kept: Kept) -> Result<Self, String>;

    /// What is kept, with the file as a store writes it.
    fn fields(&self) -> Value {
        json!({
            (Self::KEY): self.id(),
            "hash": self.hash(),
            (Self::DOCUMENT): self.document(),
            "updated_at": self.updated_at(),
        })
    }

    /// How errors name it.
    fn named(id: &str) -> String {
        format!("{} `{id}`", Self::WHAT)
    }
}

/// What was kept.
#[derive(Deserialize)]
pub struct Kept {
    pub(crate) hash: String,
    #[serde(alias = "config", alias = "definition")]
    /// The whole file.
    pub document: Value,
    pub(crate) updated_at: Timestamp,
}

/// All current definitions of one kind, by id.
#[derive(Debug)]
pub struct Listed<T> {
    /// The definitions that this version reads.
    pub good: Vec<Arc<T>>,
    /// The definitions that it cannot read: another version wrote them, or a person edited them.
    pub damaged: Vec<Damaged>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { good: Vec::new(), damaged: Vec::new() }
    }
}

/// A stored definition that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its id.
    pub id: String,
    /// Why it cannot be read.
    pub problem: String,
}

impl<T> Listed<T> {
    /// Adds the definition `id`, or why it cannot be read; every other error is the whole listing's.
    pub fn add(&mut self, id: &str, read: Result<Arc<T>, StoreError>) -> Result<(), StoreError> {
        match read {
            Ok(record) => self.good.push(record),
            Err(StoreError::Damaged { what, problem }) => {
                warn!("{what} cannot be read, the listing skips it: {problem}");
                self.damaged.push(Damaged { id: id.to_owned(), problem });
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

    fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    fn revive(kept: Kept) -> Result<Self, String> {
        let agent = Self::from_document(kept.document, kept.updated_at).map_err(|error| error.to_string())?;
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

    fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    fn revive(kept: Kept) -> Result<Self, String> {
        let workflow = Self::from_document(kept.document, kept.updated_at).map_err(|error| error.to_string())?;
        Ok(Self { hash: kept.hash, ..workflow })
    }
}
