//! DATABASE nodes: one statement on a connector.

use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::node::NodeRun;
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::StageContext;
use serde_json::Value;

pub(super) async fn perform(
    _run: &NodeRun<'_>,
    _here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<Value, NodeError> {
    let name = resolved.text("connection").unwrap_or("default");
    let message = format!("there is no connector `{name}`; add it to the settings as `connectors.{name}`");
    Err(NodeFailure::permanent("CONNECTOR_UNKNOWN", message).into())
}
