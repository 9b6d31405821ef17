//! Makes a document, or a version that is stored already, the current one.

use super::submitted::{Submitted, check_id};
use super::versions::{current_hash, details};
use super::{Desk, checked_note, id_field};
use crate::error::{CommandError, ErrorKind};
use crate::quotas;
use definitions::document::Finding;
use engine::definition_files;
use engine::execution::stored;
use storage::store::{
    Definition, Over, PublishDefinition, PublishEnd, Store, StoreError, VersionDetails, VersionLabel,
};
use types::authoring::Artifact;
use types::ids;

/// The details of a change that its caller gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that the caller has seen.
    pub over: Over,
    /// Who changes it.
    pub by: Option<String>,
    /// Why.
    pub note: Option<String>,
}

/// A change that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedChange {
    /// The md5 hash of the document.
    pub hash: String,
    /// False if the same document was in use already.
    pub changed: bool,
    /// Probable mistakes.
    pub warnings: Vec<Finding>,
}

/// Applies a document. Durable on return: every turn and run that begins later uses it. Fails with `changed` if not the
/// expected version is the current one.
pub async fn apply(
    desk: &Desk<'_>,
    (artifact, id): (Artifact, &str),
    submitted: Submitted,
    change: Change,
) -> Result<AppliedChange, CommandError> {
    ids::check(id_field(artifact), id)?;
    let note = checked_note(change.note)?;
    let definition = submitted.read(artifact)?;
    check_id(artifact, &definition, id)?;
    let (definition, warnings) = desk.admit(definition).await?;
    match &definition {
        Definition::Agent(agent) => quotas::check_agent(desk.store, desk.quotas, agent).await?,
        Definition::Workflow(workflow) => quotas::check_workflow(desk.store, desk.quotas, workflow).await?,
    }
    let label = VersionLabel { source: submitted.source().map(str::to_owned), by: change.by, note };
    publish(desk, artifact, definition, change.over, label, warnings).await
}

/// Applies a stored version: an earlier one, or a draft. Otherwise as [`apply`].
pub async fn apply_version(
    desk: &Desk<'_>,
    (artifact, id): (Artifact, &str),
    hash: &str,
    change: Change,
) -> Result<AppliedChange, CommandError> {
    let note = checked_note(change.note)?;
    let VersionDetails { entry, document, source } = details(desk.store, artifact, id, hash).await?;
    let submitted = Submitted::stored(document, source);
    let definition = submitted.read(artifact)?;
    check_id(artifact, &definition, id)?;
    if definition.hash() != hash {
        return Err(CommandError::unknown_version(artifact.as_str(), id, hash));
    }
    let (definition, warnings) = desk.admit(definition).await?;
    if entry.is_draft {
        // It does not count yet.
        quotas::check_room(desk.store, desk.quotas, artifact, id).await?;
    }
    let label = VersionLabel { source: submitted.source().map(str::to_owned), by: change.by, note };
    publish(desk, artifact, definition, change.over, label, warnings).await
}

async fn publish(
    desk: &Desk<'_>,
    artifact: Artifact,
    definition: Definition,
    over: Over,
    label: VersionLabel,
    warnings: Vec<Finding>,
) -> Result<AppliedChange, CommandError> {
    let (id, hash) = (definition.id().to_owned(), definition.hash().to_owned());
    desk.check_owner(artifact, &id).await?;
    let over = seen(desk.store, artifact, &id, over).await?;
    let order = PublishDefinition { definition, over, owner: None, label };
    let publication = definition_files::publish(desk.store, desk.files, order).await?;
    let changed = match publication.end {
        PublishEnd::Published => true,
        PublishEnd::Unchanged => false,
        PublishEnd::Moved(now) => return Err(moved(desk.store, artifact, &id, now).await?),
    };
    if let Some(error) = publication.unwritten {
        return Err(error.into());
    }
    Ok(AppliedChange { hash, changed, warnings })
}

/// The version that a publication may replace in the store, which has no compiled-in workflows.
async fn seen(store: &dyn Store, artifact: Artifact, id: &str, over: Over) -> Result<Over, CommandError> {
    if over == Over::Anything || artifact == Artifact::Agent {
        return Ok(over);
    }
    match store.workflow(id).await {
        Ok(None) => {}
        // A definition that cannot be decoded exists, too.
        Ok(Some(_)) | Err(StoreError::Damaged { .. }) => return Ok(over),
        Err(error) => return Err(error.into()),
    }
    let builtin = stored::workflow(store, id).await?.map(|workflow| workflow.hash.clone());
    Ok(match (over, builtin) {
        (Over::Version(seen), Some(builtin)) if seen == builtin => Over::Nothing,
        // It exists, although the store does not have it.
        (Over::Nothing, Some(builtin)) => Over::Version(builtin),
        (over, _) => over,
    })
}

/// The error for a change to a version that is no longer the current one.
async fn moved(
    store: &dyn Store,
    artifact: Artifact,
    id: &str,
    now: Option<String>,
) -> Result<CommandError, CommandError> {
    let kind = artifact.as_str();
    let now = match now {
        Some(now) => Some(now),
        None => current_hash(store, artifact, id).await?,
    };
    let Some(hash) = now else {
        let message = format!("there is no {kind} `{id}`, but the request expects a version of it");
        let hint = "it was deleted meanwhile; send the request without `If-Match` to create it again";
        return Ok(CommandError::new(ErrorKind::Changed, "changed", message, hint));
    };
    let applied = match store.version_details(artifact, id, &hash).await? {
        Some(VersionDetails { entry, .. }) => match entry.by {
            Some(by) => format!(", which `{by}` applied at {}", entry.at),
            None => format!(", applied at {}", entry.at),
        },
        None => String::new(),
    };
    let message =
        format!("the current version of {kind} `{id}` is {hash}{applied}, not the one that the request expects");
    let hint = "read it again, merge the changes, and send its hash as `If-Match`";
    Ok(CommandError::new(ErrorKind::Changed, "changed", message, hint))
}
