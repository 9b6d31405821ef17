//! The first route whose condition holds (O-23).

use super::failure::Failure;
use super::part::Part;
use super::stage;
use super::workflow::Output;
use definitions::workflow::definition::{Route, Stage};
use definitions::workflow::scope::Scope;
use std::sync::Arc;

/// Runs the stage of the first route that fits, else the default; without either the output is empty.
pub(super) async fn run(
    part: &Part,
    routes: &[Route],
    default: Option<&Stage>,
    scope: &Scope,
) -> Result<Output, Failure> {
    let fitting = routes.iter().find(|route| route.condition.holds(scope)).map(|route| &route.stage);
    match fitting.or(default) {
        // What the route's stage leaves besides its output is not the conditional's: whether it ran is not known before.
        Some(stage) => Ok(stage::told(&part.stage(&stage.id), stage, scope).await?.text.into()),
        None => Ok(Arc::<str>::from("").into()),
    }
}
