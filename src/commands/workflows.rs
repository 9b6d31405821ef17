//! Listing and finding workflows.

use crate::error::{CommandError, ErrorKind};
use decisions::world::WorkflowStatus;
use definitions::workflow::definition::{StoredWorkflow, WorkflowRecord};
use definitions::workflow::session_plan::SessionPlan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::store::{Damaged, Listed, Store};
use types::ids;
use types::timestamp::Timestamp;

/// The origin of a workflow definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The definition was registered in the store.
    Store,
    /// The definition is compiled into the program. A stored definition with the same id takes precedence.
    Builtin,
}

impl Source {
    /// The lower-case name in all formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Builtin => "builtin",
        }
    }
}

/// A workflow in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WorkflowSummary {
    /// The id of the workflow.
    pub workflow_id: String,
    /// The type of the outermost stage: `pipeline`, `loop`, `parallel`, `conditional`, `dynamic` or `graph`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The description from the definition.
    pub description: String,
    /// The md5 hash of the definition.
    pub hash: String,
    /// The origin of the definition.
    pub source: Source,
    /// When the definition was registered; null for a compiled-in one.
    pub updated_at: Option<Timestamp>,
    /// The status of a session's plan; absent for a registered workflow, which is always ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<WorkflowStatus>,
    /// The session that owns the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_session: Option<String>,
    /// The agent that made the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Why the stored definition cannot be decoded: another version wrote it, or a person edited it. Register the
    /// workflow's file again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When a session's plan was last used, by which the plans are listed.
    #[serde(skip)]
    pub used_at: Option<Timestamp>,
}

impl WorkflowSummary {
    fn new(workflow: &WorkflowRecord, source: Source) -> Self {
        Self {
            workflow_id: workflow.id().to_owned(),
            kind: workflow.workflow.shape.as_str().to_owned(),
            description: workflow.workflow.description.clone(),
            hash: workflow.hash.clone(),
            source,
            updated_at: (source == Source::Store).then_some(workflow.updated_at),
            status: None,
            owner_session: None,
            agent_id: None,
            error: None,
            used_at: None,
        }
    }

    /// The entry for a workflow that cannot be decoded.
    fn damaged(Damaged { id, problem }: Damaged) -> Self {
        let (kind, description, hash) = Default::default();
        let (status, owner_session, agent_id) = (None, None, None);
        let (source, updated_at, error, used_at) = (Source::Store, None, Some(problem), None);
        let workflow_id = id;
        Self {
            workflow_id,
            kind,
            description,
            hash,
            source,
            updated_at,
            status,
            owner_session,
            agent_id,
            error,
            used_at,
        }
    }
}

/// Lists the plans of a session, the last used first.
pub async fn plans(store: &dyn Store, session_id: &str) -> Result<Vec<WorkflowSummary>, CommandError> {
    ids::check("owner_session", session_id)?;
    let summary = |SessionPlan { workflow, state }: SessionPlan| WorkflowSummary {
        status: Some(state.status),
        owner_session: Some(state.owner_session),
        agent_id: Some(state.agent_id),
        used_at: Some(state.used_at),
        ..WorkflowSummary::new(&workflow, Source::Store)
    };
    Ok(store.plans_of(session_id).await?.into_iter().map(summary).collect())
}

/// Returns the workflow with this id as stored. A session's plan has its state.
pub async fn show(store: &dyn Store, workflow_id: &str) -> Result<StoredWorkflow, CommandError> {
    let workflow = load(store, workflow_id).await?;
    let state = match workflow.owner_session.as_deref() {
        Some(owner) => {
            let plans = store.plans_of(owner).await?.into_iter();
            plans.filter(|plan| plan.workflow.id() == workflow_id).map(|plan| plan.state).next()
        }
        None => None,
    };
    Ok(StoredWorkflow { state, ..workflow.to_stored() })
}

/// Checks that a run for this session may execute a workflow now. Only its session may run a plan, and only while the
/// plan is `READY` or `COMPLETED`. Every registered workflow may run.
pub(crate) async fn check_ready(
    store: &dyn Store,
    workflow_id: &str,
    session_id: Option<&str>,
) -> Result<(), CommandError> {
    let Some(workflow) = store.workflow(workflow_id).await? else { return Ok(()) };
    let Some(owner) = workflow.owner_session.as_deref() else { return Ok(()) };
    if !workflow.is_for(session_id) {
        return Err(CommandError::unknown_workflow(workflow_id));
    }
    let plan = store.plans_of(owner).await?.into_iter().find(|plan| plan.workflow.id() == workflow_id);
    match plan.map(|plan| plan.state.status) {
        None => Err(CommandError::unknown_workflow(workflow_id)),
        Some(status) if status.may_run() => Ok(()),
        Some(status) => {
            let message = format!("`{workflow_id}` is {}, not READY or COMPLETED", status.as_str());
            let hint = "wait for the end of its run, or let its conversation recover or replan it";
            Err(CommandError::new(ErrorKind::Conflict, "not_ready", message, hint))
        }
    }
}

/// Lists all workflows, by id, without the plans of sessions. A definition that cannot be decoded is listed with the
/// reason.
pub async fn summaries(store: &dyn Store) -> Result<Vec<WorkflowSummary>, CommandError> {
    let stored = store.workflows().await?;
    let stored: BTreeSet<String> = stored.good.iter().map(|workflow| workflow.id().to_owned()).collect();
    let source = |id: &str| if stored.contains(id) { Source::Store } else { Source::Builtin };
    let Listed { good, damaged } = engine::execution::stored::workflows(store).await?;
    let good = good.iter().map(|workflow| WorkflowSummary::new(workflow, source(workflow.id())));
    let mut all: Vec<_> = good.chain(damaged.into_iter().map(WorkflowSummary::damaged)).collect();
    all.sort_by(|one, other| one.workflow_id.cmp(&other.workflow_id));
    Ok(all)
}

/// Returns the workflow with this id: the registered one, else the compiled-in one.
pub async fn find(store: &dyn Store, workflow_id: &str) -> Result<Option<Arc<WorkflowRecord>>, CommandError> {
    ids::check("workflow_id", workflow_id)?;
    Ok(engine::execution::stored::workflow(store, workflow_id).await?)
}

/// Returns the workflow with this id. Fails with `unknown_workflow` when it does not exist.
pub async fn load(store: &dyn Store, workflow_id: &str) -> Result<Arc<WorkflowRecord>, CommandError> {
    find(store, workflow_id).await?.ok_or_else(|| CommandError::unknown_workflow(workflow_id))
}
