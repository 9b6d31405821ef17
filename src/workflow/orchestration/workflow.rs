//! A workflow of any type: its events around what its type does with its stages.

use super::definition::{Shape, Workflow};
use super::event::RunEventType;
use super::failure::Failure;
use super::part::{Part, Told};
use super::scope::Scope;
use super::{conditional, loops, parallel, pipeline};
use crate::workflow::dynamic;
use serde_json::Value;
use std::sync::Arc;

/// What a workflow or stage came to.
#[derive(Clone, Debug)]
pub(in crate::workflow) struct Output {
    /// The text.
    pub(in crate::workflow) text: Arc<str>,
    /// Of a parallel workflow, the outputs of the branches that ran, in their order (OP-O16).
    pub(super) branches: Vec<(Arc<str>, Arc<str>)>,
    /// Of a loop.
    pub(super) iterations: Option<u32>,
}

impl From<Arc<str>> for Output {
    fn from(text: Arc<str>) -> Self {
        Self { text, branches: Vec::new(), iterations: None }
    }
}

impl Output {
    pub(super) fn told(&self, shape: &Shape) -> Told {
        let mut told = Told::output(&self.text);
        if let Some(data) = &mut told.data {
            if let Some(iterations) = self.iterations {
                data.insert("iterations".into(), iterations.into());
            }
            if matches!(shape, Shape::Parallel { .. }) {
                let outputs = self.branches.iter().map(|(id, text)| (id.to_string(), Value::from(text.as_ref())));
                data.insert("branch_outputs".into(), Value::Object(outputs.collect()));
            }
        }
        told
    }
}

/// Runs a workflow within another, with the events of its beginning and end. `scope` is its own.
pub(super) async fn run(part: &Part, workflow: &Workflow, scope: Scope) -> Result<Output, Failure> {
    part.tell(RunEventType::RunStarted, Told::default());
    let ended = stages(part, workflow, scope).await;
    match &ended {
        Ok(output) => part.tell(RunEventType::RunCompleted, output.told(&workflow.shape)),
        Err(Failure::Failed { failure, .. }) => part.tell(RunEventType::RunFailed, Told::error(failure.to_string())),
        // It is repeated, or ends otherwise.
        Err(Failure::Journal(_)) => {}
    }
    ended
}

/// What the type of a workflow does with its stages.
pub(super) async fn stages(part: &Part, workflow: &Workflow, scope: Scope) -> Result<Output, Failure> {
    let shape = &workflow.shape;
    match shape {
        Shape::Pipeline { stages, .. } => pipeline::run(part, stages, &mut part.outputs(shape, scope)).await,
        Shape::Loop { stages, condition, max_iterations, .. } => {
            let of = loops::Loop { id: &workflow.id, stages, condition, max_iterations: *max_iterations };
            loops::run(part, of, part.outputs(shape, scope)).await
        }
        Shape::Parallel { branches, merge_template, max_concurrency } => {
            let most = max_concurrency.unwrap_or(part.run().max_parallel).max(1);
            parallel::run(part, branches, merge_template.as_ref(), (most, scope)).await
        }
        Shape::Conditional { routes, default } => conditional::run(part, routes, default.as_deref(), &scope).await,
        Shape::Dynamic(dynamic) => Box::pin(dynamic::run(part, dynamic, scope.query())).await,
    }
}
