//! Lists and shows the versions of an agent or workflow.

use super::{id_field, unknown};
use crate::error::CommandError;
use crate::paging::{Listing, fit, part_of};
use definitions::agent::StoredAgent;
use definitions::workflow::definition::StoredWorkflow;
use engine::execution::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use storage::store::{Store, StoreError, VersionDetails, VersionEntry};
use types::authoring::Artifact;
use types::ids;
use types::page::Bounds;
use types::timestamp::Timestamp;

/// A version in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionSummary {
    /// The md5 hash of the document.
    pub hash: String,
    /// When the version was last applied, or stored as a draft.
    pub at: Timestamp,
    /// Who did that; null if it is unknown, as for a file that `dev` applied.
    #[serde(default)]
    pub by: Option<String>,
    /// Why.
    #[serde(default)]
    pub note: Option<String>,
    /// True for the applied version.
    pub current: bool,
    /// True for a version that was never applied.
    pub draft: bool,
}

impl VersionSummary {
    fn new(entry: VersionEntry, current: Option<&str>) -> Self {
        let VersionEntry { hash, at, by, note, is_draft: draft } = entry;
        Self { current: current == Some(&hash), hash, at, by, note, draft }
    }
}

/// The text of the current version, and who applied it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CurrentLabel {
    /// The text from which the document was parsed, with its comments; null if it was sent as JSON.
    #[serde(default)]
    pub source: Option<String>,
    /// Who applied it; null if it is unknown, as for a file that `dev` applied.
    #[serde(default)]
    pub by: Option<String>,
    /// Why.
    #[serde(default)]
    pub note: Option<String>,
}

/// An agent with its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentDetails {
    /// The agent as stored.
    #[serde(flatten)]
    pub agent: StoredAgent,
    /// Its text, and who applied it.
    #[serde(flatten)]
    pub label: CurrentLabel,
}

/// A workflow with its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowDetails {
    /// The workflow as stored.
    #[serde(flatten)]
    pub workflow: StoredWorkflow,
    /// Its text, and who applied it.
    #[serde(flatten)]
    pub label: CurrentLabel,
}

/// A version of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentVersion {
    /// The version as in a listing.
    #[serde(flatten)]
    pub version: VersionSummary,
    /// The whole file.
    pub config: Value,
    /// The text from which it was parsed; null if it was sent as JSON.
    #[serde(default)]
    pub source: Option<String>,
}

/// A version of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowVersion {
    /// The version as in a listing.
    #[serde(flatten)]
    pub version: VersionSummary,
    /// The whole file.
    pub definition: Value,
    /// The text from which it was parsed; null if it was sent as JSON.
    #[serde(default)]
    pub source: Option<String>,
}

/// A page of the versions, the newest first, drafts included.
pub async fn list(
    store: &dyn Store,
    artifact: Artifact,
    id: &str,
    bounds: &Bounds<(Timestamp, String)>,
) -> Result<Listing<VersionSummary>, CommandError> {
    ids::check(id_field(artifact), id)?;
    let current = current_hash(store, artifact, id).await?;
    let mut versions = store.versions(artifact, id).await?;
    if versions.is_empty() && current.is_none() {
        return Err(unknown(artifact, id));
    }
    let place = |at: Timestamp, hash: &str| (at, hash.to_owned());
    versions.sort_by_key(|version| Reverse(place(version.at, &version.hash)));
    let page = part_of(versions, bounds, |version, after| place(version.at, &version.hash) < *after);
    let page = page.map(|entry| VersionSummary::new(entry, current.as_deref()));
    Ok(fit(page, |version| place(version.at, &version.hash)))
}

/// One version with its document and text.
pub async fn show(
    store: &dyn Store,
    artifact: Artifact,
    id: &str,
    hash: &str,
) -> Result<(VersionSummary, Value, Option<String>), CommandError> {
    let VersionDetails { entry, document, source } = details(store, artifact, id, hash).await?;
    let current = current_hash(store, artifact, id).await?;
    Ok((VersionSummary::new(entry, current.as_deref()), document, source))
}

/// The text and the author of a version; empty if it is not stored, as for compiled-in definitions.
pub async fn label(store: &dyn Store, artifact: Artifact, id: &str, hash: &str) -> Result<CurrentLabel, CommandError> {
    let Some(VersionDetails { entry, source, .. }) = store.version_details(artifact, id, hash).await? else {
        return Ok(CurrentLabel::default());
    };
    Ok(CurrentLabel { source, by: entry.by, note: entry.note })
}

/// The version with this hash. Fails with `unknown_version` if it is not stored.
pub(super) async fn details(
    store: &dyn Store,
    artifact: Artifact,
    id: &str,
    hash: &str,
) -> Result<VersionDetails, CommandError> {
    ids::check(id_field(artifact), id)?;
    let found = store.version_details(artifact, id, hash).await?;
    found.ok_or_else(|| CommandError::unknown_version(artifact.as_str(), id, hash))
}

/// The hash of the version in use under an id: the stored definition, or for a workflow the compiled-in one. `None` if it
/// cannot be decoded.
pub(super) async fn current_hash(
    store: &dyn Store,
    artifact: Artifact,
    id: &str,
) -> Result<Option<String>, StoreError> {
    let found = match artifact {
        Artifact::Agent => store.agent(id).await.map(|agent| agent.map(|agent| agent.hash.clone())),
        Artifact::Workflow => {
            stored::workflow(store, id).await.map(|workflow| workflow.map(|workflow| workflow.hash.clone()))
        }
    };
    match found {
        Err(StoreError::Damaged { .. }) => Ok(None),
        found => found,
    }
}
