//! Reading agent files: YAML or JSON, one file or the files of a folder.

use super::{AgentConfig, AgentRecord};
use crate::clock;
use include_dir::{Dir, include_dir};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The starter agents.
static COMPILED_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/agents");

/// Why a file is no agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// It cannot be read.
    #[error("cannot read the file: {0}")]
    Unreadable(String),
    /// It is no YAML or JSON.
    #[error("not valid {format}: {problem}")]
    Syntax {
        /// `YAML` or `JSON`.
        format: &'static str,
        /// What and where.
        problem: String,
    },
    /// A field is wrong.
    #[error("{path}: {problem}")]
    Field {
        /// Where.
        path: String,
        /// What was found and what is allowed.
        problem: String,
    },
    /// Two files have one id.
    #[error("id: `{id}` is also the id of {other}; ids must differ")]
    Duplicate {
        /// The id.
        id: String,
        /// The file that came first.
        other: String,
    },
}

/// A file and what came of reading it.
pub type Read = (PathBuf, Result<AgentRecord, AgentError>);

/// The typed configuration; the error names the field.
pub fn typed(document: &Value) -> Result<AgentConfig, AgentError> {
    if !document.is_object() {
        return Err(AgentError::Field {
            path: "(file)".into(),
            problem: "expected a map of fields, such as `id: sales`".into(),
        });
    }
    serde_path_to_error::deserialize(document)
        .map_err(|error| AgentError::Field { path: error.path().to_string(), problem: error.inner().to_string() })
}

/// Reads one file, or every `.yaml`, `.yml` and `.json` file of a folder by name. A bad one does not stop the others.
pub fn read_path(path: &Path) -> Vec<Read> {
    if !path.is_dir() {
        return vec![(path.to_owned(), read_file(path))];
    }
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return vec![(path.to_owned(), Err(AgentError::Unreadable(error.to_string())))],
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| is_agent_file(path)).collect();
    files.sort();
    distinct(files.into_iter().map(|file| (file.clone(), read_file(&file))).collect())
}

/// The agents that are compiled in, for a start without files.
pub fn builtin() -> Vec<Read> {
    let files = COMPILED_IN.files().filter(|file| is_agent_file(file.path()));
    let read = files.map(|file| {
        let text = file.contents_utf8().unwrap_or_default();
        (PathBuf::from("agents").join(file.path()), parse(file.path(), text))
    });
    read.collect()
}

/// Marks every second agent of one id as a mistake.
pub fn distinct(mut read: Vec<Read>) -> Vec<Read> {
    let mut seen: HashMap<String, PathBuf> = HashMap::new();
    for (path, agent) in &mut read {
        let Ok(record) = agent else { continue };
        let id = record.id().to_owned();
        if let Some(other) = seen.get(&id) {
            *agent = Err(AgentError::Duplicate { id, other: other.display().to_string() });
        } else {
            seen.insert(id, path.clone());
        }
    }
    read
}

fn is_agent_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let schema = path.to_string_lossy().ends_with(".schema.json");
    matches!(extension, Some("yaml" | "yml" | "json")) && !schema
}

fn read_file(path: &Path) -> Result<AgentRecord, AgentError> {
    let text = std::fs::read_to_string(path).map_err(|error| AgentError::Unreadable(error.to_string()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<AgentRecord, AgentError> {
    let text = text.trim_start_matches('\u{feff}');
    let document: Value = if path.extension().is_some_and(|extension| extension == "json") {
        let wrong = |error: serde_json::Error| AgentError::Syntax { format: "JSON", problem: error.to_string() };
        serde_json::from_str(text).map_err(wrong)?
    } else {
        let wrong = |error: serde_saphyr::Error| AgentError::Syntax { format: "YAML", problem: error.to_string() };
        serde_saphyr::from_str(text).map_err(wrong)?
    };
    AgentRecord::from_document(document, clock::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str, text: &str) -> String {
        parse(Path::new(name), text).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_field_or_the_line() {
        assert!(problem("a.yaml", "name: x").contains("id"));
        let deep = problem("a.yaml", "id: a\nsop: x\nskills:\n  - id: s\n    http: {url: [1]}\n");
        assert!(deep.starts_with("skills[0].http.url"), "{deep}");
        assert!(problem("a.yaml", "id: a\ntimers:\n  - {name: t, delay: soon}\n").contains("`soon`"));
        assert!(problem("a.yaml", "id: a\nhandoff: {mode: wait}").contains("hold"));
        let syntax = problem("a.yaml", "id: a\n  sop: : x\n");
        assert!(syntax.contains("YAML") && syntax.contains('2'), "{syntax}");
        assert!(problem("a.yaml", "id: a\nid: b\n").contains("YAML"), "a key given twice");
        assert!(problem("a.json", "{\"id\":").contains("JSON"));
        assert!(problem("a.yaml", "- a").contains("expected a map"));
    }

    #[test]
    fn a_broken_file_does_not_stop_the_others_and_one_id_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in
            [("a.yaml", "id: a\nsop: x"), ("b.yaml", "id: ["), ("c.json", r#"{"id":"a","sop":"y"}"#), ("x.txt", "")]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let read = read_path(dir.path());
        assert_eq!(read.len(), 3);
        assert!(read[0].1.is_ok() && read[1].1.is_err());
        assert!(read[2].1.as_ref().unwrap_err().to_string().contains("a.yaml"));
    }
}
