//! A document as a caller sends it: as JSON, or as the text of a file.

use crate::error::CommandError;
use base::clock;
use definitions::agent::{AgentRecord, load};
use definitions::document::file::{self, DocumentError};
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::read;
use engine::admission::AdmissionError;
use serde_json::Value;
use std::path::Path;
use storage::store::Definition;
use types::authoring::Artifact;
use types::canonical;

/// Selects YAML, which JSON is, too.
const NAME: &str = "document.yaml";

/// A document as a caller sends it.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// The parsed document.
    Document(Value),
    /// The text of a file, in YAML or JSON.
    Text(String),
}

impl Submitted {
    /// Reads a JSON body: a document, or `{"source": "<text>"}`. No document has only this field.
    pub fn from_json(body: Value) -> Self {
        match body {
            Value::Object(mut fields) if fields.len() == 1 && fields.get("source").is_some_and(Value::is_string) => {
                match fields.remove("source") {
                    Some(Value::String(text)) => Self::Text(text),
                    _ => Self::Document(Value::Object(fields)),
                }
            }
            document => Self::Document(document),
        }
    }

    /// The text, if there is one.
    pub(super) fn source(&self) -> Option<&str> {
        match self {
            Self::Document(_) => None,
            Self::Text(text) => Some(file::plain(text)),
        }
    }

    /// Reads it as an agent or a workflow. Errors of a text have line and column.
    pub(super) fn read(&self, artifact: Artifact) -> Result<Definition, AdmissionError> {
        let (name, now) = (Path::new(NAME), clock::now());
        Ok(match (artifact, self) {
            (Artifact::Agent, Self::Text(text)) => Definition::Agent(load::text(name, text)?),
            (Artifact::Agent, Self::Document(document)) => {
                Definition::Agent(AgentRecord::from_document(document.clone(), now)?)
            }
            (Artifact::Workflow, Self::Text(text)) => Definition::Workflow(read::text(name, text)?),
            (Artifact::Workflow, Self::Document(document)) => {
                Definition::Workflow(WorkflowRecord::from_document(document.clone(), now)?)
            }
        })
    }

    /// Reads a stored version: its text if that still is the document, so that findings have their lines.
    pub(super) fn stored(document: Value, source: Option<String>) -> Self {
        let parsed = |text: &String| {
            file::parse(Path::new(NAME), text)
                .is_ok_and(|parsed| canonical::hash(&parsed) == canonical::hash(&document))
        };
        match source.filter(parsed) {
            Some(text) => Self::Text(text),
            None => Self::Document(document),
        }
    }
}

/// Fails with `other_agent` or `other_workflow` unless the document has the id of the path.
pub(super) fn check_id(artifact: Artifact, definition: &Definition, id: &str) -> Result<(), CommandError> {
    if definition.id() == id {
        return Ok(());
    }
    let code = match artifact {
        Artifact::Agent => "other_agent",
        Artifact::Workflow => "other_workflow",
    };
    let message = format!("id: the document has `{}`, the path `{id}`", definition.id());
    Err(CommandError::invalid(code, message, "use the same id in both"))
}

/// The position and the problem of a text that cannot be parsed.
pub(super) fn syntax(error: &DocumentError) -> (Option<(u64, u64)>, String) {
    match error {
        DocumentError::Syntax { line, column, problem } => ((*line > 0).then_some((*line, *column)), problem.clone()),
        other => (None, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_body_is_a_document_or_its_text() {
        assert_eq!(Submitted::from_json(json!({"source": "id: a"})), Submitted::Text("id: a".into()));
        for document in [json!({"source": {"id": 1}}), json!({"id": "a", "source": "x"}), json!({})] {
            assert_eq!(Submitted::from_json(document.clone()), Submitted::Document(document));
        }
        assert_eq!(Submitted::Text("\u{feff}id: a".into()).source(), Some("id: a"));
    }

    #[test]
    fn a_stored_version_keeps_its_lines_while_its_text_is_its_document() {
        let document = json!({"id": "a"});
        let stored = |source: &str| Submitted::stored(document.clone(), Some(source.to_owned()));
        assert_eq!(stored("# 甲\nid: a\n"), Submitted::Text("# 甲\nid: a\n".into()));
        assert_eq!(stored("id: b\n"), Submitted::Document(document.clone()));
    }
}
