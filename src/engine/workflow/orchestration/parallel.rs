//! Parallel workflows: branches that run concurrently and do not see each other's outputs.

use super::event::RunEventType;
use super::failure::Failure;
use super::stage;
use super::stage_context::{EventPayload, StageContext};
use super::workflow::WorkflowOutput;
use definitions::workflow::definition::StageDefinition;
use definitions::workflow::scope::{Scope, is_or_within};
use definitions::workflow::template::InputMapping;
use futures::{StreamExt, stream};
use std::sync::Arc;

/// Executes the branches whose conditions hold, at most `most` concurrently, each with the same `scope`. The first
/// failure stops the other branches.
pub(super) async fn run(
    context: &StageContext,
    branches: &[StageDefinition],
    merge_template: Option<&InputMapping>,
    most: usize,
    scope: Scope,
) -> Result<WorkflowOutput, Failure> {
    let runs = |branch: &&StageDefinition| branch.condition.as_ref().is_none_or(|condition| condition.holds(&scope));
    let running: Vec<&StageDefinition> = branches.iter().filter(runs).collect();
    let begun = running.iter().map(|branch| {
        let (here, scope) = (context.branch(&branch.id), &scope);
        async move { run_with_events(&here, branch, scope).await }
    });
    let ended = run_concurrently(context, most, begun.collect()).await?;
    let ids = running.iter().map(|branch| Arc::from(branch.id.as_str()));
    let ended: Vec<(Arc<str>, WorkflowOutput)> = ids.zip(ended).collect();
    let further = further_outputs(context, branches, &ended);
    let text = match merge_template {
        Some(template) => template.build(&scope.with(further.iter().cloned())),
        None => blocks(&ended),
    };
    Ok(WorkflowOutput { further, ..Arc::<str>::from(text).into() })
}

/// Runs futures, at most `most` concurrently, and returns their results in the order of `branches`. The first failure
/// stops the others.
pub(in crate::workflow) async fn run_concurrently<T>(
    context: &StageContext,
    most: usize,
    branches: Vec<impl Future<Output = Result<T, Failure>>>,
) -> Result<Vec<T>, Failure> {
    let placed = branches.into_iter().enumerate();
    let begun: Vec<_> = placed.map(|(place, branch)| async move { branch.await.map(|ended| (place, ended)) }).collect();
    let mut begun = stream::iter(begun).buffer_unordered(most);
    let (mut ended, mut failed) = (Vec::new(), None);
    while let Some(branch) = begun.next().await {
        match branch {
            Ok(branch) => ended.push(branch),
            // Lets the other branches continue: after a halt their steps in flight must still be recorded, and a
            // timeline needs the state of every branch.
            Err(failure) if context.run().notes.is_some() || context.journal().is_halted() => {
                failed.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    ended.sort_by_key(|(place, _)| *place);
    Ok(ended.into_iter().map(|(_, ended)| ended).collect())
}

/// Executes a branch, with the events of its start and end.
async fn run_with_events(
    context: &StageContext,
    branch: &StageDefinition,
    scope: &Scope,
) -> Result<WorkflowOutput, Failure> {
    context.emit(RunEventType::BranchStarted, EventPayload::default());
    let output = stage::run(context, branch, scope).await?;
    context.emit(RunEventType::BranchCompleted, EventPayload::output(&output.text));
    Ok(output)
}

/// Outputs of the branches and of their inner stages, in order, for the merge template and the surrounding workflow.
/// The output of a skipped branch is `None`.
fn further_outputs(
    context: &StageContext,
    branches: &[StageDefinition],
    ended: &[(Arc<str>, WorkflowOutput)],
) -> Vec<(Arc<str>, Option<Arc<str>>)> {
    let known = branches.iter().flat_map(|branch| branch.own_ids(&|id| context.run().resolved.workflow(id)));
    let mut further: Vec<(Arc<str>, _)> = known.map(|id| (Arc::from(id), None)).collect();
    for (id, WorkflowOutput { text, further: within, .. }) in ended {
        further.retain(|(known, _)| !is_or_within(known, id));
        further.push((Arc::clone(id), Some(Arc::clone(text))));
        further.extend(within.iter().filter(|(name, _)| name.contains('.') && is_or_within(name, id)).cloned());
    }
    further
}

/// Output without a merge template: `[branch_id]:` and the output of each branch that ran.
fn blocks(outputs: &[(Arc<str>, WorkflowOutput)]) -> String {
    outputs.iter().map(|(id, output)| format!("[{id}]:\n{}", output.text)).collect::<Vec<_>>().join("\n\n")
}
