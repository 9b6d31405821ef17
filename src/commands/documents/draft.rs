//! Stores a document as a draft: a version that messages may name, and that nothing else uses.

use super::findings::DocumentFinding;
use super::submitted::{Submitted, check_id};
use super::{Desk, checked_note, id_field};
use crate::error::CommandError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storage::store::{DraftVersion, NO_DIALOGUE, VersionLabel};
use types::authoring::Artifact;
use types::ids;

/// A draft that is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredDraft {
    /// The md5 hash of the document: the `agent_version` of messages, and the version to apply.
    pub hash: String,
    /// Probable mistakes.
    pub findings: Vec<DocumentFinding>,
}

/// Stores a document as a version without applying it. Durable on return. A version that is stored already stays in use
/// or a draft, and gets the text and the note.
pub async fn store(
    desk: &Desk<'_>,
    (artifact, id): (Artifact, &str),
    submitted: Submitted,
    (by, note): (Option<String>, Option<String>),
) -> Result<StoredDraft, CommandError> {
    ids::check(id_field(artifact), id)?;
    let note = checked_note(note)?;
    let definition = submitted.read(artifact)?;
    check_id(artifact, &definition, id)?;
    desk.check_owner(artifact, id).await?;
    let (definition, warnings) = desk.admit(definition).await?;
    let (id, hash, document) = (id.to_owned(), definition.hash().to_owned(), definition.document().clone());
    let label = VersionLabel { source: submitted.source().map(str::to_owned), by, note };
    desk.store.put_draft(DraftVersion { artifact, id, hash: hash.clone(), document, label }, NO_DIALOGUE).await?;
    Ok(StoredDraft { hash, findings: DocumentFinding::warnings(warnings) })
}
