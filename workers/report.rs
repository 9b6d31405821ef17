//! The results for agent and workflow files: one after the other as text, or all together as JSON.

use crate::table::{print, print_json, printable};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;

/// The kind of files.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// `agent` or `workflow`.
    pub noun: &'static str,
    /// The JSON field of its id.
    pub key: &'static str,
    /// The command that checks a file of this kind.
    pub command: &'static str,
}

/// Agent files.
pub const AGENT: Kind = Kind { noun: "agent", key: "agent_id", command: "turnwheel agents validate" };
/// Workflow files.
pub const WORKFLOW: Kind = Kind { noun: "workflow", key: "workflow_id", command: "turnwheel workflows validate" };

/// The result for one file.
#[derive(Debug, Default)]
pub struct FileReport {
    path: String,
    /// Id and hash, if the file is valid.
    found: Option<(String, String)>,
    /// Whether applying the file changed the store; `None` if it was only checked.
    changed: Option<bool>,
    /// The file was stored as a draft.
    draft: bool,
    /// Whether applying changed the agent's knowledge; `None` for workflows.
    knowledge_changed: Option<bool>,
    warnings: Vec<String>,
    problem: Option<String>,
    /// The file is missing or not readable.
    unread: bool,
}

impl FileReport {
    /// A report without a result yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.display().to_string(), ..Self::default() }
    }

    /// Adds the warnings.
    pub fn odd(self, warnings: &[impl ToString]) -> Self {
        Self { warnings: warnings.iter().map(ToString::to_string).collect(), ..self }
    }

    /// The file is valid.
    pub fn valid(self, id: &str, hash: &str) -> Self {
        Self { found: Some((id.to_owned(), hash.to_owned())), ..self }
    }

    /// The file was applied; `changed` if that changed the store.
    pub fn applied(self, changed: bool) -> Self {
        Self { changed: Some(changed), ..self }
    }

    /// The file was stored as a draft.
    pub fn drafted(self) -> Self {
        Self { draft: true, ..self }
    }

    /// The agent's knowledge was applied; `changed` if that changed the store.
    pub fn with_knowledge(self, changed: bool) -> Self {
        Self { knowledge_changed: Some(changed), ..self }
    }

    /// The file is invalid, or was refused.
    pub fn refused(self, problem: &impl ToString) -> Self {
        Self { problem: Some(problem.to_string()), ..self }
    }

    /// The file could not be read.
    pub fn unread(self, problem: &impl ToString) -> Self {
        Self { unread: true, ..self.refused(problem) }
    }

    fn text(&self, kind: Kind) -> String {
        let Self { path, .. } = self;
        if let Some(problem) = &self.problem {
            let problem = problem.replace('\n', "\n  ");
            let hint = match self.unread {
                true => "give a file or folder that exists and is readable".to_owned(),
                false => format!("correct the file, and check it with `{} {path}`", kind.command),
            };
            return format!("✗ {path}: {problem}\n  hint: {hint}");
        }
        let word = match (self.changed, self.knowledge_changed) {
            (None, _) if self.draft => "stored as a draft",
            (None, _) => "is valid",
            (Some(true), _) => "applied",
            (Some(false), Some(true)) => "unchanged, its knowledge applied",
            (Some(false), _) => "unchanged",
        };
        let (id, hash) = self.found.as_ref().map(|(id, hash)| (id.as_str(), hash.as_str())).unwrap_or_default();
        format!("✓ {path}: {id} {word} ({hash})")
    }

    fn json(&self, kind: Kind) -> Value {
        let mut fields = Map::new();
        fields.insert("path".into(), json!(self.path));
        fields.insert("ok".into(), json!(self.problem.is_none()));
        if let Some((id, hash)) = &self.found {
            fields.insert(kind.key.into(), json!(id));
            fields.insert("hash".into(), json!(hash));
        }
        fields.extend(self.changed.map(|changed| ("changed".to_owned(), json!(changed))));
        if self.draft {
            fields.insert("draft".into(), json!(true));
        }
        fields.extend(self.knowledge_changed.map(|changed| ("knowledge_changed".to_owned(), json!(changed))));
        fields.insert("warnings".into(), json!(self.warnings));
        fields.extend(self.problem.as_ref().map(|problem| ("problem".to_owned(), json!(problem))));
        Value::Object(fields)
    }
}

/// Prints the results of all files.
#[derive(Debug)]
pub struct Report {
    kind: Kind,
    json: bool,
    files: Vec<FileReport>,
}

impl Report {
    /// Creates a report without files.
    pub fn new(kind: Kind, json: bool) -> Self {
        Self { kind, json, files: Vec::new() }
    }

    /// Adds a file, and prints its result if the output is text.
    pub fn add(&mut self, file: FileReport) {
        if !self.json {
            for warning in &file.warnings {
                eprintln!("{}", printable(&format!("warning: {}: {warning}", file.path)));
            }
            print(printable(&file.text(self.kind)));
        }
        self.files.push(file);
    }

    /// Ends the report. Exit status 1 if a file was refused.
    pub fn end(self) -> anyhow::Result<ExitCode> {
        if self.json {
            let files: Vec<Value> = self.files.iter().map(|file| file.json(self.kind)).collect();
            print_json(&json!({ "files": files }))?;
        }
        let bad = self.files.iter().filter(|file| file.problem.is_some()).count();
        if bad == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("error: {bad} of the files {} not a valid {}", if bad == 1 { "is" } else { "are" }, self.kind.noun);
        Ok(ExitCode::FAILURE)
    }
}
