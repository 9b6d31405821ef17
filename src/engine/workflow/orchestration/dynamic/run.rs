//! The loop over the nodes of a dynamic workflow, until a node has the output or the limit of activations is reached.

use super::nodes::{Message, State, Step};
use super::results::Results;
use crate::workflow::orchestration::event::RunEventType;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::part::{Part, Told};
use crate::workflow::orchestration::workflow::Output;
use definitions::workflow::definition::Dynamic;
use definitions::workflow::node::Node;
use std::collections::HashMap;

/// Executes a dynamic workflow on `query`.
pub(in crate::workflow) async fn run(part: &Part, dynamic: &Dynamic, query: &str) -> Result<Output, Failure> {
    let mut state = State { dynamic, query: query.to_owned(), results: Results::default() };
    let mut activations = Activations { most: dynamic.max_iterations, of: HashMap::new(), all: 0 };
    let mut message = Message::Query;
    loop {
        message = activations.admit(message);
        let here = part.node(message.node().id(), activations.count(message.node()));
        let Step { output, next } = activate(&here, &mut state, message).await?;
        match next {
            Some(next) => message = next,
            None => return Ok(output.into()),
        }
    }
}

/// Executes one activation of a node, with its events.
async fn activate(part: &Part, state: &mut State<'_>, message: Message) -> Result<Step, Failure> {
    part.run().spent.stage(part.depth()).map_err(|limit| Failure::fatal(part, limit))?;
    part.tell(RunEventType::StageStarted, Told::default());
    let input = state.input(&message);
    let runnable = match &message {
        Message::PlanRequest => &state.dynamic.plan.agent,
        Message::ReplanRequest(_) => &state.dynamic.replan.agent,
        Message::ReviewRequest => &state.dynamic.review.agent,
        Message::StreamingRequest { .. } => &state.dynamic.summary.agent,
        _ => message.node().id(),
    };
    let notes = part.run().notes.as_ref();
    let place = notes.map(|notes| notes.begin_node(part, runnable, &input));
    let ended = Box::pin(state.handle(part, message, &input)).await;
    if let Some((notes, place)) = notes.zip(place) {
        notes.end(place, ended.as_ref().map(|step| &step.output));
    }
    let step = ended?;
    part.tell(RunEventType::StageCompleted, Told::output(&step.output));
    Ok(step)
}

/// Counts the activations of nodes.
struct Activations {
    most: u32,
    of: HashMap<Node, u32>,
    all: u32,
}

impl Activations {
    /// Returns the message, or beyond the limit of activations a request for an early summary. Messages that end the
    /// run are always admitted.
    fn admit(&self, message: Message) -> Message {
        match message {
            Message::Reject(_) | Message::StreamingRequest { .. } => message,
            _ if self.all >= self.most => Message::StreamingRequest { early: true },
            message => message,
        }
    }

    /// Counts an activation. Returns the number of activations of this node.
    fn count(&mut self, node: Node) -> u32 {
        self.all += 1;
        let of = self.of.entry(node).or_default();
        *of += 1;
        *of
    }
}
