//! Limits on the versions and the knowledge of one agent or workflow. Calls at the same moment do not count each other.

use crate::error::{CommandError, ErrorKind};
use base::config::Quotas;
use definitions::agent::AgentRecord;
use definitions::knowledge::source::SourceEntry;
use definitions::workflow::definition::WorkflowRecord;
use engine::admission::{full_agent, full_workflow};
use storage::store::Store;
use types::authoring::Artifact;

/// Checks that a version of an agent may be stored. A version that is stored already is none more.
pub async fn check_agent(store: &dyn Store, quotas: &Quotas, agent: &AgentRecord) -> Result<(), CommandError> {
    let id = agent.id();
    match full_agent(store, quotas, id).await? {
        Some(stored) if store.agent_version(id, &agent.hash).await?.is_none() => {
            Err(too_many_versions(&format!("agent `{id}`"), stored, "agents"))
        }
        _ => Ok(()),
    }
}

/// Checks that a version of a workflow may be stored.
pub async fn check_workflow(store: &dyn Store, quotas: &Quotas, workflow: &WorkflowRecord) -> Result<(), CommandError> {
    let id = workflow.id();
    match full_workflow(store, quotas, id).await? {
        Some(stored) if store.workflow_version(id, &workflow.hash).await?.is_none() => {
            Err(too_many_versions(&format!("workflow `{id}`"), stored, "workflows"))
        }
        _ => Ok(()),
    }
}

/// Checks that an agent or workflow may have one more version.
pub async fn check_room(store: &dyn Store, quotas: &Quotas, artifact: Artifact, id: &str) -> Result<(), CommandError> {
    let (full, command) = match artifact {
        Artifact::Agent => (full_agent(store, quotas, id).await?, "agents"),
        Artifact::Workflow => (full_workflow(store, quotas, id).await?, "workflows"),
    };
    match full {
        Some(stored) => Err(too_many_versions(&format!("{} `{id}`", artifact.as_str()), stored, command)),
        None => Ok(()),
    }
}

/// Checks that a source of an agent may be stored, in place of one with the same name.
pub async fn check_source(store: &dyn Store, quotas: &Quotas, new: &SourceEntry) -> Result<(), CommandError> {
    let mut entries = store.knowledge_entries(Some(&new.agent_id)).await?;
    entries.retain(|entry| entry.source != new.source);
    let (count, bytes) = (entries.len() as u64, entries.iter().map(|entry| entry.bytes).sum::<u64>());
    let found = if is_reached(count, quotas.knowledge_sources) {
        format!("{count} knowledge sources, and `quotas.knowledge_sources` is {}", quotas.knowledge_sources)
    } else if quotas.knowledge_mib > 0 && bytes + new.bytes > quotas.knowledge_mib << 20 {
        let mib = quotas.knowledge_mib;
        format!("{bytes} bytes of knowledge; with `{}` they exceed `quotas.knowledge_mib` = {mib}", new.source)
    } else {
        return Ok(());
    };
    let hint = "remove sources (`turnwheel knowledge remove`), or raise the setting where the gateway runs";
    Err(exceeded(format!("agent `{}` has {found}", new.agent_id), hint))
}

fn is_reached(stored: u64, quota: u64) -> bool {
    quota > 0 && stored >= quota
}

fn too_many_versions(named: &str, stored: u64, command: &str) -> CommandError {
    let hint = format!(
        "raise `quotas.versions` where the gateway runs, or delete it with all versions (`turnwheel {command} delete`) \
         and store it again"
    );
    exceeded(format!("{named} has {stored} stored versions, which is the limit (`quotas.versions`)"), hint)
}

fn exceeded(message: String, hint: impl Into<String>) -> CommandError {
    CommandError::new(ErrorKind::Conflict, "quota_exceeded", message, hint)
}
