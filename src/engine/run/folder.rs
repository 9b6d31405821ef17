//! Registration of the files of `workflows_dir`, when a process that runs or lists workflows starts.
//!
//! On a cluster a process registers only workflows that the store does not have. It cannot know whether its file or
//! the stored definition is newer: in a rolling upgrade a restarted old process has the older file, and an operator
//! may have applied another definition. So the stored definition stays, and the process logs a difference. `turnwheel
//! workflows apply` replaces the stored definition.

use crate::execution::stored::builtin_workflows;
use base::config::Settings;
use definitions::agent::validate::KnownNames;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::read::{self, WorkflowError};
use definitions::workflow::runnable_registry::RunnableRegistry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::store::{Store, StoreError};
use tracing::{error, info, warn};

/// Returns the ids of the workflows that are known without a store: the built-in ones and those of `workflows_dir`.
/// Files with errors are included if their id can be read.
pub fn known_ids(settings: &Settings) -> Vec<String> {
    let of_folder =
        files(&settings.workflows_dir).into_iter().filter_map(|(_, workflow)| Some(workflow.ok()?.id().to_owned()));
    builtin_workflows().chain(of_folder).collect()
}

/// Returns everything that a workflow may reference: the agents and workflows of `store`, the built-in ones, and the
/// Rust `flows`.
pub async fn runnables(store: &dyn Store, flows: Vec<String>) -> Result<RunnableRegistry, StoreError> {
    let (agents, workflows) = futures::try_join!(store.agents(), store.workflows())?;
    let known = RunnableRegistry::new(flows).with_builtin().with_agents(agents.good.iter().map(Arc::as_ref));
    Ok(known.with_workflows(workflows.good.iter().map(|workflow| Arc::clone(&workflow.workflow))))
}

/// Whether a file replaces a stored workflow with the same id and other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The stored workflow stays. Used on a cluster.
    Stays,
    /// The file replaces the stored workflow. Used by `turnwheel dev`, where the files are authoritative.
    IsReplaced,
}

/// Registers all valid files of `workflows_dir`. Logs an error for each invalid file, and continues with the others.
///
/// `flows` are the ids of the flows registered in Rust, `names` have the models and connectors
/// that stages and nodes may use.
pub async fn register_folder(
    settings: &Settings,
    store: &dyn Store,
    flows: Vec<String>,
    names: &KnownNames,
    registered: Registered,
) {
    let read = files(&settings.workflows_dir);
    if read.is_empty() {
        return;
    }
    let known = match runnables(store, flows).await {
        Ok(known) => known.with_names(names),
        Err(problem) => return warn!("files of `workflows_dir` not registered: {problem}"),
    };
    for (path, workflow) in checked(read, &known) {
        let (id, hash) = match &workflow {
            Ok(workflow) => (workflow.id().to_owned(), workflow.hash.clone()),
            Err(problem) => {
                error!("{}: {problem}", path.display());
                continue;
            }
        };
        let Ok(workflow) = workflow else { continue };
        if registered == Registered::Stays && !is_new(store, &path, &workflow).await {
            continue;
        }
        match store.put_workflow(workflow).await {
            Ok(true) => info!(workflow_id = id, hash, "workflow registered"),
            Ok(false) => {}
            Err(problem) => warn!(workflow_id = id, "workflow not registered: {problem}"),
        }
    }
}

/// True if the store has no workflow with this id. Logs a warning if it has one with other content.
async fn is_new(store: &dyn Store, path: &Path, workflow: &WorkflowRecord) -> bool {
    let (workflow_id, file) = (workflow.id(), path.display());
    match store.workflow(workflow_id).await {
        Ok(None) => true,
        Ok(Some(known)) => {
            if known.hash != workflow.hash {
                warn!(
                    workflow_id,
                    "{file} not registered: the store has a different version, of {}; \
                     replace it with `turnwheel workflows apply {file}`",
                    known.updated_at
                );
            }
            false
        }
        Err(problem) => {
            warn!(workflow_id, "{file} not registered: {problem}");
            false
        }
    }
}

fn files(folder: &Path) -> Vec<read::LoadedWorkflow> {
    if folder.is_dir() { read::read_paths(&[folder.to_owned()]) } else { Vec::new() }
}

/// Checks the references of the workflows to each other and to `known`. A workflow that references an invalid one
/// becomes invalid, too, so the check repeats until nothing changes.
fn checked(read: Vec<read::LoadedWorkflow>, known: &RunnableRegistry) -> Vec<read::LoadedWorkflow> {
    let (mut good, mut bad): (Vec<(PathBuf, WorkflowRecord)>, Vec<read::LoadedWorkflow>) = (Vec::new(), Vec::new());
    for (path, workflow) in read {
        match workflow {
            Ok(workflow) => good.push((path, workflow)),
            Err(problem) => bad.push((path, Err(problem))),
        }
    }
    loop {
        let known = known.clone().with_workflows(good.iter().map(|(_, workflow)| Arc::clone(&workflow.workflow)));
        let before = good.len();
        let mut left = Vec::new();
        for (path, workflow) in good {
            match known.check(workflow) {
                Ok((workflow, warnings)) => left.push((path, workflow, warnings)),
                Err(problem) => bad.push((path, Err::<WorkflowRecord, WorkflowError>(problem))),
            }
        }
        if left.len() == before {
            let told = left.into_iter().map(|(path, workflow, warnings)| {
                warnings.iter().for_each(|warning| warn!("{}: {warning}", path.display()));
                (path, Ok(workflow))
            });
            return bad.into_iter().chain(told).collect();
        }
        good = left.into_iter().map(|(path, workflow, _)| (path, workflow)).collect();
    }
}
