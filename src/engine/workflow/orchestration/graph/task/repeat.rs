//! LOOP nodes: the body repeatedly, while a condition holds or once for each item.

use crate::workflow::orchestration::event::RunEventType;
use crate::workflow::orchestration::graph::done::DoneNodes;
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::node::NodeRun;
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::graph::run::of_sinks;
use crate::workflow::orchestration::graph::schedule::{self, LevelEnd, LevelRun};
use crate::workflow::orchestration::graph::values::{Iteration, NodeValues, Sight};
use crate::workflow::orchestration::stage_context::{EventPayload, StageContext};
use decisions::reference::resolve::as_text;
use definitions::workflow::graph::GraphLevel;
use definitions::workflow::graph::condition::GraphCondition;
use futures::StreamExt;
use futures::stream;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use types::json_kind::json_kind;

/// The most iterations unless `max_iterations` is given.
const MAX_ITERATIONS: usize = 100;

/// The result of one iteration.
struct Iterated {
    output: Value,
    /// The sight of the body at its end, for the condition.
    sight: Sight,
}

/// A LOOP that runs.
struct Repeat<'r> {
    run: &'r NodeRun<'r>,
    here: &'r StageContext,
    body: &'r GraphLevel,
    most: usize,
}

pub(super) async fn perform(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<Value, NodeError> {
    let Some(body) = &run.node.body else {
        return Err(NodeFailure::permanent("INVALID", "the LOOP has no body; give `body`").into());
    };
    let items = items(resolved)?;
    let given = resolved.whole("max_iterations").and_then(|most| usize::try_from(most).ok());
    let most = match (&items, given) {
        (Some(items), Some(most)) if items.len() > most => {
            let message = format!("`items` has {} items, and `max_iterations` is {most}; leave it out", items.len());
            return Err(NodeFailure::permanent("INVALID", message).into());
        }
        (Some(items), _) => items.len(),
        (None, most) => most.unwrap_or(MAX_ITERATIONS),
    };
    let condition = resolved.text("condition").map(GraphCondition::parse).transpose();
    let condition = condition.map_err(|error| NodeFailure::permanent("INVALID", error.to_string()))?;
    let together = resolved.whole("max_concurrency").and_then(|most| usize::try_from(most).ok()).unwrap_or(1).max(1);
    let repeat = Repeat { run, here, body, most };
    let outputs = match items {
        Some(items) if together > 1 && condition.is_none() => repeat.together(items, together).await,
        items => repeat.one_by_one(items, condition.as_ref(), resolved).await,
    };
    let outputs = outputs?;
    Ok(json!({"iterations": outputs.len(), "last": outputs.last(), "outputs": outputs}))
}

/// The items; `None` for a LOOP without them.
fn items(resolved: &ResolvedNode) -> Result<Option<Vec<Value>>, NodeFailure> {
    match resolved.plain("items") {
        None => Ok(None),
        // The list of a skipped node.
        Some(Value::Null) => Ok(Some(Vec::new())),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => {
            let message = format!("`items` is {}: {:.60}; give a list", json_kind(other), as_text(other));
            Err(NodeFailure::permanent("INVALID", message))
        }
    }
}

impl Repeat<'_> {
    async fn one_by_one(
        &self,
        items: Option<Vec<Value>>,
        condition: Option<&GraphCondition>,
        resolved: &ResolvedNode,
    ) -> Result<Vec<Value>, NodeError> {
        let (mut outputs, mut last) = (Vec::new(), Arc::new(Value::Object(Map::new())));
        for number in 1..=self.most {
            let item = items.as_ref().map_or(Value::Null, |items| items[number - 1].clone());
            let Iterated { output, sight } = self.iterate(number, item, Arc::clone(&last)).await?;
            outputs.push(output);
            last = Arc::new(outputs_of(&sight));
            let values = NodeValues { mapping: &resolved.mapping, ..NodeValues::of(&sight) };
            if condition.is_some_and(|condition| !condition.holds(&values)) {
                break;
            }
        }
        Ok(outputs)
    }

    /// Runs the iterations of all items, at most `most` concurrently. They see no last iteration.
    async fn together(&self, items: Vec<Value>, most: usize) -> Result<Vec<Value>, NodeError> {
        let nothing = Arc::new(Value::Object(Map::new()));
        let begun: Vec<_> =
            items.into_iter().enumerate().map(|(at, item)| self.iterate(at + 1, item, Arc::clone(&nothing))).collect();
        let mut ended = stream::iter(begun).buffered(most);
        let (mut outputs, mut failed) = (Vec::new(), None);
        while let Some(iteration) = ended.next().await {
            match iteration {
                Ok(iterated) => outputs.push(iterated.output),
                Err(failure) if self.here.run().notes.is_some() || self.here.journal().is_halted() => {
                    failed.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        failed.map_or(Ok(outputs), Err)
    }

    async fn iterate(&self, number: usize, item: Value, last: Arc<Value>) -> Result<Iterated, NodeError> {
        let nth = u32::try_from(number).unwrap_or(u32::MAX);
        let here = self.here.iterated(self.run.node.id(), nth);
        here.emit(RunEventType::LoopIteration, EventPayload::data([("max_iterations", self.most.into())]));
        let iteration = Iteration { item: Arc::new(item), number: number.into(), last };
        let sight = self.run.sight.enter(iteration);
        let done = Arc::new(DoneNodes::within(Some(Arc::clone(&self.run.done))));
        let level = LevelRun { context: &here, scope: self.run.scope, level: self.body, sight, carried: None, done };
        let ended = match schedule::run(level).await.map_err(|failure| NodeError::of_part("LOOP", failure))? {
            LevelEnd::Ended(ended) => ended,
            LevelEnd::Quiet(quiet) => return Err(NodeError::Troubled(quiet.troubles)),
        };
        Ok(Iterated { output: of_sinks(&self.body.nodes, &ended), sight: ended.sight })
    }
}

/// The outputs of an iteration, by node.
fn outputs_of(sight: &Sight) -> Value {
    sight.outputs.iter().map(|(id, output)| (id.clone(), output.as_ref().clone())).collect()
}
