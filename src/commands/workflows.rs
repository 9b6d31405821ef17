//! Workflows: listings, and registering a document.

use crate::crew::Crew;
use crate::error::CommandError;
use definitions::agent::validate::Known;
use definitions::document::Finding;
use definitions::workflow::definition::WorkflowRecord;
use engine::run;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::store::{Damaged, Listed, Store};
use types::ids;
use types::timestamp::Timestamp;

/// Where a definition comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// It was registered.
    Store,
    /// It comes with the program; one of the same id in the store goes before it.
    Builtin,
}

impl Source {
    /// The lower-case name used on every wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Builtin => "builtin",
        }
    }
}

/// What a listing shows of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkflowSummary {
    /// Key of the workflow.
    pub workflow_id: String,
    /// `pipeline`, `loop`, `parallel` or `conditional`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is for.
    pub description: String,
    /// md5 of its definition.
    pub hash: String,
    /// Where it comes from.
    pub source: Source,
    /// When it was registered; null for what comes with the program.
    pub updated_at: Option<Timestamp>,
    /// Why it cannot be read: another version wrote it, or a hand did. Putting it again is the remedy.
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

    /// Of a workflow that cannot be read.
    fn damaged(Damaged { id, problem }: Damaged) -> Self {
        let (kind, description, hash) = Default::default();
        Self { workflow_id: id, kind, description, hash, source: Source::Store, updated_at: None, error: Some(problem) }
    }
}

/// Every workflow, by id; one that cannot be read with the reason.
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

/// The workflow of that id: as registered, else as it comes with the program.
pub async fn find(store: &dyn Store, workflow_id: &str) -> Result<Option<Arc<WorkflowRecord>>, CommandError> {
    ids::check("workflow_id", workflow_id)?;
    Ok(engine::execution::stored::workflow(store, workflow_id).await?)
}

/// What came of a workflow that was registered.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Registered {
    /// Key of the workflow.
    pub workflow_id: String,
    /// md5 of its definition.
    pub hash: String,
    /// False when it was there already.
    pub changed: bool,
    /// What is probably a mistake.
    pub warnings: Vec<Finding>,
}

/// Registers a workflow whose stages can run: every run that starts afterwards uses it. It and the task agents that it names are checked
/// against what every running worker has; while none runs, against the flows and settings `here`.
pub async fn register(
    store: &dyn Store,
    (flows, here): (Vec<String>, &Known),
    workflow: WorkflowRecord,
) -> Result<Registered, CommandError> {
    let crew = Crew::of(store).await?;
    let names = crew.check_against(store, here).await?;
    let flows = if crew.is_empty() { flows } else { crew.flows() };
    let agents = store.agents().await?.good;
    let known = run::runnables(store, flows).await?.with_models(names.models().to_vec());
    let known = known.with_needs(agents.iter().map(Arc::as_ref), &names);
    let (workflow, warnings) = known.check(workflow)?;
    let (workflow_id, hash) = (workflow.id().to_owned(), workflow.hash.clone());
    let changed = store.put_workflow(workflow).await?;
    Ok(Registered { workflow_id, hash, changed, warnings })
}

/// The workflow; an error when there is none.
pub async fn load(store: &dyn Store, workflow_id: &str) -> Result<Arc<WorkflowRecord>, CommandError> {
    find(store, workflow_id).await?.ok_or_else(|| CommandError::unknown_workflow(workflow_id))
}
