//! The loop over the nodes of a dynamic workflow, until a node has the output or the limit of activations is reached.

use super::nodes::{DynamicState, NodeMessage, Step};
use super::results::Results;
use crate::workflow::orchestration::event::RunEventType;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::{EventPayload, StageContext};
use crate::workflow::orchestration::workflow::WorkflowOutput;
use definitions::workflow::definition::DynamicDefinition;
use definitions::workflow::node::Node;
use std::collections::HashMap;

/// Executes a dynamic workflow on `query`.
pub(in crate::workflow) async fn run(
    context: &StageContext,
    dynamic: &DynamicDefinition,
    query: &str,
) -> Result<WorkflowOutput, Failure> {
    let mut state = DynamicState { dynamic, query: query.to_owned(), results: Results::default() };
    let mut activations = Activations { most: dynamic.max_iterations, by_node: HashMap::new(), all: 0 };
    let mut message = NodeMessage::Query;
    loop {
        message = activations.admit(message);
        let here = context.node(message.node().id(), activations.count(message.node()));
        let Step { output, next } = activate(&here, &mut state, message).await?;
        match next {
            Some(next) => message = next,
            None => return Ok(output.into()),
        }
    }
}

/// Executes one activation of a node, with its events.
async fn activate(context: &StageContext, state: &mut DynamicState<'_>, message: NodeMessage) -> Result<Step, Failure> {
    context.run().counters.count_stage(context.depth()).map_err(|limit| Failure::fatal(context, limit))?;
    context.emit(RunEventType::StageStarted, EventPayload::default());
    let input = state.input(&message);
    let runnable = match &message {
        NodeMessage::PlanRequest => &state.dynamic.plan.agent,
        NodeMessage::ReplanRequest(_) => &state.dynamic.replan.agent,
        NodeMessage::ReviewRequest => &state.dynamic.review.agent,
        NodeMessage::StreamingRequest { .. } => &state.dynamic.summary.agent,
        _ => message.node().id(),
    };
    let notes = context.run().notes.as_ref();
    let place = notes.map(|notes| notes.start_node(context, runnable, &input));
    let ended = Box::pin(state.handle(context, message, &input)).await;
    if let Some((notes, place)) = notes.zip(place) {
        notes.end(place, ended.as_ref().map(|step| &step.output));
    }
    let step = ended?;
    context.emit(RunEventType::StageCompleted, EventPayload::output(&step.output));
    Ok(step)
}

/// Counts the activations of nodes.
struct Activations {
    most: u32,
    by_node: HashMap<Node, u32>,
    all: u32,
}

impl Activations {
    /// Returns the message, or beyond the limit of activations a request for an early summary. Messages that end the
    /// run are always admitted.
    fn admit(&self, message: NodeMessage) -> NodeMessage {
        match message {
            NodeMessage::Reject(_) | NodeMessage::StreamingRequest { .. } => message,
            _ if self.all >= self.most => NodeMessage::StreamingRequest { early: true },
            message => message,
        }
    }

    /// Counts an activation. Returns the number of activations of this node.
    fn count(&mut self, node: Node) -> u32 {
        self.all += 1;
        let of = self.by_node.entry(node).or_default();
        *of += 1;
        *of
    }
}
