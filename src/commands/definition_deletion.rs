//! Deletion of agents and workflows.
//!
//! A definition that is still used is deleted only on demand. Its versions go with it, so what uses it afterwards
//! fails: a message to a deleted agent becomes a dead letter, as does a run of a deleted workflow.

use crate::error::{CommandError, ErrorKind};
use engine::execution::stored::builtin_workflows;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use storage::store::Store;
use storage::store::records::SessionQuery;
use types::ids;
use types::run::{RunQuery, RunStatus};

/// The number of sessions that are looked at.
const MAX_SESSIONS: usize = 1_000;
/// The number of users of a definition that an error names.
const MAX_NAMED: usize = 5;

/// A deleted agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedAgent {
    /// The id of the agent.
    pub agent_id: String,
    /// Stored versions, the current one included.
    pub versions: u64,
    /// Knowledge sources.
    pub sources: u64,
    /// Entries of the plan cache.
    pub plans: u64,
}

/// A deleted workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedWorkflow {
    /// The id of the workflow.
    pub workflow_id: String,
    /// Stored versions, the current one included.
    pub versions: u64,
}

/// Deletes an agent with its versions, plans and knowledge. Durable on return. Without `force` it fails with
/// `agent_in_use` while open conversations, unfinished runs or workflows use it.
pub async fn agent(store: &dyn Store, agent_id: &str, force: bool) -> Result<DeletedAgent, CommandError> {
    ids::check("agent_id", agent_id)?;
    if !force {
        let users = users_of_agent(store, agent_id).await?;
        let hint = "close these conversations and change these workflows first, or delete with `force`: their next \
                    messages then become dead letters";
        refuse(&users, "agent_in_use", &format!("agent `{agent_id}`"), hint)?;
    }
    let erased = store.erase_agent(agent_id).await?;
    if !erased.existed && erased.versions == 0 {
        return Err(CommandError::unknown_agent(agent_id));
    }
    let (versions, sources, plans) = (erased.versions, erased.sources, erased.plans);
    Ok(DeletedAgent { agent_id: agent_id.to_owned(), versions, sources, plans })
}

/// Deletes a workflow, or the plan of a session, with its versions. Durable on return. Without `force` it fails with
/// `in_use` while unfinished runs, agents or other workflows use it, and with `builtin_workflow` for one that is compiled in.
pub async fn workflow(store: &dyn Store, workflow_id: &str, force: bool) -> Result<DeletedWorkflow, CommandError> {
    ids::check("workflow_id", workflow_id)?;
    if !force {
        let users = users_of_workflow(store, workflow_id).await?;
        let hint = "wait for these runs and change these agents and workflows first, or delete with `force`: they then \
                    fail when they need it";
        refuse(&users, "in_use", &format!("workflow `{workflow_id}`"), hint)?;
    }
    let erased = store.erase_workflow(workflow_id).await?;
    if !erased.existed && erased.versions == 0 {
        if builtin_workflows().any(|id| id == workflow_id) {
            let message = format!("workflow `{workflow_id}` is a part of the program");
            let hint = "register a workflow with this id to replace it";
            return Err(CommandError::new(ErrorKind::Conflict, "builtin_workflow", message, hint));
        }
        return Err(CommandError::unknown_workflow(workflow_id));
    }
    Ok(DeletedWorkflow { workflow_id: workflow_id.to_owned(), versions: erased.versions })
}

fn refuse(users: &[String], code: &'static str, what: &str, hint: &str) -> Result<(), CommandError> {
    if users.is_empty() {
        return Ok(());
    }
    let more = users.len().saturating_sub(MAX_NAMED);
    let named = users[..users.len() - more].join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("{what} is used by {named}{more}");
    Err(CommandError::new(ErrorKind::Conflict, code, message, hint))
}

async fn users_of_agent(store: &dyn Store, agent_id: &str) -> Result<Vec<String>, CommandError> {
    let query = SessionQuery { agent_id: Some(agent_id.to_owned()), limit: MAX_SESSIONS, ..SessionQuery::default() };
    let open = store.sessions(query).await?.into_iter().filter(|session| session.closed_at.is_none());
    let mut users: Vec<_> = open.map(|session| format!("session `{}`", session.session_id)).collect();
    users.extend(runs_of(store, agent_id).await?);
    users.extend(workflows_with(store, agent_id).await?);
    Ok(users)
}

async fn users_of_workflow(store: &dyn Store, workflow_id: &str) -> Result<Vec<String>, CommandError> {
    let mut users = runs_of(store, workflow_id).await?;
    let agents = store.agents().await?.good;
    let naming = agents.iter().filter(|agent| names(&agent.document, workflow_id));
    users.extend(naming.map(|agent| format!("agent `{}`", agent.id())));
    users.extend(workflows_with(store, workflow_id).await?);
    Ok(users)
}

async fn runs_of(store: &dyn Store, workflow_id: &str) -> Result<Vec<String>, CommandError> {
    let mut users = Vec::new();
    for status in [RunStatus::Pending, RunStatus::Running, RunStatus::Waiting] {
        let workflow_id = Some(workflow_id.to_owned());
        let query = RunQuery { workflow_id, status: Some(status), ..RunQuery::default() };
        users.extend(store.runs(query).await?.into_iter().map(|run| format!("run `{}`", run.run_id)));
    }
    Ok(users)
}

async fn workflows_with(store: &dyn Store, id: &str) -> Result<Vec<String>, CommandError> {
    let workflows = store.workflows().await?.good;
    let naming = workflows.iter().filter(|workflow| workflow.id() != id && names(&workflow.document, id));
    Ok(naming.map(|workflow| format!("workflow `{}`", workflow.id())).collect())
}

/// Whether a definition has this id as a whole text in it. It may be another text that happens to be the same; then the
/// caller decides.
fn names(document: &Value, id: &str) -> bool {
    match document {
        Value::String(text) => text == id,
        Value::Array(items) => items.iter().any(|item| names(item, id)),
        Value::Object(fields) => fields.values().any(|value| names(value, id)),
        _ => false,
    }
}
