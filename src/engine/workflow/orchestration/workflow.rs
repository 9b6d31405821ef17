//! Execution of one workflow of any type, with its events.

use super::event::RunEventType;
use super::failure::Failure;
use super::stage_context::{EventPayload, StageContext};
use super::{conditional, graph, loops, parallel, pipeline};
use crate::workflow::orchestration::dynamic;
use definitions::workflow::definition::{Shape, Workflow};
use definitions::workflow::outputs::OutputStore;
use definitions::workflow::scope::Scope;
use definitions::workflow::template::InputMapping;
use serde_json::Value;
use std::sync::Arc;

/// Result of a workflow or stage.
#[derive(Clone, Debug)]
pub(in crate::workflow) struct WorkflowOutput {
    /// The output text.
    pub(in crate::workflow) text: Arc<str>,
    /// Further outputs that the surrounding workflow sees, by name: the branches of a parallel workflow, and the
    /// outputs of inner stages. `None` for a skipped stage.
    pub(super) further: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Number of iterations, for a loop.
    pub(super) iterations: Option<u32>,
}

impl From<Arc<str>> for WorkflowOutput {
    fn from(text: Arc<str>) -> Self {
        Self { text, further: Vec::new(), iterations: None }
    }
}

impl WorkflowOutput {
    /// Result of a pipeline or loop whose last stage returned `last`.
    fn from_stages(last: Arc<str>, template: Option<&InputMapping>, outputs: &OutputStore) -> Self {
        let text = template.map_or(last, |template| template.build(outputs.scope()).into());
        Self { text, further: outputs.left().into_iter().collect(), iterations: None }
    }

    /// Contents of the event that reports this result.
    pub(super) fn payload(&self, shape: &Shape) -> EventPayload {
        let mut payload = EventPayload::output(&self.text);
        if let Some(data) = &mut payload.data {
            if let Some(iterations) = self.iterations {
                data.insert("iterations".into(), iterations.into());
            }
            if matches!(shape, Shape::Parallel { .. }) {
                let branches = self.further.iter().filter(|(id, _)| !id.contains('.'));
                let ran = branches.filter_map(|(id, text)| Some((id.to_string(), Value::from(text.as_deref()?))));
                data.insert("branch_outputs".into(), Value::Object(ran.collect()));
            }
        }
        payload
    }
}

/// Executes a workflow within another one, with the events of its start and end. `scope` is the inner workflow's.
pub(super) async fn run(context: &StageContext, workflow: &Workflow, scope: Scope) -> Result<WorkflowOutput, Failure> {
    context.emit(RunEventType::RunStarted, EventPayload::default());
    let ended = stages(context, workflow, scope).await;
    match &ended {
        Ok(output) => context.emit(RunEventType::RunCompleted, output.payload(&workflow.shape)),
        Err(Failure::Failed { failure, .. }) => {
            context
                .failed_at(workflow, failure)
                .emit(RunEventType::RunFailed, EventPayload::error(failure.to_string()));
        }
        // The turn will repeat the workflow or end it, so there is no end to report yet.
        Err(Failure::Journal(_)) => {}
    }
    ended
}

/// Executes the stages of a workflow, according to its type.
pub(super) async fn stages(
    context: &StageContext,
    workflow: &Workflow,
    scope: Scope,
) -> Result<WorkflowOutput, Failure> {
    let shape = &workflow.shape;
    match shape {
        Shape::Pipeline { stages, output, .. } => {
            let mut outputs = context.outputs(shape, scope);
            let last = pipeline::run(context, stages, &mut outputs).await?;
            Ok(WorkflowOutput::from_stages(last, output.as_ref(), &outputs))
        }
        Shape::Loop { stages, condition, max_iterations, output, .. } => {
            let definition =
                loops::LoopDefinition { id: &workflow.id, stages, condition, max_iterations: *max_iterations };
            let mut outputs = context.outputs(shape, scope);
            let (last, iterations) = loops::run(context, definition, &mut outputs).await?;
            Ok(WorkflowOutput {
                iterations: Some(iterations),
                ..WorkflowOutput::from_stages(last, output.as_ref(), &outputs)
            })
        }
        Shape::Parallel { branches, merge_template, max_concurrency } => {
            let most = max_concurrency.unwrap_or(context.run().max_parallel).max(1);
            parallel::run(context, branches, merge_template.as_ref(), most, scope).await
        }
        Shape::Conditional { routes, default } => conditional::run(context, routes, default.as_deref(), &scope).await,
        Shape::Dynamic(dynamic) => Box::pin(dynamic::run(context, dynamic, scope.query())).await,
        Shape::Graph(graph) => Box::pin(graph::run(context, &workflow.id, graph, scope.query())).await,
    }
}
