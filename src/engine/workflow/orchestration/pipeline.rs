//! Pipelines: stages one after the other.

use super::failure::Failure;
use super::stage;
use super::stage_context::StageContext;
use super::workflow::WorkflowOutput;
use definitions::workflow::definition::StageDefinition;
use definitions::workflow::outputs::OutputStore;
use std::sync::Arc;

/// Executes the stages whose conditions hold. Returns the output of the last executed stage.
pub(super) async fn run(
    context: &StageContext,
    stages: &[StageDefinition],
    outputs: &mut OutputStore,
) -> Result<Arc<str>, Failure> {
    let mut last = Arc::from("");
    for stage in stages {
        if stage.condition.as_ref().is_some_and(|condition| !condition.holds(outputs.scope())) {
            continue;
        }
        let WorkflowOutput { text, further, .. } =
            stage::run_with_events(&context.stage(&stage.id), stage, outputs.scope()).await?;
        outputs.set(stage.id.as_str(), Arc::clone(&text));
        outputs.merge(further);
        last = text;
    }
    Ok(last)
}
