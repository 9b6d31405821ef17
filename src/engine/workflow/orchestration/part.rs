//! Where in a run something happens: its part of the journal, what its events are tagged with, what it may still take.

use super::event::{RunEvent, RunEventType, Snapshot};
use super::failure::Failure;
use super::outlet::Outlet;
use super::pinned::Pinned;
use super::run::RunServices;
use super::spent::Spent;
use super::timeline::Notes;
use crate::journal::Journal;
use crate::model::paced::Delta;
use crate::workflow::asking::Asking;
use definitions::workflow::definition::{Shape, Workflow};
use definitions::workflow::outputs::OutputStore;
use definitions::workflow::scope::Scope;
use serde_json::{Map, Value};
use std::sync::Arc;
use types::run_outcome::RunFailure;
use types::step::Tokens;
use uuid::Builder;

/// What all parts of a run share.
pub(in crate::workflow) struct Run {
    pub(super) id: String,
    pub(in crate::workflow) pinned: Pinned,
    pub(super) services: RunServices,
    pub(super) journal: Journal,
    pub(super) outlet: Outlet,
    pub(in crate::workflow) spent: Spent,
    pub(super) asking: Arc<Asking>,
    /// Branches of one parallel workflow that run at once, unless it says otherwise.
    pub(in crate::workflow) max_parallel: usize,
    /// When it is only looked at.
    pub(in crate::workflow) notes: Option<Arc<Notes>>,
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Part {
    run: Arc<Run>,
    /// For people, such as `outer_loop[2]/parallel/verify`.
    path: Arc<str>,
    /// The path with the attempts of stages told apart; what journal keys and event ids begin with.
    key: Arc<str>,
    /// Of the workflow or agent that runs here.
    run_id: Arc<str>,
    depth: u32,
    stage_id: Option<Arc<str>>,
    branch_id: Option<Arc<str>>,
    iteration: Option<u32>,
    keeps_failures: bool,
}

/// What an event says beside where it happens.
#[derive(Debug, Default)]
pub struct Told {
    /// The step, by its key in the part's journal.
    pub step: Option<String>,
    /// A piece of an answer.
    pub delta: Option<Delta>,
    /// A whole one.
    pub snapshot: Option<Snapshot>,
    /// `output` and the like.
    pub data: Option<Map<String, Value>>,
    /// What went wrong.
    pub error: Option<String>,
}

impl Told {
    /// With `data.output`.
    pub fn output(output: &str) -> Self {
        Self::data([("output", output.into())])
    }

    /// With `data`.
    pub fn data<const N: usize>(fields: [(&str, Value); N]) -> Self {
        let data = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { data: Some(data), ..Self::default() }
    }

    /// With `error`.
    pub fn error(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }
}

impl Part {
    pub(super) fn root(run: Arc<Run>) -> Self {
        let (empty, run_id): (Arc<str>, _) = ("".into(), run.id.as_str().into());
        let (path, key) = (Arc::clone(&empty), empty);
        let (stage_id, branch_id, iteration) = (None, None, None);
        Self { run, path, key, run_id, depth: 0, stage_id, branch_id, iteration, keeps_failures: false }
    }

    /// A stage of the workflow that runs here.
    pub(super) fn stage(&self, id: &str) -> Self {
        Self { stage_id: Some(id.into()), path: join(&self.path, id), key: join(&self.key, id), ..self.clone() }
    }

    /// A stage of the workflow that runs here, for the `nth` time, from 1.
    pub(in crate::workflow) fn node(&self, id: &str, nth: u32) -> Self {
        let place = if nth > 1 { format!("{id}[{nth}]") } else { id.to_owned() };
        Self { stage_id: Some(id.into()), ..self.stage(&place) }
    }

    /// One of several things that are done at this place: what it records has a key of its own.
    pub(in crate::workflow) fn keyed(&self, id: &str) -> Self {
        Self { key: join(&self.key, id), ..self.clone() }
    }

    /// The same where the run goes on without what fails: that it did is recorded.
    pub(in crate::workflow) fn keeping_failures(&self) -> Self {
        Self { keeps_failures: true, ..self.clone() }
    }

    /// See [`Part::keeping_failures`].
    pub(super) fn keeps_failures(&self) -> bool {
        self.keeps_failures
    }

    /// A branch of the workflow that runs here.
    pub(in crate::workflow) fn branch(&self, id: &str) -> Self {
        Self { branch_id: Some(id.into()), path: join(&self.path, id), key: join(&self.key, id), ..self.clone() }
    }

    /// An iteration of the loop `workflow_id` that runs here.
    pub(super) fn iterated(&self, workflow_id: &str, iteration: u32) -> Self {
        let nth = |path: &str| match path {
            "" => format!("{workflow_id}[{iteration}]").into(),
            path => format!("{path}[{iteration}]").into(),
        };
        Self { iteration: Some(iteration), path: nth(&self.path), key: nth(&self.key), ..self.clone() }
    }

    /// The same for the `attempt`th time, from 1.
    pub(super) fn attempt(&self, attempt: u32) -> Self {
        let key = if attempt > 1 { format!("{}~{attempt}", self.key).into() } else { Arc::clone(&self.key) };
        Self { key, ..self.clone() }
    }

    /// What the stage here runs: a run of its own, the same however often this one is repeated.
    pub(in crate::workflow) fn inner(&self) -> Self {
        let digest = md5::compute(format!("{}/{}", self.run.id, self.key));
        let run_id = Builder::from_md5_bytes(digest.0).into_uuid().to_string().into();
        Self { run_id, depth: self.depth + 1, keeps_failures: false, ..self.clone() }
    }

    /// The journal of this part.
    pub fn journal(&self) -> Journal {
        if self.key.is_empty() { self.run.journal.clone() } else { self.run.journal.scope(&self.key) }
    }

    /// What steps work with.
    pub fn services(&self) -> &RunServices {
        &self.run.services
    }

    /// What the stages of `shape`, which runs here, leave; it begins with `scope`.
    pub(super) fn outputs(&self, shape: &Shape, scope: Scope) -> OutputStore {
        OutputStore::begin(shape, scope, &|id| self.run.pinned.workflow(id))
    }

    pub(in crate::workflow) fn run(&self) -> &Run {
        &self.run
    }

    /// For people, such as `outer_loop[2]/parallel/verify`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How deep workflows are nested here.
    pub(in crate::workflow) fn depth(&self) -> u32 {
        self.depth
    }

    /// The part for the failure event of `workflow`, which runs here. It names the stage or branch that has failed, unless this part
    /// already names one of the workflow around (OP-O3).
    pub(super) fn failed_at(&self, workflow: &Workflow, failure: &RunFailure) -> Self {
        let Some(id) = failure.within(&self.path, &workflow.id).map(Arc::from) else { return self.clone() };
        let mut here = self.clone();
        match &workflow.shape {
            Shape::Parallel { .. } => here.branch_id.get_or_insert(id),
            Shape::Pipeline { .. } | Shape::Loop { .. } | Shape::Conditional { .. } | Shape::Dynamic(_) => {
                here.stage_id.get_or_insert(id)
            }
        };
        here
    }

    /// Counts a model call; an error when the run may make no more.
    pub fn model_call(&self) -> Result<(), Failure> {
        self.run.spent.model_call().map_err(|limit| Failure::fatal(self, limit))
    }

    /// Counts what a model call has used; an error when that is more than the run may use.
    pub fn tokens(&self, tokens: Tokens) -> Result<(), Failure> {
        self.run.spent.tokens(tokens).map_err(|limit| Failure::fatal(self, limit))
    }

    /// Tells an event of this part. It is published once all steps before it are durable.
    pub fn tell(&self, kind: RunEventType, told: Told) {
        self.run.outlet.tell(self.event(kind, told));
    }

    /// An event of this part, not told.
    pub(super) fn event(&self, kind: RunEventType, told: Told) -> RunEvent {
        let Told { step, delta, snapshot, data, error } = told;
        let root = &self.run.id;
        let mut event_id = root.clone();
        let sequence = delta.as_ref().map(|delta| format!("{}/{}", delta.stream_id, delta.seq));
        let parts = [Some(self.key.as_ref()), step.as_deref(), Some(kind.as_str()), sequence.as_deref()];
        for part in parts.into_iter().flatten().filter(|part| !part.is_empty()) {
            event_id.push('/');
            event_id.push_str(part);
        }
        RunEvent {
            kind,
            run_id: self.run_id.to_string(),
            root_run_id: root.clone(),
            event_id,
            step_id: step.map(|step| format!("{root}/{}", join(&self.key, &step))),
            stage_id: self.stage_id.as_deref().map(Into::into),
            branch_id: self.branch_id.as_deref().map(Into::into),
            iteration: self.iteration,
            depth: self.depth,
            path: self.path.to_string(),
            delta,
            snapshot,
            data,
            error,
        }
    }
}

/// The path of what is within `path`.
pub(super) fn join(path: &str, id: &str) -> Arc<str> {
    if path.is_empty() { id.into() } else { format!("{path}/{id}").into() }
}
