//! What templates and conditions see at one place of a workflow.
//!
//! A pipeline or loop within another workflow sees its own input and what it inherits by name; a parallel or conditional
//! sees a snapshot of what is around it, with its own input as `{query}` (OP-O12, OP-O13). A scope is cheap to clone, and
//! what it holds is shared until it is changed.

use super::definition::{Shape, Stage, Target, Workflow};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Texts by id; `None` for what is known and has no output.
pub type Outputs = HashMap<Arc<str>, Option<Arc<str>>>;

/// Names that no stage can have: they mean something in every template.
pub const RESERVED: [&str; 2] = ["query", "loop"];

/// Finds a workflow that a stage names; `None` for agents and functions.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Workflow>>;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    query: Arc<str>,
    request: Option<Arc<str>>,
    pub(super) outputs: Arc<Outputs>,
    pub(super) iteration: u32,
    pub(super) last: Arc<Outputs>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// This text.
    Text(Cow<'a, str>),
    /// A stage that was skipped or has not run yet (OP-O4, OP-O9).
    Empty,
    /// Nothing of that name.
    Unknown,
    /// Something below a text.
    Through,
}

impl Scope {
    /// That of an outermost workflow: its input, and `request`, the part of it that conditions see as `{query}` (OP-O20).
    pub fn root(query: impl Into<Arc<str>>, request: Option<Arc<str>>) -> Self {
        Self { query: query.into(), request, outputs: Arc::default(), iteration: 0, last: Arc::default() }
    }

    /// That of a workflow which a stage runs, with `query` as its input; `self` is what the stage sees.
    pub fn enter(&self, shape: &Shape, query: impl Into<Arc<str>>) -> Self {
        let inherited = match shape {
            Shape::Parallel { .. } | Shape::Conditional { .. } => {
                return Self { query: query.into(), request: None, ..self.clone() };
            }
            Shape::Dynamic(_) => return Self::root(query, None),
            Shape::Pipeline { inherit_keys, .. } | Shape::Loop { inherit_keys, .. } => inherit_keys,
        };
        let is_inherited = |id: &str| inherited.iter().any(|key| is_or_within(id, key));
        let named = self.outputs.iter().filter(|(id, _)| is_inherited(id));
        let outputs = named.map(|(id, output)| (Arc::clone(id), output.clone())).collect();
        Self { outputs: Arc::new(outputs), ..Self::root(query, None) }
    }

    /// The input of the workflow.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// 0 outside of a loop, else counted from 1.
    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    /// The output under `id`; `None` when there is none, or none yet.
    pub fn output(&self, id: &str) -> Option<&Arc<str>> {
        if id == "query" { Some(&self.query) } else { self.outputs.get(id)?.as_ref() }
    }

    /// The same, with more: the merge template's, once the branches have ended. A skipped branch has no output.
    pub fn with<I: Into<Arc<str>>>(mut self, more: impl IntoIterator<Item = (I, Option<Arc<str>>)>) -> Self {
        Arc::make_mut(&mut self.outputs).extend(more.into_iter().map(|(id, output)| (id.into(), output)));
        self
    }

    /// What a path such as `loop.last.research` leads to.
    pub(super) fn find(&self, path: &str) -> Found<'_> {
        let (first, below) = path.split_once('.').map_or((path, None), |(first, below)| (first, Some(below)));
        match (first, below) {
            ("query", None) => Found::Text(Cow::Borrowed(&self.query)),
            ("query", Some(_)) => Found::Through,
            ("loop", None) => Found::Unknown,
            ("loop", Some("iteration")) => Found::Text(Cow::Owned(self.iteration.to_string())),
            ("loop", Some(below)) => match below.split_once('.') {
                Some(("iteration", _)) => Found::Through,
                Some(("last", below)) => of(&self.last, below),
                Some(_) | None => Found::Unknown,
            },
            _ => of(&self.outputs, path),
        }
    }

    /// The same for a condition: on an outermost workflow's input it sees only what is asked now.
    pub(super) fn find_for_condition(&self, path: &str) -> Found<'_> {
        match (&self.request, path) {
            (Some(request), "query") => Found::Text(Cow::Borrowed(request)),
            _ => self.find(path),
        }
    }
}

/// True when `id` is `key`, or the output of a stage within it: `draft.write` is within `draft`.
pub fn is_or_within(id: &str, key: &str) -> bool {
    id.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn of<'a>(outputs: &'a Outputs, path: &str) -> Found<'a> {
    // Outputs within a stage go by their whole path.
    match outputs.get(path) {
        Some(Some(output)) => Found::Text(Cow::Borrowed(output)),
        Some(None) => Found::Empty,
        None if path.split_once('.').is_some_and(|(id, _)| outputs.contains_key(id)) => Found::Through,
        None => Found::Unknown,
    }
}

impl Stage {
    /// The names under which a pipeline or loop finds what this stage leaves: its own id; after a parallel those of the
    /// branches (OP-O16); after a pipeline or loop that is written in its place, `id.inner` for each stage within.
    ///
    /// Only a workflow written in the stage's place shows its stages, so the number of names is bounded by the document.
    pub fn output_ids(&self, lookup: Lookup<'_>) -> Vec<String> {
        let mut ids = self.own_ids(lookup);
        match &self.runnable {
            Target::Inline(workflow) => {
                if let Shape::Parallel { branches, .. } = &workflow.shape {
                    ids.extend(branches.iter().flat_map(|branch| branch.own_ids(lookup)));
                }
            }
            Target::Reference(id) => {
                let workflow = lookup(id);
                if let Some(Shape::Parallel { branches, .. }) = workflow.as_deref().map(|workflow| &workflow.shape) {
                    ids.extend(branches.iter().map(|branch| branch.id.clone()));
                }
            }
        }
        ids
    }

    /// The same without a parallel's branches.
    pub fn own_ids(&self, lookup: Lookup<'_>) -> Vec<String> {
        let mut ids = vec![self.id.clone()];
        if let Some(stages) = self.shows() {
            let within = stages.iter().flat_map(|stage| stage.output_ids(lookup));
            ids.extend(within.map(|id| format!("{}.{id}", self.id)));
        }
        ids
    }

    /// The stages of a pipeline or loop that is written in this stage's place: the workflow around sees their outputs.
    pub fn shows(&self) -> Option<&[Self]> {
        match &self.runnable {
            Target::Inline(workflow) => match &workflow.shape {
                Shape::Pipeline { stages, .. } | Shape::Loop { stages, .. } => Some(stages),
                Shape::Parallel { .. } | Shape::Conditional { .. } | Shape::Dynamic(_) => None,
            },
            Target::Reference(_) => None,
        }
    }
}
