//! What one attempt of a node does, by its type.
//!
//! A node that reaches the outside does so in one step of its journal, `run`, whose input is the resolved config.
//! [`http`], [`python`] and [`database`] have one; [`llm`] and [`runnable`] have the steps of model calls; [`person`]
//! asks the user; [`repeat`] runs the body of a LOOP, and [`wait`] waits. CONDITION, START and END only compute their
//! output.

mod database;
mod http;
mod llm;
mod person;
mod python;
mod repeat;
mod runnable;
mod wait;

pub(super) use wait::UNTIL_KEY as WAIT_UNTIL_KEY;

use super::failure::{NodeError, NodeFailure};
use super::node::NodeRun;
use super::resolved::ResolvedNode;
use super::values::NodeValues;
use crate::action::stand_in::NO_ANSWER;
use crate::action::would_call::WouldCall;
use crate::journal::StepError;
use crate::workflow::orchestration::stage_context::StageContext;
use decisions::limits::MAX_SECONDS;
use decisions::node_type::NodeType;
use definitions::workflow::graph::condition::GraphCondition;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::time::Duration;

/// Key of the step in which a node reaches the outside.
const RUN_KEY: &str = "run";

/// The largest output of a node, in bytes of compact JSON.
pub(super) const MAX_OUTPUT_BYTES: usize = 1_048_576;

/// Executes one attempt at `here`, and returns the output before its `output_mapping`.
pub(super) fn perform<'r>(
    run: &'r NodeRun<'r>,
    here: &'r StageContext,
    resolved: &'r ResolvedNode,
) -> BoxFuture<'r, Result<Value, NodeError>> {
    if let Some(rehearsed) = rehearsed(run, here, resolved) {
        return async move { rehearsed }.boxed();
    }
    match run.node.kind() {
        NodeType::Llm => llm::perform(run, here, resolved).boxed(),
        NodeType::Http => http::perform(run, here, resolved).boxed(),
        NodeType::Python => python::perform(here, resolved).boxed(),
        NodeType::Database => database::perform(run, here, resolved).boxed(),
        NodeType::Loop => repeat::perform(run, here, resolved).boxed(),
        NodeType::Runnable => runnable::perform(run, here, resolved).boxed(),
        NodeType::Ask => person::perform(here, resolved).boxed(),
        NodeType::Wait => wait::perform(here, resolved).boxed(),
        NodeType::Condition => async move { condition(run, resolved) }.boxed(),
        NodeType::Start => async move { Ok(run.sight.run.inputs.clone()) }.boxed(),
        NodeType::End => async move { Ok(resolved.plain("output").cloned().unwrap_or_else(|| run.reaching())) }.boxed(),
    }
}

/// Returns the result of a node that a rehearsal must not execute. `None` for a node that computes its output, and
/// outside of a rehearsal.
fn rehearsed(run: &NodeRun<'_>, here: &StageContext, resolved: &ResolvedNode) -> Option<Result<Value, NodeError>> {
    let stand_in = here.services().http.stand_in()?;
    let (id, kind) = (run.node.spec.node_id.as_str(), run.node.kind());
    match kind {
        NodeType::Http => stand_in.called(id, || http::would_call(here, resolved)),
        NodeType::Python | NodeType::Database => {
            stand_in.called(id, || WouldCall::node(kind.as_str(), resolved.recorded()));
        }
        _ => {}
    }
    if let Some(output) = stand_in.output(id) {
        return Some(Ok(output));
    }
    let reaches_out = match kind {
        // The run of a rehearsal has no user who could answer.
        NodeType::Ask => here.run().asking.lane_job().is_some(),
        NodeType::Http | NodeType::Python | NodeType::Database => true,
        NodeType::Wait => return Some(Ok(Value::Null)),
        NodeType::Llm | NodeType::Loop | NodeType::Runnable | NodeType::Condition | NodeType::Start | NodeType::End => {
            false
        }
    };
    reaches_out.then(|| Err(NodeFailure::permanent(NO_ANSWER, stand_in.refuse(id).to_string()).into()))
}

/// The longest time of an attempt, for the types that have one. A script's time is limited by the sandbox.
pub(super) fn timeout(kind: NodeType, resolved: &ResolvedNode) -> Option<Duration> {
    let longest = Duration::from_secs_f64(MAX_SECONDS);
    let has_limit = matches!(kind, NodeType::Llm | NodeType::Http | NodeType::Database);
    has_limit.then(|| resolved.seconds("timeout").unwrap_or(longest).min(longest))
}

fn condition(run: &NodeRun<'_>, resolved: &ResolvedNode) -> Result<Value, NodeError> {
    let written = resolved.text("expression").unwrap_or_default();
    let condition =
        GraphCondition::parse(written).map_err(|error| NodeFailure::permanent("INVALID", error.to_string()))?;
    let values = NodeValues { mapping: &resolved.mapping, ..NodeValues::of(&run.sight) };
    Ok(json!({"result": condition.holds(&values)}))
}

/// The result of a step whose operation fails with a node's failure.
fn stepped<O>(step: Result<crate::journal::Stepped<O>, StepError<NodeFailure>>) -> Result<O, NodeError> {
    match step {
        Ok(stepped) => Ok(stepped.output),
        Err(StepError::Journal(error)) => Err(error.into()),
        Err(StepError::Operation(failure)) => Err(failure.into()),
    }
}
