//! A node for which the graph needs a replan.

use super::failure::NodeFailure;
use super::notice::Notices;
use decisions::kind::Decision;
use serde_json::{Value, json};

/// A node that has failed for good, and whose failure a replan may mend.
#[derive(Debug)]
pub(super) struct Trouble {
    /// Id of the node.
    pub(super) node_id: String,
    /// Place of the node in the run.
    pub(super) path: String,
    pub(super) failure: NodeFailure,
    /// Number of attempts.
    pub(super) attempts: u32,
    /// The errors of the recovery that the coordinator decided.
    pub(super) errors: Vec<String>,
    /// The replan that the coordinator decided instead of a recovery.
    pub(super) wish: Option<Wish>,
}

/// A replan that waits until everything that can run has ended.
pub(super) struct Wish {
    pub(super) decision: Decision,
    pub(super) notices: Notices,
}

impl std::fmt::Debug for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wish").field("decision", &self.decision).finish_non_exhaustive()
    }
}

impl Trouble {
    /// The trouble as the coordinator reads it.
    pub(super) fn told(&self) -> Value {
        let mut told = json!({
            "node_id": self.node_id,
            "path": self.path,
            "error_code": self.failure.code,
            "failure_reason": self.failure.message,
            "attempts": self.attempts,
        });
        if !self.errors.is_empty() {
            told["errors"] = json!(self.errors);
        }
        told
    }
}
