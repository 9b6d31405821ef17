//! Execution of a plan: the groups one after the other, the steps of a group concurrently. The failure of a step is a
//! result like any other.

use super::inputs;
use super::plan::{PlanStep, branch_ids, groups};
use super::results::{Results, StepResult};
use crate::workflow::orchestration::event::RunEventType;
use crate::workflow::orchestration::failure::Failure;
use crate::workflow::orchestration::stage_context::{EventPayload, StageContext};
use crate::workflow::orchestration::{parallel, stage};
use definitions::workflow::definition::DynamicDefinition;
use definitions::workflow::scope::Scope;
use std::sync::Arc;

/// Executes `plan`, and returns `earlier` merged with its results. Each step sees the results of `earlier` and of the
/// groups before its own.
pub(super) async fn run(
    context: &StageContext,
    dynamic: &DynamicDefinition,
    plan: &[PlanStep],
    earlier: &Results,
) -> Result<Results, Failure> {
    let most = dynamic.max_concurrency.unwrap_or(context.run().max_parallel).max(1);
    let ids = branch_ids(plan);
    let mut results = earlier.clone();
    for group in groups(plan) {
        let steps = group.into_iter().filter_map(|at| Some((ids.get(at)?, plan.get(at)?)));
        let steps = steps.map(|(id, step)| ask(context.branch(id), dynamic, step, &results)).collect();
        let found = parallel::run_concurrently(context, most, steps).await?;
        results.merge(found);
    }
    Ok(results)
}

/// Executes one step as a branch.
async fn ask(
    context: StageContext,
    dynamic: &DynamicDefinition,
    step: &PlanStep,
    earlier: &Results,
) -> Result<StepResult, Failure> {
    let Some(agent) = dynamic.agent(&step.agent) else {
        return Err(Failure::fatal(&context, format!("there is no agent `{}`", step.agent)));
    };
    context.emit(RunEventType::BranchStarted, EventPayload::default());
    let scope = Scope::root(inputs::step(&step.question, earlier), None);
    let (agent_name, question) = (step.agent.clone(), step.question.clone());
    let of = |result: Option<Arc<str>>, error| StepResult { agent: agent_name, question, result, error };
    match stage::run(&context.keeping_failures(), &agent.stage, &scope).await {
        Ok(output) => {
            context.emit(RunEventType::BranchCompleted, EventPayload::output(&output.text));
            Ok(of(Some(output.text), None))
        }
        Err(Failure::Failed { failure, fatal: false }) => {
            let error = Some(failure.to_string());
            context.emit(RunEventType::BranchCompleted, EventPayload { error, ..EventPayload::output("") });
            Ok(of(None, Some(failure.cause)))
        }
        Err(failure) => Err(failure),
    }
}
