//! The scope of templates and conditions: the values that they see at one place of a workflow.
//!
//! An inline pipeline or loop sees its own input and the outputs that it inherits by name. A parallel or conditional
//! workflow sees a snapshot of the enclosing scope, with its own input as `{query}`. A scope is cheap to clone: its
//! values are shared until they change.

use super::definition::{Shape, StageDefinition, Target, Workflow};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Outputs by id; `None` for a known stage that has no output.
pub type Outputs = HashMap<Arc<str>, Option<Arc<str>>>;

/// Names that no stage can have, because every template defines them.
pub(crate) const RESERVED: [&str; 2] = ["query", "loop"];

/// Looks up a workflow by id. Returns `None` for agents and functions.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<Arc<Workflow>>;

/// The values that are visible at one place of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    query: Arc<str>,
    request: Option<Arc<str>>,
    pub(super) outputs: Arc<Outputs>,
    pub(super) iteration: u32,
    pub(super) last: Arc<Outputs>,
}

/// The result of looking up a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// A stage that was skipped or has not run yet.
    Empty,
    /// No such name.
    Unknown,
    /// A path below a text, which has no fields.
    Through,
}

impl Scope {
    /// The scope of an outermost workflow. `request` is the part of the input that conditions see as `{query}`.
    pub fn root(query: impl Into<Arc<str>>, request: Option<Arc<str>>) -> Self {
        Self { query: query.into(), request, outputs: Arc::default(), iteration: 0, last: Arc::default() }
    }

    /// The scope of the workflow that a stage runs with `query` as its input. `self` is the scope of the stage.
    pub fn enter(&self, shape: &Shape, query: impl Into<Arc<str>>) -> Self {
        let inherited = match shape {
            Shape::Parallel { .. } | Shape::Conditional { .. } => {
                return Self { query: query.into(), request: None, ..self.clone() };
            }
            Shape::Dynamic(_) | Shape::Graph(_) => return Self::root(query, None),
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

    /// Number of the current iteration from 1; 0 outside of a loop.
    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    /// The output with this id; `None` if the stage is unknown or has no output yet.
    pub fn output(&self, id: &str) -> Option<&Arc<str>> {
        if id == "query" { Some(&self.query) } else { self.outputs.get(id)?.as_ref() }
    }

    /// Adds outputs, for example those of branches for the merge template. A skipped branch has no output.
    pub fn with<I: Into<Arc<str>>>(mut self, more: impl IntoIterator<Item = (I, Option<Arc<str>>)>) -> Self {
        Arc::make_mut(&mut self.outputs).extend(more.into_iter().map(|(id, output)| (id.into(), output)));
        self
    }

    /// Looks up a path such as `loop.last.research`.
    pub(super) fn find(&self, path: &str) -> Found<'_> {
        let (first, below) = path.split_once('.').map_or((path, None), |(first, below)| (first, Some(below)));
        match (first, below) {
            ("query", None) => Found::Text(Cow::Borrowed(&self.query)),
            ("query", Some(_)) => Found::Through,
            ("loop", None) => Found::Unknown,
            ("loop", Some("iteration")) => Found::Text(Cow::Owned(self.iteration.to_string())),
            ("loop", Some(below)) => match below.split_once('.') {
                Some(("iteration", _)) => Found::Through,
                Some(("last", below)) => find_output(&self.last, below),
                Some(_) | None => Found::Unknown,
            },
            _ => find_output(&self.outputs, path),
        }
    }

    /// Looks up a path for a condition. In an outermost workflow, `query` is the current request without earlier
    /// messages.
    pub(super) fn find_for_condition(&self, path: &str) -> Found<'_> {
        match (&self.request, path) {
            (Some(request), "query") => Found::Text(Cow::Borrowed(request)),
            _ => self.find(path),
        }
    }
}

/// True if `id` is `key` or an output within it. For example, `draft.write` is within `draft`.
pub fn is_or_within(id: &str, key: &str) -> bool {
    id.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn find_output<'a>(outputs: &'a Outputs, path: &str) -> Found<'a> {
    // Outputs of inner stages are stored under their whole path.
    match outputs.get(path) {
        Some(Some(output)) => Found::Text(Cow::Borrowed(output)),
        Some(None) => Found::Empty,
        None if path.split_once('.').is_some_and(|(id, _)| outputs.contains_key(id)) => Found::Through,
        None => Found::Unknown,
    }
}

impl StageDefinition {
    /// The names under which a pipeline or loop finds the outputs of this stage: its own id; for a parallel workflow
    /// also the ids of the branches; for an inline pipeline or loop also `id.inner` for each inner stage.
    ///
    /// Only inline workflows expose their stages, so the size of the document limits the number of names.
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

    /// The names without those of a parallel workflow's branches.
    pub fn own_ids(&self, lookup: Lookup<'_>) -> Vec<String> {
        let mut ids = vec![self.id.clone()];
        if let Some(stages) = self.shows() {
            let within = stages.iter().flat_map(|stage| stage.output_ids(lookup));
            ids.extend(within.map(|id| format!("{}.{id}", self.id)));
        }
        ids
    }

    /// The stages of an inline pipeline or loop, whose outputs the enclosing workflow sees.
    pub fn shows(&self) -> Option<&[Self]> {
        match &self.runnable {
            Target::Inline(workflow) => match &workflow.shape {
                Shape::Pipeline { stages, .. } | Shape::Loop { stages, .. } => Some(stages),
                Shape::Parallel { .. } | Shape::Conditional { .. } | Shape::Dynamic(_) | Shape::Graph(_) => None,
            },
            Target::Reference(_) => None,
        }
    }
}
