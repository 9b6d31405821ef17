//! A workflow of any type: its events around what its type does with its stages.

use super::event::RunEventType;
use super::failure::Failure;
use super::part::{Part, Told};
use super::{conditional, loops, parallel, pipeline};
use crate::workflow::orchestration::dynamic;
use definitions::workflow::definition::{Shape, Workflow};
use definitions::workflow::outputs::OutputStore;
use definitions::workflow::scope::Scope;
use definitions::workflow::template::InputMapping;
use serde_json::Value;
use std::sync::Arc;

/// What a workflow or stage came to.
#[derive(Clone, Debug)]
pub(in crate::workflow) struct Output {
    /// The text.
    pub(in crate::workflow) text: Arc<str>,
    /// What the workflow around sees besides, by name: the branches of a parallel (OP-O16), and the outputs of stages
    /// within. `None` for what was skipped.
    pub(super) left: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Of a loop.
    pub(super) iterations: Option<u32>,
}

impl From<Arc<str>> for Output {
    fn from(text: Arc<str>) -> Self {
        Self { text, left: Vec::new(), iterations: None }
    }
}

impl Output {
    /// Of a pipeline or loop, whose last stage left `last`.
    fn of_stages(last: Arc<str>, template: Option<&InputMapping>, outputs: &OutputStore) -> Self {
        let text = template.map_or(last, |template| template.build(outputs.scope()).into());
        Self { text, left: outputs.left().into_iter().collect(), iterations: None }
    }

    pub(super) fn told(&self, shape: &Shape) -> Told {
        let mut told = Told::output(&self.text);
        if let Some(data) = &mut told.data {
            if let Some(iterations) = self.iterations {
                data.insert("iterations".into(), iterations.into());
            }
            if matches!(shape, Shape::Parallel { .. }) {
                let branches = self.left.iter().filter(|(id, _)| !id.contains('.'));
                let ran = branches.filter_map(|(id, text)| Some((id.to_string(), Value::from(text.as_deref()?))));
                data.insert("branch_outputs".into(), Value::Object(ran.collect()));
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
        Err(Failure::Failed { failure, .. }) => {
            part.failed_at(workflow, failure).tell(RunEventType::RunFailed, Told::error(failure.to_string()));
        }
        // It is repeated, or ends otherwise.
        Err(Failure::Journal(_)) => {}
    }
    ended
}

/// What the type of a workflow does with its stages.
pub(super) async fn stages(part: &Part, workflow: &Workflow, scope: Scope) -> Result<Output, Failure> {
    let shape = &workflow.shape;
    match shape {
        Shape::Pipeline { stages, output, .. } => {
            let mut outputs = part.outputs(shape, scope);
            let last = pipeline::run(part, stages, &mut outputs).await?;
            Ok(Output::of_stages(last, output.as_ref(), &outputs))
        }
        Shape::Loop { stages, condition, max_iterations, output, .. } => {
            let of = loops::Loop { id: &workflow.id, stages, condition, max_iterations: *max_iterations };
            let mut outputs = part.outputs(shape, scope);
            let (last, iterations) = loops::run(part, of, &mut outputs).await?;
            Ok(Output { iterations: Some(iterations), ..Output::of_stages(last, output.as_ref(), &outputs) })
        }
        Shape::Parallel { branches, merge_template, max_concurrency } => {
            let most = max_concurrency.unwrap_or(part.run().max_parallel).max(1);
            parallel::run(part, branches, merge_template.as_ref(), (most, scope)).await
        }
        Shape::Conditional { routes, default } => conditional::run(part, routes, default.as_deref(), &scope).await,
        Shape::Dynamic(dynamic) => Box::pin(dynamic::run(part, dynamic, scope.query())).await,
    }
}
