//! All branches at once, isolated from one another (O-21).

use super::definition::Stage;
use super::event::RunEventType;
use super::failure::Failure;
use super::part::{Part, Told};
use super::scope::Scope;
use super::stage;
use super::template::InputMapping;
use super::workflow::Output;
use futures::StreamExt;
use futures::stream;
use std::sync::Arc;

/// Runs the branches whose conditions hold, `most` at once; all begin with the same `scope`. The first that fails ends the
/// others.
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
    let outputs: Vec<(Arc<str>, Arc<str>)> = ids.zip(ended).collect();
    let text = match merge_template {
        Some(template) => template.build(&merged(branches, &outputs, scope)),
        None => blocks(&outputs),
    };
    Ok(Output { branches: outputs, ..Arc::<str>::from(text).into() })
}

/// What the branches of `part` come to, `most` at once, in their order. The first that fails ends the others.
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
            // What the others have under way counts; of a run that is looked at each branch does, however far it has come.
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

async fn told(part: &Part, branch: &Stage, scope: &Scope) -> Result<Arc<str>, Failure> {
    part.tell(RunEventType::BranchStarted, Told::default());
    let output = stage::run(part, branch, scope).await?.text;
    part.tell(RunEventType::BranchCompleted, Told::output(&output));
    Ok(output)
}

/// What the merge template sees: also the branches that were skipped, as empty.
fn merged(branches: &[Stage], outputs: &[(Arc<str>, Arc<str>)], scope: Scope) -> Scope {
    let skipped = branches.iter().map(|branch| (Arc::from(branch.id.as_str()), None));
    scope.with(skipped.chain(outputs.iter().map(|(id, text)| (Arc::clone(id), Some(Arc::clone(text))))))
}

/// `[branch_id]:` and the output, for each branch that ran (O-22).
fn blocks(outputs: &[(Arc<str>, Arc<str>)]) -> String {
    outputs.iter().map(|(id, text)| format!("[{id}]:\n{text}")).collect::<Vec<_>>().join("\n\n")
}
