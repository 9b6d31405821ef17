//! Which names a template or condition can use at its place, and why not others.

use super::definition::{Stage, Workflow};
use crate::document::finding::quoted;
use base::config::nearest::question;
use std::collections::BTreeSet;

/// Names that are shown where none fits.
const SHOWN: usize = 10;

/// What there is at a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Names<'a> {
    /// Outputs that are there, or were skipped; `draft.write` is that of a stage within `draft`.
    pub(super) outputs: BTreeSet<String>,
    /// Outputs of the workflows around, which are not seen here.
    pub(super) outer: BTreeSet<String>,
    /// What an iteration of the nearest loop leaves.
    pub(super) of_loop: Option<BTreeSet<String>>,
    /// The nearest pipeline or loop: the one that would have to inherit.
    pub(super) sequence: Option<&'a Workflow>,
}

/// An output that a stage of a pipeline or loop leaves.
#[derive(Clone, Debug)]
pub(super) struct Left {
    /// The stage's place.
    pub(super) by: usize,
    /// The output's name.
    pub(super) id: String,
    /// Whether it is that of a branch of a parallel.
    pub(super) is_branch: bool,
}

/// Where in its workflow a template or condition stands.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    /// In a stage of a pipeline or loop; `left` is what all its stages leave.
    Sequence { at: usize, left: &'p [Left] },
    /// In a branch.
    Branch { own: &'p str, branches: &'p [Stage] },
    /// In a route.
    Route { stages: &'p [&'p Stage] },
    /// In what sees all outputs of the workflow.
    Whole,
}

/// What is wrong, and what to do.
pub(super) type Told = (String, String);

/// Whether a variable can be used; an error when it can never have a value, or a warning.
pub(super) fn sees(names: &Names<'_>, place: Place<'_>, variable: &str) -> Result<Option<Told>, Told> {
    let (first, below) = variable.split_once('.').map_or((variable, None), |(first, below)| (first, Some(below)));
    match (first, below) {
        ("query", None) => Ok(None),
        ("loop", below) => of_loop(names, variable, below),
        _ if names.outputs.contains(variable) => Ok(None),
        _ if first != "query" && !names.outputs.contains(first) => Err(unseen(names, place, first)),
        (_, None) => Ok(None),
        (_, Some(below)) if !within(names, first).is_empty() => {
            let known = within(names, first);
            let problem = format!("`{first}` has no stage `{below}` within; it has {}", shown(known.iter().copied()));
            Err((problem, question(below, known.iter().copied())))
        }
        (_, Some(_)) => {
            Err((format!("`{{{variable}}}` looks into `{first}`, which is a text"), format!("write `{{{first}}}`")))
        }
    }
}

/// The outputs within the stage `id` that are seen here.
fn within<'n>(names: &'n Names<'_>, id: &str) -> Vec<&'n str> {
    let inner = |name: &'n str| name.strip_prefix(id)?.strip_prefix('.');
    names.outputs.iter().filter_map(|name| inner(name)).collect()
}

fn of_loop(names: &Names<'_>, variable: &str, below: Option<&str>) -> Result<Option<Told>, Told> {
    let forms = "write `{loop.iteration}` or `{loop.last.stage}`";
    match (below.and_then(|below| below.strip_prefix("last.")), &names.of_loop) {
        (None, of_loop) if below == Some("iteration") => Ok(of_loop.is_none().then(|| {
            (
                "`{loop.iteration}` is always 0: no loop is around".to_owned(),
                "take it out, or put the stage into a loop".to_owned(),
            )
        })),
        (None, _) => Err((format!("there is no `{{{variable}}}`"), forms.to_owned())),
        (Some(_), None) => {
            let hint = "a pipeline within a loop does not see the loop's; the stage that runs it can hand it on in its `input`";
            Err((format!("`{{{variable}}}` has no value: no loop is around"), hint.to_owned()))
        }
        (Some(stage), Some(stages)) if stages.contains(stage) => Ok(None),
        (Some(stage), Some(_)) if names.outputs.contains(stage) => {
            Err((format!("`{stage}` is no stage of the loop"), format!("write `{{{stage}}}`")))
        }
        (Some(stage), Some(stages)) => {
            let known = || stages.iter().map(String::as_str);
            let problem = format!("the loop has no stage `{stage}`; it has {}", shown(known()));
            Err((problem, question(stage, known())))
        }
    }
}

/// Why a name has no value here.
fn unseen(names: &Names<'_>, place: Place<'_>, name: &str) -> Told {
    let before = match &names.of_loop {
        Some(stages) if stages.contains(name) => format!("`{{loop.last.{name}}}` is what the iteration before left"),
        _ => String::new(),
    };
    match place {
        Place::Sequence { at, left } => {
            if let Some(left) = left.iter().find(|left| left.id == name) {
                let by = left.by;
                return match (by == at, before.is_empty()) {
                    (true, _) => (format!("`{{{name}}}` is what this very stage leaves"), before),
                    (false, true) => {
                        let hint = "put that stage before this one";
                        (format!("`{{{name}}}` is left by a later stage, `stages[{by}]`"), hint.to_owned())
                    }
                    (false, false) => (format!("`{{{name}}}` is left by a later stage, `stages[{by}]`"), before),
                };
            }
        }
        Place::Branch { own, .. } if own == name => {
            return (format!("`{{{name}}}` is what this very branch leaves"), before);
        }
        Place::Branch { branches, .. } if branches.iter().any(|branch| branch.id == name) => {
            let hint = match before.is_empty() {
                true => "use it in the `merge_template`, or in a stage after the parallel".to_owned(),
                false => before,
            };
            return (format!("`{{{name}}}` is what another branch leaves, and they run at once"), hint);
        }
        Place::Route { stages } if stages.iter().any(|stage| stage.id == name) => {
            return (format!("`{{{name}}}` is what a route leaves, and only one is taken"), String::new());
        }
        Place::Branch { .. } | Place::Route { .. } | Place::Whole => {}
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
                "a stage within `{}` leaves it: write `{{{path}}}`",
                path.strip_suffix(name).map_or("", |id| id.trim_end_matches('.'))
            )
        }
        close if close.is_empty() => format!("write `{{{{{name}}}}}` where the text `{{{name}}}` is meant"),
        close => close,
    };
    (format!("there is no `{{{name}}}` here; there is {}", shown(known)), hint)
}

fn shown<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let more = if names.clone().nth(SHOWN).is_some() { ", …" } else { "" };
    format!("{}{more}", quoted(names.take(SHOWN)))
}
