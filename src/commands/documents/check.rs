//! Checks a document without storing it.

use super::Desk;
use super::findings::DocumentFinding;
use super::submitted::Submitted;
use super::versions::current_hash;
use crate::error::CommandError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use types::authoring::Artifact;

/// The result of checking a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedDocument {
    /// True if the document can be applied.
    pub is_valid: bool,
    /// The md5 hash that the document gets when it is applied. Missing if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// All problems. Those without a line concern the whole document, or a document that was sent as JSON.
    pub findings: Vec<DocumentFinding>,
    /// For a valid agent: the open conversations that plan again once it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_sessions: Option<u64>,
}

/// Checks a document as [`apply`](super::apply::apply) does. Writes nothing.
pub async fn check(
    desk: &Desk<'_>,
    artifact: Artifact,
    submitted: &Submitted,
) -> Result<CheckedDocument, CommandError> {
    let refused = |hash, error| {
        let findings = DocumentFinding::errors(error)?;
        Ok(CheckedDocument { is_valid: false, hash, findings, open_sessions: None })
    };
    let definition = match submitted.read(artifact) {
        Ok(definition) => definition,
        Err(error) => return refused(None, error),
    };
    let (id, hash) = (definition.id().to_owned(), definition.hash().to_owned());
    let warnings = match desk.admit(definition).await {
        Ok((_, warnings)) => warnings,
        Err(error) => return refused(Some(hash), error),
    };
    let open_sessions = match artifact {
        Artifact::Agent => Some(open_sessions(desk, &id, &hash).await?),
        Artifact::Workflow => None,
    };
    let findings = DocumentFinding::warnings(warnings);
    Ok(CheckedDocument { is_valid: true, hash: Some(hash), findings, open_sessions })
}

/// The number of conversations that plan again when the version becomes the current one.
async fn open_sessions(desk: &Desk<'_>, agent_id: &str, hash: &str) -> Result<u64, CommandError> {
    if current_hash(desk.store, Artifact::Agent, agent_id).await?.as_deref() == Some(hash) {
        return Ok(0);
    }
    Ok(desk.store.open_sessions_without(agent_id, hash).await?)
}
