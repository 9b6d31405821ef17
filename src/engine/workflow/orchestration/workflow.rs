//! Execution of one workflow of any type, with its events.

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

/// Result of a workflow or stage.
#[derive(Clone, Debug)]
pub(in crate::workflow) struct Output {
    /// The output text.
    pub(in crate::workflow) text: Arc<str>,
    /// Further outputs that the surrounding workflow sees, by name: the branches of a parallel workflow, and the
    /// outputs of inner stages. `None` for a skipped stage.
    pub(super) left: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Number of iterations, for a loop.
    pub(super) iterations: Option<u32>,
}

impl From<Arc<str>> for Output {
    fn from(text: Arc<str>) -> Self {
        Self { text, left: Vec::new(), iterations: None }
    }
}

impl Output {
    /// Result of a pipeline or loop whose last stage returned `last`.
    fn of_stages(last: Arc<str>, template: Option<&InputMapping>, outputs: &OutputStore) -> Self {
        let text = template.map_or(last, |template| template.build(outputs.scope()).into());
        Self { text, left: outputs.left().into_iter().collect(), iterations: None }
    }

    /// Contents of the event that reports this result.
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

/// Executes a workflow within another one, with the events of its start and end. `scope` is the inner workflow's.
pub(super) async fn run(part: &Part, workflow: &Workflow, scope: Scope) -> Result<Output, Failure> {
    part.tell(RunEventType::RunStarted, Told::default());
    let ended = stages(part, workflow, scope).await;
    match &ended {
        Ok(output) => part.tell(RunEventType::RunCompleted, output.told(&workflow.shape)),
        Err(Failure::Failed { failure, .. }) => {
            part.failed_at(workflow, failure).tell(RunEventType::RunFailed, Told::error(failure.to_string()));
        }
        // The turn will repeat the workflow or end it, so there is no end to report yet.
        Err(Failure::Journal(_)) => {}
    }
    ended
}

/// Executes the stages of a workflow, according to its type.
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
