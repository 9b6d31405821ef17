//! Agents and workflows as documents, which people write, check, apply, compare and go back to.
//!
//! - [`submitted`]: a document as a caller sends it. [`findings`]: the problems in it.
//! - [`check`]: checks a document without storing it.
//! - [`apply`]: makes a document or a stored version the current one. [`draft`]: stores one without that.
//! - [`versions`]: lists and shows versions.

pub mod apply;
pub mod check;
pub mod draft;
pub mod findings;
pub mod submitted;
pub mod versions;

use crate::error::{CommandError, ErrorKind};
use base::config::Quotas;
use definitions::agent::validate::KnownNames;
use definitions::document::Finding;
use engine::admission::{self, AdmissionError};
use engine::definition_files::DefinitionFiles;
use storage::store::{Definition, Store, StoreError};
use types::authoring::Artifact;

/// The longest note, in characters.
const MAX_NOTE: usize = 1_000;

/// The surroundings of the commands on documents.
#[derive(Clone)]
pub struct Desk<'a> {
    /// Holds the agents and workflows.
    pub store: &'a dyn Store,
    /// The names that documents may use, if no worker runs.
    pub known: &'a KnownNames,
    /// The flows that workflows may use, if no worker runs.
    pub flows: Vec<String>,
    /// The limits on versions.
    pub quotas: &'a Quotas,
    /// The files that follow the store; `None` except in `dev`.
    pub files: Option<&'a DefinitionFiles>,
}

impl Desk<'_> {
    /// Checks a definition against all running workers. Returns it with its warnings.
    async fn admit(&self, definition: Definition) -> Result<(Definition, Vec<Finding>), AdmissionError> {
        Ok(match definition {
            Definition::Agent(agent) => {
                let (agent, warnings) = admission::agent(self.store, self.known, agent).await?;
                (Definition::Agent(agent), warnings)
            }
            Definition::Workflow(workflow) => {
                let (workflow, warnings) =
                    admission::workflow(self.store, self.flows.clone(), self.known, workflow).await?;
                (Definition::Workflow(workflow), warnings)
            }
        })
    }

    /// Fails with `workflow_id_taken` for the plan of a session, which people do not change.
    async fn check_owner(&self, artifact: Artifact, id: &str) -> Result<(), CommandError> {
        if artifact == Artifact::Agent {
            return Ok(());
        }
        let known = match self.store.workflow(id).await {
            // A definition that cannot be decoded is replaced.
            Err(StoreError::Damaged { .. }) => None,
            known => known?,
        };
        match known.and_then(|known| known.owner_session.clone()) {
            None => Ok(()),
            Some(owner) => {
                let message = format!("`{id}` is a plan of session `{owner}`");
                Err(CommandError::new(ErrorKind::Conflict, "workflow_id_taken", message, "use another `id`"))
            }
        }
    }
}

/// The error for an agent or workflow that does not exist.
fn unknown(artifact: Artifact, id: &str) -> CommandError {
    match artifact {
        Artifact::Agent => CommandError::unknown_agent(id),
        Artifact::Workflow => CommandError::unknown_workflow(id),
    }
}

/// The field that names the agent or workflow.
const fn id_field(artifact: Artifact) -> &'static str {
    match artifact {
        Artifact::Agent => "agent_id",
        Artifact::Workflow => "workflow_id",
    }
}

/// Checks a note. A blank one is none.
fn checked_note(note: Option<String>) -> Result<Option<String>, CommandError> {
    let note = note.map(|note| note.trim().to_owned()).filter(|note| !note.is_empty());
    match note.as_ref().map(|note| note.chars().count()) {
        Some(count) if count > MAX_NOTE => {
            let message = format!("note: {count} characters are more than {MAX_NOTE}");
            Err(CommandError::invalid("invalid_note", message, "say in one sentence why it is changed"))
        }
        _ => Ok(note),
    }
}
