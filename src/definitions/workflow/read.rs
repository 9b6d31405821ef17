//! Reads workflow files: YAML or JSON into a [`Workflow`]. An error names the file, in it line, column and path, and what to
//! do. All that is wrong with a file is told at once; what is beyond the file itself is [`check`](super::check)ed later.

use super::definition::{StoredWorkflow, Workflow, WorkflowRecord};
use super::reader;
use crate::agent::AgentRecord;
use crate::document::file::DocumentError;
use crate::document::{Finding, Report, file as files};
use base::clock;
use include_dir::{Dir, include_dir};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use types::canonical;
use types::timestamp::Timestamp;

/// The workflows that come with the program.
static COMPILED_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../workflows");

/// The stage of a task agent that runs by itself: its id may be none that a template could name.
const STAGE: &str = "agent";

/// Why a file is no workflow.
#[derive(Debug, Error)]
pub enum WorkflowError {
    /// It cannot be read.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It reads well and cannot work; never empty.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<Finding>),
    /// Two files describe one workflow; neither counts.
    #[error("the workflow `{id}` is in `{}` too; give one of them another `id`, or delete one", other.display())]
    Duplicate {
        /// The workflow.
        id: String,
        /// The other file.
        other: PathBuf,
    },
    /// One of the above, in a file.
    #[error("{}: {problem}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: Box<WorkflowError>,
    },
}

impl WorkflowError {
    /// What is wrong, one by one, where the file could be read.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Invalid(findings) => findings,
            Self::File { problem, .. } => problem.findings(),
            Self::Document(_) | Self::Duplicate { .. } => &[],
        }
    }
}

/// A file, and the workflow in it; the error does not repeat the file's name.
pub type Loaded = (PathBuf, Result<WorkflowRecord, WorkflowError>);

/// The workflow in one file; the error names the file.
pub fn file(path: &Path) -> Result<WorkflowRecord, WorkflowError> {
    read(path).map_err(|problem| WorkflowError::File { file: path.to_owned(), problem: Box::new(problem) })
}

/// The workflows in files and folders, each file once. A bad one does not stop the others.
pub fn read_paths(paths: &[PathBuf]) -> Vec<Loaded> {
    let refuse = |id, other| WorkflowError::Duplicate { id, other };
    files::without_duplicates(files::read_paths(paths, read), WorkflowRecord::id, refuse)
}

/// The workflows that are compiled in, by file name; none of them is bad.
pub fn builtin() -> Vec<Loaded> {
    let files = COMPILED_IN.files().filter(|file| files::is_document(file.path()));
    let read = |file: &include_dir::File<'_>| text(file.path(), file.contents_utf8().unwrap_or_default());
    files.map(|file| (Path::new("workflows").join(file.path()), read(file))).collect()
}

/// The workflow in a text; `name` decides between YAML and JSON.
pub fn text(name: &Path, text: &str) -> Result<WorkflowRecord, WorkflowError> {
    let text = files::plain(text);
    match WorkflowRecord::from_document(files::parse(name, text)?, clock::now()) {
        Ok(workflow) => Ok(WorkflowRecord { source: Some(text.into()), ..workflow }),
        Err(WorkflowError::Invalid(errors)) => {
            let mut report = Report { errors, warnings: Vec::new() };
            report.find(text);
            Err(WorkflowError::Invalid(report.errors))
        }
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> Result<WorkflowRecord, WorkflowError> {
    text(path, &files::text(path)?)
}

impl Workflow {
    /// Reads a file's content.
    pub fn from_document(document: &Value) -> Result<Self, WorkflowError> {
        let (workflow, report) = reader::read(document);
        workflow.ok_or(WorkflowError::Invalid(report.errors))
    }
}

impl WorkflowRecord {
    /// Reads a file's content.
    pub fn from_document(document: Value, updated_at: Timestamp) -> Result<Self, WorkflowError> {
        let workflow = Arc::new(Workflow::from_document(&document)?);
        let hash = canonical::hash(&document);
        Ok(Self { workflow, document, hash, updated_at, source: None })
    }

    /// What runs a task agent by itself: a pipeline with it as its one stage, under the agent's hash.
    pub fn of_agent(agent: &AgentRecord) -> Result<Self, WorkflowError> {
        let (id, input) = (agent.id(), "{query}");
        let document = json!({"id": id, "stages": [{"id": STAGE, "runnable": id, "input": input}]});
        Ok(Self { hash: agent.hash.clone(), ..Self::from_document(document, agent.updated_at)? })
    }

    /// What a store keeps.
    pub fn to_stored(&self) -> StoredWorkflow {
        StoredWorkflow {
            workflow_id: self.id().to_owned(),
            hash: self.hash.clone(),
            definition: self.document.clone(),
            updated_at: self.updated_at,
        }
    }

    /// From what a store kept.
    pub fn from_stored(stored: StoredWorkflow) -> Result<Self, WorkflowError> {
        let StoredWorkflow { hash, definition, updated_at, .. } = stored;
        Ok(Self { hash, ..Self::from_document(definition, updated_at)? })
    }
}

/// The same workflow, whatever text it was read from.
impl PartialEq for WorkflowRecord {
    fn eq(&self, other: &Self) -> bool {
        let of = |record: &Self| (Arc::clone(&record.workflow), record.updated_at);
        of(self) == of(other) && self.hash == other.hash && self.document == other.document
    }
}

#[cfg(test)]
mod tests;
