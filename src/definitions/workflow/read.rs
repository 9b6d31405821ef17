//! Reads workflow files: parses YAML or JSON into a [`Workflow`]. Errors name file, line, column and path, and how to
//! correct the problem. All problems of a file are reported together. [`check`](super::check) covers references to
//! anything outside the file.

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

/// The workflows that are compiled into the program.
static COMPILED_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../workflows");

/// Id of the stage of a task agent that runs on its own. The agent's id may be illegal as the id of a stage.
const STAGE: &str = "agent";

/// Why a file is not a valid workflow.
#[derive(Debug, Error)]
pub enum WorkflowError {
    /// The file could not be read or parsed.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The file parses, but the workflow cannot work. The list is not empty.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<Finding>),
    /// Two files have the same workflow id. Neither is used.
    #[error("the workflow `{id}` is also in `{}`; give one of them another `id`, or delete one", other.display())]
    Duplicate {
        /// The id of the workflow.
        id: String,
        /// The path of the other file.
        other: PathBuf,
    },
    /// Another variant, with the file's name.
    #[error("{}: {problem}", file.display())]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The problem in the file.
        #[source]
        problem: Box<WorkflowError>,
    },
}

impl WorkflowError {
    /// The individual problems; empty if the file could not be parsed.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Invalid(findings) => findings,
            Self::File { problem, .. } => problem.findings(),
            Self::Document(_) | Self::Duplicate { .. } => &[],
        }
    }
}

/// A file and its workflow or error. The error does not repeat the file's name.
pub type LoadedWorkflow = (PathBuf, Result<WorkflowRecord, WorkflowError>);

/// Reads the workflow in a file. The error names the file.
pub fn file(path: &Path) -> Result<WorkflowRecord, WorkflowError> {
    read(path).map_err(|problem| WorkflowError::File { file: path.to_owned(), problem: Box::new(problem) })
}

/// Reads the workflows in files and folders, each file once. A file that fails does not stop the others.
pub fn read_paths(paths: &[PathBuf]) -> Vec<LoadedWorkflow> {
    let refuse = |id, other| WorkflowError::Duplicate { id, other };
    files::without_duplicates(files::read_paths(paths, read), WorkflowRecord::id, refuse)
}

/// The compiled-in workflows, by file name. All of them are valid.
pub fn builtin() -> Vec<LoadedWorkflow> {
    let files = COMPILED_IN.files().filter(|file| files::is_document(file.path()));
    let read = |file: &include_dir::File<'_>| text(file.path(), file.contents_utf8().unwrap_or_default());
    files.map(|file| (Path::new("workflows").join(file.path()), read(file))).collect()
}

/// Parses the workflow in a text. The extension of `name` selects YAML or JSON.
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
    /// Parses a document.
    pub fn from_document(document: &Value) -> Result<Self, WorkflowError> {
        let (workflow, report) = reader::read(document);
        workflow.ok_or(WorkflowError::Invalid(report.errors))
    }
}

impl WorkflowRecord {
    /// Parses a document and computes its hash.
    pub fn from_document(document: Value, updated_at: Timestamp) -> Result<Self, WorkflowError> {
        let workflow = Arc::new(Workflow::from_document(&document)?);
        let hash = canonical::hash(&document);
        Ok(Self { workflow, document, hash, updated_at, source: None, owner_session: None })
    }

    /// The workflow that runs a task agent on its own: a pipeline with one stage, under the agent's hash.
    pub fn of_agent(agent: &AgentRecord) -> Result<Self, WorkflowError> {
        let (id, input) = (agent.id(), "{query}");
        let document = json!({"id": id, "stages": [{"id": STAGE, "runnable": id, "input": input}]});
        Ok(Self { hash: agent.hash.clone(), ..Self::from_document(document, agent.updated_at)? })
    }

    /// The workflow in its stored form.
    pub fn to_stored(&self) -> StoredWorkflow {
        StoredWorkflow {
            workflow_id: self.id().to_owned(),
            hash: self.hash.clone(),
            definition: self.document.clone(),
            updated_at: self.updated_at,
            state: None,
        }
    }

    /// Parses a stored workflow. Keeps the stored hash.
    pub fn from_stored(stored: StoredWorkflow) -> Result<Self, WorkflowError> {
        let StoredWorkflow { hash, definition, updated_at, state, .. } = stored;
        let owner_session = state.map(|state| state.owner_session.into());
        Ok(Self { hash, owner_session, ..Self::from_document(definition, updated_at)? })
    }
}

/// Compares everything except the source text.
impl PartialEq for WorkflowRecord {
    fn eq(&self, other: &Self) -> bool {
        let of = |record: &Self| (Arc::clone(&record.workflow), record.updated_at);
        let text = |record: &Self| (record.hash.clone(), record.owner_session.clone());
        of(self) == of(other) && text(self) == text(other) && self.document == other.document
    }
}

#[cfg(test)]
mod tests;
