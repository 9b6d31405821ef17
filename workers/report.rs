//! What came of files: told one after the other to people, all at once to programs.

use crate::table::{print, print_json, printable};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;

/// What the files should hold.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// `agent` or `workflow`.
    pub noun: &'static str,
    /// The field of its id.
    pub key: &'static str,
    /// Checks a file.
    pub command: &'static str,
}

/// Agent files.
pub const AGENT: Kind = Kind { noun: "agent", key: "agent_id", command: "turnwheel agents validate" };
/// Workflow files.
pub const WORKFLOW: Kind = Kind { noun: "workflow", key: "workflow_id", command: "turnwheel workflows validate" };

/// What came of one file.
#[derive(Debug, Default)]
pub struct FileReport {
    path: String,
    /// Its id and hash, when it holds what it should.
    found: Option<(String, String)>,
    /// The store has it now and did not have it before; only where it was applied.
    changed: Option<bool>,
    /// The same of what it answers from; only of agents.
    knowledge_changed: Option<bool>,
    warnings: Vec<String>,
    problem: Option<String>,
    /// It is not there, or nobody may read it.
    unread: bool,
}

impl FileReport {
    /// A file that has been read.
    pub fn of(path: &Path) -> Self {
        Self { path: path.display().to_string(), ..Self::default() }
    }

    /// What is odd in it.
    pub fn odd(self, warnings: &[impl ToString]) -> Self {
        Self { warnings: warnings.iter().map(ToString::to_string).collect(), ..self }
    }

    /// It holds what it should.
    pub fn valid(self, id: &str, hash: &str) -> Self {
        Self { found: Some((id.to_owned(), hash.to_owned())), ..self }
    }

    /// The store has it now; `changed` when that is new.
    pub fn applied(self, changed: bool) -> Self {
        Self { changed: Some(changed), ..self }
    }

    /// The store has what it answers from now; `changed` when that is new.
    pub fn with_knowledge(self, changed: bool) -> Self {
        Self { knowledge_changed: Some(changed), ..self }
    }

    /// It is not what it should be, or nobody takes it.
    pub fn refused(self, problem: &impl ToString) -> Self {
        Self { problem: Some(problem.to_string()), ..self }
    }

    /// It could not even be read.
    pub fn unread(self, problem: &impl ToString) -> Self {
        Self { unread: true, ..self.refused(problem) }
    }

    fn text(&self, kind: Kind) -> String {
        let Self { path, .. } = self;
        if let Some(problem) = &self.problem {
            let problem = problem.replace('\n', "\n  ");
            let hint = match self.unread {
                true => "name a file or a folder that is there, and may be read".to_owned(),
                false => format!("correct it and check it with `{} {path}`", kind.command),
            };
            return format!("✗ {path}: {problem}\n  hint: {hint}");
        }
        let word = match (self.changed, self.knowledge_changed) {
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
        fields.extend(self.knowledge_changed.map(|changed| ("knowledge_changed".to_owned(), json!(changed))));
        fields.insert("warnings".into(), json!(self.warnings));
        fields.extend(self.problem.as_ref().map(|problem| ("problem".to_owned(), json!(problem))));
        Value::Object(fields)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Report {
    kind: Kind,
    json: bool,
    files: Vec<FileReport>,
}

impl Report {
    /// Nothing is told yet.
    pub fn new(kind: Kind, json: bool) -> Self {
        Self { kind, json, files: Vec::new() }
    }

    /// One more file.
    pub fn tell(&mut self, file: FileReport) {
        if !self.json {
            for warning in &file.warnings {
                eprintln!("{}", printable(&format!("warning: {}: {warning}", file.path)));
            }
            print(printable(&file.text(self.kind)));
        }
        self.files.push(file);
    }

    /// All are told: a failure if one was refused.
    pub fn end(self) -> anyhow::Result<ExitCode> {
        if self.json {
            let files: Vec<Value> = self.files.iter().map(|file| file.json(self.kind)).collect();
            print_json(&json!({ "files": files }))?;
        }
        let bad = self.files.iter().filter(|file| file.problem.is_some()).count();
        if bad == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("error: {bad} of the files {} no {}", if bad == 1 { "is" } else { "are" }, self.kind.noun);
        Ok(ExitCode::FAILURE)
    }
}
