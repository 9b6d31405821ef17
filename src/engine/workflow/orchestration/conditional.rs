//! Conditionals: the first route whose condition holds.

use super::failure::Failure;
use super::stage;
use super::stage_context::StageContext;
use super::workflow::WorkflowOutput;
use definitions::workflow::definition::{Route, StageDefinition};
use definitions::workflow::scope::Scope;
use std::sync::Arc;

/// Executes the stage of the first route whose condition holds, else the default stage. Without either the output is
/// empty.
pub(super) async fn run(
    context: &StageContext,
    routes: &[Route],
    default: Option<&StageDefinition>,
    scope: &Scope,
) -> Result<WorkflowOutput, Failure> {
    let fitting = routes.iter().find(|route| route.condition.holds(scope)).map(|route| &route.stage);
    match fitting.or(default) {
        // Drops the further outputs of the route's stage: which route runs is not known in advance, so other stages
        // cannot refer to them.
        Some(stage) => Ok(stage::run_with_events(&context.stage(&stage.id), stage, scope).await?.text.into()),
        None => Ok(Arc::<str>::from("").into()),
    }
}
