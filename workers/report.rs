//! What came of agent files: told one after the other to people, all at once to programs.

use crate::table::{print, print_json, printable};
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use turnwheel::agent::AgentRecord;
use turnwheel::agent::validate::Finding;

/// What came of one file.
#[derive(Debug, Default, Serialize)]
pub struct FileReport {
    path: String,
    /// It is an agent, and was taken.
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// The store has it now and did not have it before; only where it was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// It is not there, or nobody may read it.
    #[serde(skip)]
    unread: bool,
}

impl FileReport {
    /// A file that has been read, with what is odd in it.
    pub fn of(path: &Path, warnings: &[Finding]) -> Self {
        let warnings = warnings.iter().map(ToString::to_string).collect();
        Self { path: path.display().to_string(), warnings, ..Self::default() }
    }

    /// It holds this agent.
    pub fn valid(self, agent: &AgentRecord) -> Self {
        Self { ok: true, agent_id: Some(agent.id().to_owned()), hash: Some(agent.hash.clone()), ..self }
    }

    /// The store has it now; `changed` when that is new.
    pub fn applied(self, changed: bool) -> Self {
        Self { changed: Some(changed), ..self }
    }

    /// It is no agent, or nobody takes it.
    pub fn refused(self, problem: &impl ToString) -> Self {
        Self { ok: false, problem: Some(problem.to_string()), ..self }
    }

    /// It could not even be read.
    pub fn unread(self, problem: &impl ToString) -> Self {
        Self { unread: true, ..self.refused(problem) }
    }

    fn text(&self) -> String {
        let Self { path, .. } = self;
        if let Some(problem) = &self.problem {
            let problem = problem.replace('\n', "\n  ");
            let hint = match self.unread {
                true => "name a file or a folder that is there, and may be read".to_owned(),
                false => format!("correct it and check it with `turnwheel agents validate {path}`"),
            };
            return format!("✗ {path}: {problem}\n  hint: {hint}");
        }
        let word = match self.changed {
            None => "is valid",
            Some(true) => "applied",
            Some(false) => "unchanged",
        };
        let (id, hash) = (self.agent_id.as_deref().unwrap_or_default(), self.hash.as_deref().unwrap_or_default());
        format!("✓ {path}: {id} {word} ({hash})")
    }
}

/// See the module.
#[derive(Debug)]
pub struct Report {
    json: bool,
    files: Vec<FileReport>,
}

impl Report {
    /// Nothing is told yet.
    pub fn new(json: bool) -> Self {
        Self { json, files: Vec::new() }
    }

    /// One more file.
    pub fn tell(&mut self, file: FileReport) {
        if !self.json {
            for warning in &file.warnings {
                eprintln!("{}", printable(&format!("warning: {}: {warning}", file.path)));
            }
            print(printable(&file.text()));
        }
        self.files.push(file);
    }

    /// All are told: a failure if one was refused.
    pub fn end(self) -> anyhow::Result<ExitCode> {
        if self.json {
            print_json(&json!({ "files": self.files }))?;
        }
        let bad = self.files.iter().filter(|file| !file.ok).count();
        if bad == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("error: {bad} of the files {} no agent", if bad == 1 { "is" } else { "are" });
        Ok(ExitCode::FAILURE)
    }
}
