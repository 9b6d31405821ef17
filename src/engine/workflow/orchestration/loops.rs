//! Loops: the stages repeatedly, while a condition holds.

use super::event::RunEventType;
use super::failure::Failure;
use super::part::{Part, Told};
use super::pipeline;
use definitions::workflow::condition::Condition;
use definitions::workflow::definition::Stage;
use definitions::workflow::outputs::OutputStore;
use std::sync::Arc;

/// Parts of a loop's definition.
pub(super) struct Loop<'a> {
    pub(super) id: &'a str,
    pub(super) stages: &'a [Stage],
    pub(super) condition: &'a Condition,
    pub(super) max_iterations: u32,
}

/// Executes the body at least once. Returns the output of the last stage in the last iteration, and the number of
/// iterations.
pub(super) async fn run(part: &Part, of: Loop<'_>, outputs: &mut OutputStore) -> Result<(Arc<str>, u32), Failure> {
    let mut last: Arc<str> = "".into();
    let mut iteration = 0;
    while iteration < of.max_iterations {
        iteration += 1;
        outputs.start_iteration();
        let here = part.iterated(of.id, iteration);
        here.tell(RunEventType::LoopIteration, Told::data([("max_iterations", of.max_iterations.into())]));
        last = pipeline::run(&here, of.stages, outputs).await?;
        if !of.condition.holds(outputs.scope()) {
            break;
        }
    }
    Ok((last, iteration))
}
