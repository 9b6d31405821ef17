//! Parallel workflows: branches that run concurrently and do not see each other's outputs.

use super::event::RunEventType;
use super::failure::Failure;
use super::part::{Part, Told};
use super::stage;
use super::workflow::Output;
use definitions::workflow::definition::Stage;
use definitions::workflow::scope::{Scope, is_or_within};
use definitions::workflow::template::InputMapping;
use futures::{StreamExt, stream};
use std::sync::Arc;

/// Executes the branches whose conditions hold, at most `most` concurrently, each with the same `scope`. The first
/// failure stops the other branches.
pub(super) async fn run(
    part: &Part,
    branches: &[Stage],
    merge_template: Option<&InputMapping>,
    (most, scope): (usize, Scope),
) -> Result<Output, Failure> {
    let runs = |branch: &&Stage| branch.condition.as_ref().is_none_or(|condition| condition.holds(&scope));
    let running: Vec<&Stage> = branches.iter().filter(runs).collect();
    let begun = running.iter().map(|branch| {
        let (here, scope) = (part.branch(&branch.id), &scope);
        async move { told(&here, branch, scope).await }
    });
    let ended = together(part, most, begun.collect()).await?;
    let ids = running.iter().map(|branch| Arc::from(branch.id.as_str()));
    let ended: Vec<(Arc<str>, Output)> = ids.zip(ended).collect();
    let left = left(part, branches, &ended);
    let text = match merge_template {
        Some(template) => template.build(&scope.with(left.iter().cloned())),
        None => blocks(&ended),
    };
    Ok(Output { left, ..Arc::<str>::from(text).into() })
}

/// Runs futures, at most `most` concurrently, and returns their results in the order of `branches`. The first failure
/// stops the others.
pub(in crate::workflow) async fn together<T>(
    part: &Part,
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
            Err(failure) if part.run().notes.is_some() || part.journal().is_halted() => {
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
async fn told(part: &Part, branch: &Stage, scope: &Scope) -> Result<Output, Failure> {
    part.tell(RunEventType::BranchStarted, Told::default());
    let output = stage::run(part, branch, scope).await?;
    part.tell(RunEventType::BranchCompleted, Told::output(&output.text));
    Ok(output)
}

/// Outputs of the branches and of their inner stages, in order, for the merge template and the surrounding workflow.
/// The output of a skipped branch is `None`.
fn left(part: &Part, branches: &[Stage], ended: &[(Arc<str>, Output)]) -> Vec<(Arc<str>, Option<Arc<str>>)> {
    let known = branches.iter().flat_map(|branch| branch.own_ids(&|id| part.run().pinned.workflow(id)));
    let mut left: Vec<(Arc<str>, _)> = known.map(|id| (Arc::from(id), None)).collect();
    for (id, Output { text, left: within, .. }) in ended {
        left.retain(|(known, _)| !is_or_within(known, id));
        left.push((Arc::clone(id), Some(Arc::clone(text))));
        left.extend(within.iter().filter(|(name, _)| name.contains('.') && is_or_within(name, id)).cloned());
    }
    left
}

/// Output without a merge template: `[branch_id]:` and the output of each branch that ran.
fn blocks(outputs: &[(Arc<str>, Output)]) -> String {
    outputs.iter().map(|(id, output)| format!("[{id}]:\n{}", output.text)).collect::<Vec<_>>().join("\n\n")
}
