//! A task agent: its model and its tools, until the model has an answer.

use super::failure::Failure;
use super::part::Part;
use crate::agent::AgentRecord;
use std::sync::Arc;

/// Runs `agent` on `input`.
pub(super) async fn run(part: &Part, agent: &AgentRecord, input: &str) -> Result<Arc<str>, Failure> {
    let _ = (agent, input);
    Err(Failure::fatal(part, "no task agents yet"))
}
