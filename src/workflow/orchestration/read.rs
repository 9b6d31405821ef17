//! TEMPORARY
use super::definition::WorkflowRecord;
use crate::clock::Timestamp;
use serde_json::Value;
use std::path::PathBuf;

/// x
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct WorkflowError;

impl WorkflowRecord {
    /// x
    pub fn from_document(_document: Value, _updated_at: Timestamp) -> Result<Self, WorkflowError> {
        Err(WorkflowError)
    }
}

/// x
pub fn builtin() -> Vec<(PathBuf, Result<WorkflowRecord, WorkflowError>)> {
    Vec::new()
}
