//! Loops: the stages repeatedly, while a condition holds.

use super::event::RunEventType;
use super::failure::Failure;
use super::pipeline;
use super::stage_context::{EventPayload, StageContext};
use definitions::workflow::condition::Condition;
use definitions::workflow::definition::StageDefinition;
use definitions::workflow::outputs::OutputStore;
use std::sync::Arc;

/// Parts of a loop's definition.
pub(super) struct LoopDefinition<'a> {
    pub(super) id: &'a str,
    pub(super) stages: &'a [StageDefinition],
    pub(super) condition: &'a Condition,
    pub(super) max_iterations: u32,
}

/// Executes the body at least once. Returns the output of the last stage in the last iteration, and the number of
/// iterations.
pub(super) async fn run(
    context: &StageContext,
    definition: LoopDefinition<'_>,
    outputs: &mut OutputStore,
) -> Result<(Arc<str>, u32), Failure> {
    let mut last: Arc<str> = "".into();
    let mut iteration = 0;
    while iteration < definition.max_iterations {
        iteration += 1;
        outputs.start_iteration();
        let here = context.iterated(definition.id, iteration);
        here.emit(
            RunEventType::LoopIteration,
            EventPayload::data([("max_iterations", definition.max_iterations.into())]),
        );
        last = pipeline::run(&here, definition.stages, outputs).await?;
        if !definition.condition.holds(outputs.scope()) {
            break;
        }
    }
    Ok((last, iteration))
}
