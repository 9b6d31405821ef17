//! Which recorded steps of an earlier turn a run goes on with: all but failures when it is resumed, those before a stage
//! when it is restarted from there.

use super::beginning::BEGIN;
use crate::journal::StepRecord;
use crate::workflow::orchestration::definition::{Shape, Target, Workflow};
use std::sync::Arc;

/// The last segment of the key under which an attempt of a stage has failed.
const FAILED: &str = "failed";

/// Finds the workflow that a stage names.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Workflow>>;

/// The steps of a run, whose keys begin with `prefix` in its turn, under keys of its own.
pub(super) fn of_run(steps: Vec<StepRecord>, prefix: &str) -> Vec<StepRecord> {
    if prefix.is_empty() {
        return steps;
    }
    let own = |step: StepRecord| {
        let key = step.key.strip_prefix(prefix)?.strip_prefix('/')?.to_owned();
        Some(StepRecord { key, ..step })
    };
    steps.into_iter().filter_map(own).collect()
}

/// What a resumed run goes on with: everything, but how the stage at `path` and those around it have failed.
pub(super) fn resumed(steps: Vec<StepRecord>, path: &str) -> Vec<StepRecord> {
    let failed: Vec<_> = path.split('/').collect();
    let is_around = |key: &str| {
        let stage = key.strip_suffix(FAILED)?.strip_suffix('/')?;
        let stage: Vec<_> = stage.split('/').map(|segment| without_attempt(segment)).collect();
        Some(stage.len() <= failed.len() && stage.iter().zip(&failed).all(|(a, b)| names(a, b)))
    };
    let gone = |step: &StepRecord| step.kind == "stage" && !step.ok && is_around(&step.key) == Some(true);
    steps.into_iter().filter(|step| !gone(step)).collect()
}

/// True when both are the same stage; one around a loop has no iteration.
fn names(stage: &str, failed: &str) -> bool {
    stage == failed || failed.strip_prefix(stage).is_some_and(|rest| rest.starts_with('['))
}

/// What a run begins with that repeats another one of `workflow` from the stage `from` on.
pub(super) fn restarted(
    steps: Vec<StepRecord>,
    workflow: &Workflow,
    lookup: Lookup<'_>,
    from: &str,
) -> Vec<StepRecord> {
    let from = segments(from);
    let before = |step: &StepRecord| step.key == BEGIN || comes_before(workflow, lookup, &segments(&step.key), &from);
    steps.into_iter().filter(before).collect()
}

/// Why `from` names no stage of `workflow`, if it does not.
pub(crate) fn check(workflow: &Workflow, lookup: Lookup<'_>, from: &str) -> Result<(), String> {
    let path = segments(from);
    let rest = match path.first() {
        Some(first) if is_root(workflow, first) => &path[1..],
        _ => &path[..],
    };
    let mut here = Some((Arc::new(workflow.clone()), workflow.id.clone()));
    for segment in rest {
        let Some((workflow, name)) = here else {
            return Err(format!("`{from}`: there is nothing within the stage before `{}`", segment.id));
        };
        let stages = workflow.shape.stages();
        let Some(stage) = stages.iter().find(|stage| stage.id == segment.id) else {
            let known: Vec<_> = stages.iter().map(|stage| stage.id.as_str()).collect();
            return Err(format!("`{name}` has no stage `{}`; it has: {}", segment.id, known.join(", ")));
        };
        here = inner(&stage.runnable, lookup).map(|inner| (inner, stage.id.clone()));
    }
    Ok(())
}

/// `outer_loop~2[3]`: a stage, its second attempt, the third iteration of the loop in it.
struct Segment<'k> {
    id: &'k str,
    iteration: Option<u32>,
}

fn segments(path: &str) -> Vec<Segment<'_>> {
    let parse = |segment| {
        let id = str::split(segment, ['~', '[']).next().unwrap_or_default();
        let iteration = segment.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')?.parse().ok());
        Segment { id, iteration }
    };
    path.split('/').map(parse).collect()
}

/// A segment without its attempt.
fn without_attempt(segment: &str) -> String {
    match segment.split_once('~') {
        Some((id, rest)) => format!("{id}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => segment.to_owned(),
    }
}

/// True for the segment with which the keys of a root loop begin.
fn is_root(workflow: &Workflow, segment: &Segment<'_>) -> bool {
    matches!(workflow.shape, Shape::Loop { .. }) && segment.id == workflow.id && segment.iteration.is_some()
}

/// True for the key of a step that does not depend on the stage `from`, which runs in `workflow`: by position in a
/// pipeline, by iteration in a loop; branches are independent of one another.
fn comes_before(workflow: &Workflow, lookup: Lookup<'_>, key: &[Segment<'_>], from: &[Segment<'_>]) -> bool {
    let (Some(at), Some(wanted)) = (key.first(), from.first()) else { return false };
    if is_root(workflow, at) {
        let (named, first) = (is_root(workflow, wanted), wanted.iteration);
        let wanted = if named { first.unwrap_or(1) } else { 1 };
        let rest = if named { &from[1..] } else { from };
        let iteration = at.iteration.unwrap_or(1);
        return iteration < wanted || (iteration == wanted && comes_before(workflow, lookup, &key[1..], rest));
    }
    let stages = workflow.shape.stages();
    let place = |id: &str| stages.iter().position(|stage| stage.id == id);
    let (Some(here), Some(there)) = (place(at.id), place(wanted.id)) else { return false };
    if here != there {
        let ordered = matches!(workflow.shape, Shape::Pipeline { .. } | Shape::Loop { .. });
        return !ordered || here < there;
    }
    if let Some(iteration) = at.iteration {
        let wanted = wanted.iteration.unwrap_or(1);
        if iteration != wanted {
            return iteration < wanted;
        }
    }
    let inner = inner(&stages[here].runnable, lookup);
    inner.is_some_and(|inner| comes_before(&inner, lookup, &key[1..], &from[1..]))
}

fn inner(target: &Target, lookup: Lookup<'_>) -> Option<Arc<Workflow>> {
    match target {
        Target::Inline(workflow) => Some(Arc::new(Workflow::clone(workflow))),
        Target::Reference(id) => lookup(id),
    }
}
