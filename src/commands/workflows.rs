//! Listing workflows, and registering a definition.

use crate::error::CommandError;
use crate::workers_overview::WorkersOverview;
use definitions::agent::validate::KnownNames;
use definitions::document::Finding;
use definitions::workflow::definition::WorkflowRecord;
use engine::run;
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
    /// The type of the outermost stage: `pipeline`, `loop`, `parallel`, `conditional` or `dynamic`.
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
    /// Why the stored definition cannot be decoded: another version wrote it, or a person edited it. Register the
    /// workflow's file again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
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
            error: None,
        }
    }

    /// The entry for a workflow that cannot be decoded.
    fn damaged(Damaged { id, problem }: Damaged) -> Self {
        let (kind, description, hash) = Default::default();
        Self { workflow_id: id, kind, description, hash, source: Source::Store, updated_at: None, error: Some(problem) }
    }
}

/// Lists all workflows, by id. A definition that cannot be decoded is listed with the reason.
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

/// The result of registering a workflow.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Registered {
    /// The id of the workflow.
    pub workflow_id: String,
    /// The md5 hash of the definition.
    pub hash: String,
    /// False when the same definition was already registered.
    pub changed: bool,
    /// Findings that are probably mistakes.
    pub warnings: Vec<Finding>,
}

/// Registers a workflow after validating it. Durable on return: every run that starts later uses it. The workflow and
/// its task agents are validated against all running workers, or against `flows` and the names `here` when none runs.
pub async fn register(
    store: &dyn Store,
    flows: Vec<String>,
    here: &KnownNames,
    workflow: WorkflowRecord,
) -> Result<Registered, CommandError> {
    let crew = WorkersOverview::from_store(store).await?;
    let names = crew.check_against(store, here).await?;
    let flows = if crew.is_empty() { flows } else { crew.flows() };
    let agents = store.agents().await?.good;
    let known = run::runnables(store, flows).await?.with_names(&names);
    let known = known.with_needs(agents.iter().map(Arc::as_ref), &names);
    let (workflow, warnings) = known.check(workflow)?;
    let (workflow_id, hash) = (workflow.id().to_owned(), workflow.hash.clone());
    let changed = store.put_workflow(workflow).await?;
    Ok(Registered { workflow_id, hash, changed, warnings })
}

/// Returns the workflow with this id. Fails with `unknown_workflow` when it does not exist.
pub async fn load(store: &dyn Store, workflow_id: &str) -> Result<Arc<WorkflowRecord>, CommandError> {
    find(store, workflow_id).await?.ok_or_else(|| CommandError::unknown_workflow(workflow_id))
}
