//! The alternative of a skipped node.

use super::failure::{NodeError, NodeFailure};
use super::node::{Attempts, NodeRun};
use super::round::Round;
use crate::journal::{Done, Durability, Label, StepError};
use definitions::workflow::graph::GraphNode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;

/// Whether the alternative had run. A node that had may have the output null.
#[derive(Serialize, Deserialize)]
struct Recorded {
    has_run: bool,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    output: Value,
}

/// The output of the node `other`, in place of the failed node of `run`. If `other` has not run, it runs now, with the
/// inputs of the failed node.
///
/// Whether `other` has run depends on the order in which nodes end, so its output is recorded with the recovery.
pub(super) async fn output(run: &NodeRun<'_>, k: u32, other: &str) -> Result<Arc<Value>, NodeError> {
    let (journal, key) = (run.context.journal(), format!("recover[{k}]/alternative"));
    let label = Label { kind: "decision", target: other };
    let step = journal.step(&key, label, Durability::OnReturn, other, |_| async {
        let output = run.done.output(other);
        let has_run = output.is_some();
        let output = output.map_or(Value::Null, |output| output.as_ref().clone());
        Ok::<_, Infallible>(Done::ok(Recorded { has_run, output }))
    });
    let recorded = match Box::pin(step).await {
        Ok(stepped) => stepped.output,
        Err(StepError::Journal(error)) => return Err(error.into()),
        Err(StepError::Operation(never)) => match never {},
    };
    if recorded.has_run {
        return Ok(Arc::new(recorded.output));
    }
    let Some(node) = run.scope.graph.level.find(other) else {
        return Err(NodeFailure::permanent("INVALID", format!("there is no node `{other}`")).into());
    };
    let node = with_inputs(node, run.node);
    let context = run.context.keyed(&format!("recover[{k}]/{other}"));
    let stand_in = NodeRun {
        context: &context,
        node: &node,
        original: &node,
        fields: None,
        is_top: false,
        first_request: None,
        sight: run.sight.clone(),
        done: Arc::clone(&run.done),
        ..*run
    };
    stand_in.until_done(&mut Attempts::default(), Round::of(&node)).await.map(Arc::new)
}

/// The node with the inputs of the failed one.
fn with_inputs(node: &GraphNode, failed: &GraphNode) -> GraphNode {
    let mut node = node.clone();
    if let Some(inputs) = &failed.spec.input_mapping {
        let own = node.spec.input_mapping.get_or_insert_default();
        own.extend(inputs.iter().map(|(name, written)| (name.clone(), written.clone())));
    }
    node
}
