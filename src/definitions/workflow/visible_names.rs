//! Decides which names a template or condition can use at its place, and explains why others are not visible.

use super::definition::{StageDefinition, Workflow};
use crate::document::finding::quoted;
use base::config::nearest::question;
use std::collections::BTreeSet;

/// How many known names an error lists.
const MAX_LISTED_NAMES: usize = 10;

/// The names that are visible at a place.
#[derive(Clone, Debug, Default)]
pub(super) struct VisibleNames<'a> {
    /// Outputs that exist or were skipped. `draft.write` is the output of the stage `write` within `draft`.
    pub(super) outputs: BTreeSet<String>,
    /// Outputs of the enclosing workflows that are not visible here.
    pub(super) outer: BTreeSet<String>,
    /// Outputs of an iteration of the nearest loop; `None` outside of a loop.
    pub(super) of_loop: Option<BTreeSet<String>>,
    /// The nearest pipeline or loop, whose `inherit_keys` could add outer names.
    pub(super) sequence: Option<&'a Workflow>,
}

/// An output of a stage in a pipeline or loop.
#[derive(Clone, Debug)]
pub(super) struct StageOutput {
    /// Index of the stage.
    pub(super) by: usize,
    /// Name of the output.
    pub(super) id: String,
    /// True for the output of a branch of a parallel workflow.
    pub(super) is_branch: bool,
}

/// The place of a template or condition in its workflow.
#[derive(Clone, Copy)]
pub(super) enum UsageSite<'p> {
    /// A stage of a pipeline or loop. `left` has the outputs of all its stages.
    Sequence { at: usize, left: &'p [StageOutput] },
    /// A branch of a parallel workflow.
    Branch { own: &'p str, branches: &'p [StageDefinition] },
    /// A route of a conditional workflow.
    Route { stages: &'p [&'p StageDefinition] },
    /// A template or condition that sees all outputs of the workflow.
    Whole,
}

/// A problem and a hint.
pub(super) type Explanation = (String, String);

/// Checks a variable at its place. Returns an error if it can never have a value, and a warning for a probable mistake.
pub(super) fn check_variable(
    names: &VisibleNames<'_>,
    place: UsageSite<'_>,
    variable: &str,
) -> Result<Option<Explanation>, Explanation> {
    let (first, below) = variable.split_once('.').map_or((variable, None), |(first, below)| (first, Some(below)));
    match (first, below) {
        ("query", None) => Ok(None),
        ("loop", below) => check_loop_variable(names, variable, below),
        _ if names.outputs.contains(variable) => Ok(None),
        _ if first != "query" && !names.outputs.contains(first) => Err(explain_invisible(names, place, first)),
        (_, None) => Ok(None),
        (_, Some(below)) if !inner_outputs(names, first).is_empty() => {
            let known = inner_outputs(names, first);
            let problem = format!("`{first}` has no inner stage `{below}`; it has {}", shown(known.iter().copied()));
            Err((problem, question(below, known.iter().copied())))
        }
        (_, Some(_)) => {
            Err((format!("`{{{variable}}}` looks into `{first}`, which is a text"), format!("write `{{{first}}}`")))
        }
    }
}

/// The visible outputs of stages within the stage `id`.
fn inner_outputs<'n>(names: &'n VisibleNames<'_>, id: &str) -> Vec<&'n str> {
    let inner = |name: &'n str| name.strip_prefix(id)?.strip_prefix('.');
    names.outputs.iter().filter_map(|name| inner(name)).collect()
}

fn check_loop_variable(
    names: &VisibleNames<'_>,
    variable: &str,
    below: Option<&str>,
) -> Result<Option<Explanation>, Explanation> {
    let forms = "write `{loop.iteration}` or `{loop.last.stage}`";
    match (below.and_then(|below| below.strip_prefix("last.")), &names.of_loop) {
        (None, of_loop) if below == Some("iteration") => Ok(of_loop.is_none().then(|| {
            (
                "`{loop.iteration}` is always 0 outside of a loop".to_owned(),
                "remove it, or put the stage into a loop".to_owned(),
            )
        })),
        (None, _) => Err((format!("there is no `{{{variable}}}`"), forms.to_owned())),
        (Some(_), None) => {
            let hint = "a pipeline within a loop does not see the loop's values; the stage that runs it can pass them in its `input`";
            Err((format!("`{{{variable}}}` has no value outside of a loop"), hint.to_owned()))
        }
        (Some(stage), Some(stages)) if stages.contains(stage) => Ok(None),
        (Some(stage), Some(_)) if names.outputs.contains(stage) => {
            Err((format!("`{stage}` is not a stage of the loop"), format!("write `{{{stage}}}`")))
        }
        (Some(stage), Some(stages)) => {
            let known = || stages.iter().map(String::as_str);
            let problem = format!("the loop has no stage `{stage}`; it has {}", shown(known()));
            Err((problem, question(stage, known())))
        }
    }
}

/// Explains why a name has no value here.
fn explain_invisible(names: &VisibleNames<'_>, place: UsageSite<'_>, name: &str) -> Explanation {
    let before = match &names.of_loop {
        Some(stages) if stages.contains(name) => {
            format!("`{{loop.last.{name}}}` is its output in the previous iteration")
        }
        _ => String::new(),
    };
    match place {
        UsageSite::Sequence { at, left } => {
            if let Some(left) = left.iter().find(|left| left.id == name) {
                let by = left.by;
                return match (by == at, before.is_empty()) {
                    (true, _) => (format!("`{{{name}}}` is the output of this stage itself"), before),
                    (false, true) => {
                        let hint = "put that stage before this one";
                        (format!("`{{{name}}}` is the output of a later stage, `stages[{by}]`"), hint.to_owned())
                    }
                    (false, false) => (format!("`{{{name}}}` is the output of a later stage, `stages[{by}]`"), before),
                };
            }
        }
        UsageSite::Branch { own, .. } if own == name => {
            return (format!("`{{{name}}}` is the output of this branch itself"), before);
        }
        UsageSite::Branch { branches, .. } if branches.iter().any(|branch| branch.id == name) => {
            let hint = match before.is_empty() {
                true => "use it in the `merge_template`, or in a stage after the parallel".to_owned(),
                false => before,
            };
            return (format!("`{{{name}}}` is the output of another branch, and branches run concurrently"), hint);
        }
        UsageSite::Route { stages } if stages.iter().any(|stage| stage.id == name) => {
            return (format!("`{{{name}}}` is the output of a route, and only one route is taken"), String::new());
        }
        UsageSite::Branch { .. } | UsageSite::Route { .. } | UsageSite::Whole => {}
    }
    if let Some(workflow) = names.sequence.filter(|_| names.outer.contains(name)) {
        let (kind, id) = (workflow.shape.as_str(), &workflow.id);
        let problem = format!("the {kind} `{id}` does not see `{name}` of the workflow around it");
        return (problem, format!("add it there: `inherit_keys: [{name}]`"));
    }
    let known = std::iter::once("query").chain(names.outputs.iter().map(String::as_str));
    let deeper = names.outputs.iter().find(|known| known.strip_suffix(name).is_some_and(|path| path.ends_with('.')));
    let hint = match question(name, known.clone()) {
        _ if deeper.is_some() => {
            let path = deeper.map_or("", String::as_str);
            format!(
                "a stage within `{}` has it: write `{{{path}}}`",
                path.strip_suffix(name).map_or("", |id| id.trim_end_matches('.'))
            )
        }
        close if close.is_empty() => format!("write `{{{{{name}}}}}` where the text `{{{name}}}` is meant"),
        close => close,
    };
    (format!("there is no `{{{name}}}` here; there is {}", shown(known)), hint)
}

fn shown<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let more = if names.clone().nth(MAX_LISTED_NAMES).is_some() { ", …" } else { "" };
    format!("{}{more}", quoted(names.take(MAX_LISTED_NAMES)))
}
