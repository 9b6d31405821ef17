//! The inputs of a new run: checked before its job is on the queue.

use crate::error::CommandError;
use definitions::workflow::definition::{Shape, WorkflowRecord};
use definitions::workflow::graph::inputs::inputs_in;
use serde_json::{Map, Value};
use types::depth;

/// The largest inputs of a run, in bytes of compact JSON.
const MAX_INPUT_BYTES: usize = 1_048_576;

/// The inputs of a run; `None` for a run without inputs, or with those in its query.
pub type RunInputs = Option<Map<String, Value>>;

/// Checks the query and the inputs of a run of `workflow`, which is `None` for a task agent. Returns the inputs.
///
/// A graph needs no query. Its inputs must fit its declarations. Other workflows need a query and have no inputs.
pub fn check(
    workflow: Option<&WorkflowRecord>,
    query: &str,
    input: Option<&Map<String, Value>>,
) -> Result<RunInputs, CommandError> {
    let given = input.filter(|input| !input.is_empty());
    let Some(Shape::Graph(graph)) = workflow.map(|record| &record.workflow.shape) else {
        if query.trim().is_empty() {
            let hint = "give the task for the workflow as `query`";
            return Err(CommandError::invalid("empty_query", "query is empty", hint));
        }
        return match given {
            None => Ok(None),
            Some(_) => Err(invalid("only graphs have inputs", "give the task for this workflow as `query`")),
        };
    };
    if let Some(given) = given {
        check_size(given)?;
    }
    // A run without inputs takes them from the text of its query, so those are checked.
    let of_query = inputs_in(query);
    let used = given.unwrap_or(&of_query);
    match graph.inputs(used) {
        Ok(_) => Ok(given.cloned()),
        Err(errors) => Err(invalid(errors.join("; "), "`global_config.inputs` of the graph declares its inputs")),
    }
}

fn check_size(input: &Map<String, Value>) -> Result<(), CommandError> {
    if !input.values().all(depth::is_legal) {
        let message = format!("`input` is nested more than {} levels deep", depth::MAX_DEPTH);
        return Err(invalid(message, "send it flatter, or as a text"));
    }
    // Plain data with text keys always serialises.
    let bytes = serde_json::to_vec(input).unwrap_or_default().len();
    match bytes <= MAX_INPUT_BYTES {
        true => Ok(()),
        false => Err(CommandError::too_large(format!("`input` has {bytes} bytes; the limit is {MAX_INPUT_BYTES}"))),
    }
}

fn invalid(message: impl Into<String>, hint: &str) -> CommandError {
    CommandError::invalid("invalid_input", message, hint)
}
