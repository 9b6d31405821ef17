//! The files of agents and workflows that `dev` applies. They follow changes in the store, so that a later start does
//! not apply an older file.

use base::config::Settings;
use definitions::agent::load::{self, AgentError};
use definitions::document::file;
use definitions::document::yaml::to_yaml;
use definitions::workflow::read::{self, WorkflowError};
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::store::{Definition, PublishDefinition, PublishEnd, Store, StoreError, VersionLabel};
use thiserror::Error;
use tokio::sync::{Mutex, OwnedMutexGuard};
use types::canonical;

/// The folders whose files `dev` applies.
#[derive(Debug)]
pub struct DefinitionFiles {
    agents: PathBuf,
    workflows: PathBuf,
    /// Held while files are written, and while they are read and applied.
    access: Arc<Mutex<()>>,
}

/// A file that is ready to be written, or that need not be.
#[derive(Debug)]
struct PreparedFile {
    path: PathBuf,
    text: String,
    /// The file with the new text next to it; `None` if the file has this text already.
    new: Option<PathBuf>,
    _access: OwnedMutexGuard<()>,
}

/// Why a definition has no file, or not its new text.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be written. Nothing is applied.
    #[error("its file {} cannot be written: {source}; nothing is applied", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another file has its place. Nothing is applied.
    #[error("{} {why}, so `{id}` has no file to be written to", path.display())]
    InTheWay {
        /// The other file.
        path: PathBuf,
        /// Why it is in the way.
        why: &'static str,
        /// The agent or workflow.
        id: String,
    },
    /// The definition is applied, but its file has the older text.
    #[error("it is applied, but its file {} was not written: {source}", path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl FileError {
    /// The code in HTTP errors.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unwritable { .. } | Self::NotWritten { .. } => "file_not_written",
            Self::InTheWay { .. } => "file_in_the_way",
        }
    }

    /// How to correct it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unwritable { .. } => "make the file and its folder writable for `turnwheel dev`, and apply it again",
            Self::InTheWay { .. } => "correct or remove that file first; nothing is applied",
            Self::NotWritten { .. } => {
                "make the file writable and apply it again; `dev` applies the older file when it starts again"
            }
        }
    }
}

/// How a publication ended.
#[derive(Debug)]
pub struct Publication {
    /// What the store did.
    pub end: PublishEnd,
    /// Why the definition is in use, but its file has the older text.
    pub unwritten: Option<FileError>,
}

/// Why nothing was published.
#[derive(Debug, Error)]
pub enum PublishError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Publishes a definition and writes its file, if `files` has a folder for it. Durable on return. The text of the file
/// becomes the text of the version.
pub async fn publish(
    store: &dyn Store,
    files: Option<&DefinitionFiles>,
    order: PublishDefinition,
) -> Result<Publication, PublishError> {
    // Held until the file is written, so that `dev` does not apply the older file in between.
    let file = match files {
        Some(files) => files.prepare(&order.definition, order.label.source.as_deref()).await?,
        None => None,
    };
    let source = file.as_ref().map(|file| file.text.clone()).or(order.label.source);
    let end = store.publish(PublishDefinition { label: VersionLabel { source, ..order.label }, ..order }).await?;
    let file = file.filter(|_| !matches!(end, PublishEnd::Moved(_)));
    let unwritten = file.and_then(|file| file.write().err());
    Ok(Publication { end, unwritten })
}

impl DefinitionFiles {
    /// The folders of the settings.
    pub fn new(settings: &Settings) -> Self {
        let (agents, workflows) = (settings.agents_dir.clone(), settings.workflows_dir.clone());
        Self { agents, workflows, access: Arc::default() }
    }

    /// Waits until no file is being written, and keeps changes away while the result lives.
    pub async fn hold(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.access).lock_owned().await
    }

    /// Prepares the file of a definition: its own one, else a new one with its id as its name. Its text is `source`,
    /// else its present text if that is the same document, else YAML. Returns `None` without the folder, which is then
    /// not watched. Fails if the file could not be written, before anything is changed.
    async fn prepare(&self, definition: &Definition, source: Option<&str>) -> Result<Option<PreparedFile>, FileError> {
        let folder = match definition {
            Definition::Agent(_) => &self.agents,
            Definition::Workflow(_) => &self.workflows,
        };
        if !folder.is_dir() {
            return Ok(None);
        }
        let access = self.hold().await;
        let path = place(folder, definition)?;
        let present = fs::read_to_string(&path).ok();
        let text = text(&path, definition, source, present.as_deref());
        let new = match present.as_deref() == Some(&text) {
            true => None,
            false => Some(write_beside(&path, &text).map_err(|source| unwritable(&path, source))?),
        };
        Ok(Some(PreparedFile { path, text, new, _access: access }))
    }
}

impl PreparedFile {
    /// Replaces the file by the text.
    fn write(mut self) -> Result<(), FileError> {
        let Some(new) = self.new.take() else { return Ok(()) };
        fs::rename(&new, &self.path).map_err(|source| {
            let _ = fs::remove_file(&new);
            FileError::NotWritten { path: self.path.clone(), source }
        })
    }
}

impl Drop for PreparedFile {
    fn drop(&mut self) {
        if let Some(new) = &self.new {
            // The change was refused. A remaining file is hidden, so nothing reads it.
            let _ = fs::remove_file(new);
        }
    }
}

/// The file with this id, or the path of a new one.
fn place(folder: &Path, definition: &Definition) -> Result<PathBuf, FileError> {
    let id = definition.id();
    let in_the_way =
        |path: &Path, why: &'static str| FileError::InTheWay { path: path.to_owned(), why, id: id.to_owned() };
    let mut found = Vec::new();
    match definition {
        Definition::Agent(_) => {
            for (path, agent) in load::read_path(folder) {
                match agent {
                    Ok(agent) if agent.id() == id => found.push(path),
                    Err(AgentError::Duplicate { id: twice, .. }) if twice == id => {
                        return Err(in_the_way(&path, "and another file have the same id"));
                    }
                    _ => {}
                }
            }
        }
        Definition::Workflow(_) => {
            for (path, workflow) in read::read_paths(&[folder.to_owned()]) {
                match workflow {
                    Ok(workflow) if workflow.id() == id => found.push(path),
                    Err(WorkflowError::Duplicate { id: twice, .. }) if twice == id => {
                        return Err(in_the_way(&path, "and another file have the same id"));
                    }
                    _ => {}
                }
            }
        }
    }
    if let Some(path) = found.pop() {
        // A link stays a link to the file with the text.
        return path.canonicalize().map_err(|source| unwritable(&path, source));
    }
    for extension in ["yaml", "yml", "json"] {
        let path = folder.join(format!("{id}.{extension}"));
        if path.exists() {
            return Err(in_the_way(&path, "exists and has another id, or cannot be read"));
        }
    }
    Ok(folder.join(format!("{id}.yaml")))
}

fn text(path: &Path, definition: &Definition, source: Option<&str>, present: Option<&str>) -> String {
    let is_same =
        |text: &&str| file::parse(path, text).is_ok_and(|parsed| canonical::hash(&parsed) == definition.hash());
    let given = source.filter(is_same).or_else(|| present.filter(is_same));
    given.map_or_else(|| made(path, definition.document(), is_same), str::to_owned)
}

/// The document as the text of a file.
fn made(path: &Path, document: &Value, is_same: impl Fn(&&str) -> bool) -> String {
    let yaml = to_yaml(document);
    match is_same(&yaml.as_str()) && path.extension().is_none_or(|extension| extension != "json") {
        true => yaml,
        // JSON is YAML, too. Plain data with text keys can always be written.
        false => serde_json::to_string_pretty(document).unwrap_or_default() + "\n",
    }
}

/// Writes the text into a hidden file in the same folder, with the rights of the file that it will replace.
fn write_beside(path: &Path, text: &str) -> io::Result<PathBuf> {
    let rights: Option<Permissions> = fs::metadata(path).ok().map(|metadata| metadata.permissions());
    if rights.as_ref().is_some_and(Permissions::readonly) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = File::create(&new).and_then(|mut file| {
        if let Some(rights) = rights {
            fs::set_permissions(&new, rights)?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(new),
        Err(error) => {
            let _ = fs::remove_file(&new);
            Err(error)
        }
    }
}

fn unwritable(path: &Path, source: io::Error) -> FileError {
    FileError::Unwritable { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
