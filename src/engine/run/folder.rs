//! The files of `workflows_dir`: registered when a process starts that runs or lists workflows.
//!
//! On a cluster a process registers only workflows that the store does not have. It cannot know whether its file or the stored
//! definition is newer: in a rolling upgrade an old process that restarts has the older file, and a definition may have been
//! put by hand. So the stored definition stays, the process logs a difference, and `turnwheel workflows apply` replaces it.

use crate::execution::stored::builtin_workflows;
use base::config::Settings;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::known::KnownRunnables;
use definitions::workflow::read::{self, WorkflowError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::store::{Store, StoreError};
use tracing::{error, info, warn};

/// The workflows that agents may route to, as far as they are known without a store: those that come with the program, and
/// those of `workflows_dir`, also the bad ones that have an id.
pub fn known_ids(settings: &Settings) -> Vec<String> {
    let of_folder =
        files(&settings.workflows_dir).into_iter().filter_map(|(_, workflow)| Some(workflow.ok()?.id().to_owned()));
    builtin_workflows().chain(of_folder).collect()
}

/// What workflows may name on `store`, beside the `flows` registered in Rust.
pub async fn runnables(store: &dyn Store, flows: Vec<String>) -> Result<KnownRunnables, StoreError> {
    let (agents, workflows) = futures::try_join!(store.agents(), store.workflows())?;
    let known = KnownRunnables::new(flows).with_builtin().with_agents(agents.good.iter().map(Arc::as_ref));
    Ok(known.with_workflows(workflows.good.iter().map(|workflow| Arc::clone(&workflow.workflow))))
}

/// Whether a file replaces a workflow of its id that the store has with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It stays as it is: for the processes of a cluster.
    Stays,
    /// The file replaces it: for `turnwheel dev`, whose folder is the truth.
    IsReplaced,
}

/// Registers every good file of `workflows_dir`; a bad one is reported by name and does not stop the others (OP-O18).
///
/// `flows` are registered in Rust, `models` those that stages may name.
pub async fn register_folder(
    settings: &Settings,
    store: &dyn Store,
    (flows, models): (Vec<String>, Vec<String>),
    registered: Registered,
) {
    let read = files(&settings.workflows_dir);
    if read.is_empty() {
        return;
    }
    let known = match runnables(store, flows).await {
        Ok(known) => known.with_models(models),
        Err(problem) => return warn!("the files of workflows_dir are not registered: {problem}"),
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
            Err(problem) => warn!(workflow_id = id, "the workflow is not registered: {problem}"),
        }
    }
}

/// True when the store has no workflow of that id; a difference is logged.
async fn is_new(store: &dyn Store, path: &Path, workflow: &WorkflowRecord) -> bool {
    let (workflow_id, file) = (workflow.id(), path.display());
    match store.workflow(workflow_id).await {
        Ok(None) => true,
        Ok(Some(known)) => {
            if known.hash != workflow.hash {
                warn!(
                    workflow_id,
                    "{file} is not registered: the store has another version, of {}; `turnwheel workflows apply {file}` replaces it",
                    known.updated_at
                );
            }
            false
        }
        Err(problem) => {
            warn!(workflow_id, "{file} is not registered: {problem}");
            false
        }
    }
}

fn files(folder: &Path) -> Vec<read::Loaded> {
    if folder.is_dir() { read::read_paths(&[folder.to_owned()]) } else { Vec::new() }
}

/// Those that can work among one another and with what is known: one that names a bad one is bad itself.
fn checked(read: Vec<read::Loaded>, known: &KnownRunnables) -> Vec<read::Loaded> {
    let (mut good, mut bad): (Vec<(PathBuf, WorkflowRecord)>, Vec<read::Loaded>) = (Vec::new(), Vec::new());
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
