//! The problems in a document, as callers see them.

use super::submitted::syntax;
use definitions::agent::load::AgentError;
use definitions::document::{Finding, Position};
use definitions::workflow::read::WorkflowError;
use engine::admission::AdmissionError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storage::store::StoreError;

/// Whether a finding keeps a document from being applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The document cannot be applied.
    Error,
    /// Probably a mistake.
    Warning,
}

/// A problem in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentFinding {
    /// Whether it keeps the document from being applied.
    pub level: Level,
    /// The problem.
    pub message: String,
    /// How to correct it, if the problem does not imply that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field, such as `skills[0].http.url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The line in the text, from 1. Only for a document that was sent as a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The column in characters, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

impl DocumentFinding {
    fn new(level: Level, finding: Finding) -> Self {
        let Finding { at, path, problem, hint } = finding;
        let (line, column) = at.map(|Position { line, column }| (line, column)).unzip();
        let filled = |text: String| Some(text).filter(|text| !text.is_empty());
        Self { level, message: problem, hint: filled(hint), path: filled(path), line, column }
    }

    /// Probable mistakes.
    pub fn warnings(findings: Vec<Finding>) -> Vec<Self> {
        findings.into_iter().map(|finding| Self::new(Level::Warning, finding)).collect()
    }

    /// The reasons why a document was not admitted. Fails if they are unknown because the store failed.
    pub fn errors(error: AdmissionError) -> Result<Vec<Self>, StoreError> {
        let one = |at: Option<Position>, path: String, problem: String| {
            vec![Finding { at, path, problem, hint: String::new() }]
        };
        let findings = match error {
            AdmissionError::Store(error) => return Err(error),
            AdmissionError::Agent(AgentError::Invalid(findings))
            | AdmissionError::Workflow(WorkflowError::Invalid(findings)) => findings,
            AdmissionError::Agent(AgentError::Field { at, path, problem }) => one(at, path, problem),
            AdmissionError::Agent(AgentError::Document(error))
            | AdmissionError::Workflow(WorkflowError::Document(error)) => {
                let (at, problem) = syntax(&error);
                one(at.map(|(line, column)| Position { line, column }), String::new(), problem)
            }
            AdmissionError::Agent(error) => one(None, String::new(), error.to_string()),
            AdmissionError::Workflow(error) => one(None, String::new(), error.to_string()),
        };
        Ok(findings.into_iter().map(|finding| Self::new(Level::Error, finding)).collect())
    }
}
