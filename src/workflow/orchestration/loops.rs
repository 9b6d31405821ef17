//! The stages again and again, while a condition holds (O-19).

use super::condition::Condition;
use super::definition::Stage;
use super::event::RunEventType;
use super::failure::Failure;
use super::outputs::OutputStore;
use super::part::{Part, Told};
use super::pipeline;
use super::workflow::Output;
use std::sync::Arc;

/// What a loop is made of.
pub(super) struct Loop<'a> {
    pub(super) id: &'a str,
    pub(super) stages: &'a [Stage],
    pub(super) condition: &'a Condition,
    pub(super) max_iterations: u32,
}

/// Runs the body at least once; the output is that of the last iteration that had one.
pub(super) async fn run(part: &Part, of: Loop<'_>, mut outputs: OutputStore) -> Result<Output, Failure> {
    let mut last: Arc<str> = "".into();
    let mut iteration = 0;
    while iteration < of.max_iterations {
        iteration += 1;
        outputs.start_iteration();
        let here = part.iterated(of.id, iteration);
        here.tell(RunEventType::LoopIteration, Told::data([("max_iterations", of.max_iterations.into())]));
        last = pipeline::run(&here, of.stages, &mut outputs).await?.text;
        if !of.condition.holds(outputs.scope()) {
            break;
        }
    }
    Ok(Output { iterations: Some(iteration), ..last.into() })
}
