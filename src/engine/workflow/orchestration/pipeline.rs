//! Pipelines: stages one after the other.

use super::failure::Failure;
use super::part::Part;
use super::stage;
use super::workflow::Output;
use definitions::workflow::definition::Stage;
use definitions::workflow::outputs::OutputStore;
use std::sync::Arc;

/// Executes the stages whose conditions hold. Returns the output of the last executed stage.
pub(super) async fn run(part: &Part, stages: &[Stage], outputs: &mut OutputStore) -> Result<Arc<str>, Failure> {
    let mut last = Arc::from("");
    for stage in stages {
        if stage.condition.as_ref().is_some_and(|condition| !condition.holds(outputs.scope())) {
            continue;
        }
        let Output { text, left, .. } = stage::told(&part.stage(&stage.id), stage, outputs.scope()).await?;
        outputs.set(stage.id.as_str(), Arc::clone(&text));
        outputs.merge(left);
        last = text;
    }
    Ok(last)
}
