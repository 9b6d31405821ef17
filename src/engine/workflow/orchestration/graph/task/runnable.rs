//! RUNNABLE nodes: a task agent, a workflow or a function registered in Rust.

use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::node::NodeRun;
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::graph::run::text_of;
use crate::workflow::orchestration::stage;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::reference::resolve::as_text;
use definitions::workflow::scope::Scope;
use serde_json::{Value, json};

pub(super) async fn perform(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<Value, NodeError> {
    let Some(stage) = &run.node.stage else {
        return Err(NodeFailure::permanent("INVALID", "the node names nothing to run; give `runnable`").into());
    };
    let input = match resolved.text("input") {
        Some(input) => input.to_owned(),
        // Without an input it gets what reaches the node, as a stage gets the output of the one before it.
        None => match run.reaching() {
            Value::Null => as_text(&run.sight.run.query),
            reaching => text_of(&reaching).to_string(),
        },
    };
    let output = stage::run_target(here, stage, &input, &Scope::root("", None)).await;
    let output = output.map_err(|failure| NodeError::of_part("SUBAGENT", failure))?;
    Ok(json!({"text": &*output.text}))
}
