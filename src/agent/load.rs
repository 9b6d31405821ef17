//! (in the making)
use super::AgentConfig;
use serde_json::Value;
use thiserror::Error;

/// Why a file is no agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// A field is wrong.
    #[error("{path}: {problem}")]
    Field {
        /// Where.
        path: String,
        /// What.
        problem: String,
    },
}

/// The typed configuration; the error names the field.
pub fn typed(document: &Value) -> Result<AgentConfig, AgentError> {
    serde_path_to_error::deserialize(document)
        .map_err(|error| AgentError::Field { path: error.path().to_string(), problem: error.inner().to_string() })
}
