//! Places in a run: a place has its part of the journal, its tags for events, and access to the run's limits.

use super::event::{QueuedDecision, QueuedEvent, RunEvent, RunEventType, Snapshot};
use super::event_buffer::EventBuffer;
use super::failure::Failure;
use super::graph::RevisedGraph;
use super::graph::progress::GraphProgress;
use super::pauses::Pauses;
use super::resolved::ResolvedDefinitions;
use super::run::RunServices;
use super::timeline::Notes;
use super::usage::UsageCounters;
use crate::journal::Journal;
use crate::model::paced::Delta;
use crate::workflow::asking::Asking;
use definitions::workflow::definition::{Shape, Workflow};
use definitions::workflow::outputs::OutputStore;
use definitions::workflow::scope::Scope;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};
use types::run_outcome::RunFailure;
use types::step::{StepRecord, TokenUsage};
use types::timestamp::Timestamp;
use uuid::Builder;

/// State that all parts of a run share.
pub(in crate::workflow) struct Run {
    pub(super) id: String,
    /// The inputs of the outermost workflow, if that is a graph.
    pub(super) params: Map<String, Value>,
    pub(in crate::workflow) resolved: ResolvedDefinitions,
    pub(super) services: RunServices,
    pub(super) journal: Journal,
    pub(super) event_buffer: EventBuffer,
    pub(in crate::workflow) counters: UsageCounters,
    pub(super) asking: Arc<Asking>,
    pub(super) pauses: Arc<Pauses>,
    /// The states of the nodes, if the outermost workflow is a graph.
    pub(in crate::workflow) progress: Arc<GraphProgress>,
    /// Default for the number of branches of one parallel workflow that run concurrently.
    pub(in crate::workflow) max_parallel: usize,
    /// Collects the stages, if the run is replayed for a timeline.
    pub(in crate::workflow) notes: Option<Arc<Notes>>,
    /// The last revision of the outermost graph.
    pub(super) revised: Mutex<Option<RevisedGraph>>,
}

/// A place in a run, such as a stage or an iteration. Cheap to clone.
#[derive(Clone)]
pub struct StageContext {
    run: Arc<Run>,
    /// Path for people, such as `outer_loop[2]/parallel/verify`.
    path: Arc<str>,
    /// The path with the attempts of stages. Prefix of journal keys and event ids.
    key: Arc<str>,
    /// Id of the workflow's or agent's own run.
    run_id: Arc<str>,
    depth: u32,
    stage_id: Option<Arc<str>>,
    branch_id: Option<Arc<str>>,
    iteration: Option<u32>,
    /// See [`StageContext::keeping_failures`].
    keeps_failures: bool,
}

/// Contents of an event, without the tags of its place.
#[derive(Debug, Default)]
pub struct EventPayload {
    /// Key of the step in the part's journal.
    pub step: Option<String>,
    /// A piece of a model's answer.
    pub delta: Option<Delta>,
    /// A whole message.
    pub snapshot: Option<Snapshot>,
    /// Further fields, such as `output`.
    pub data: Option<Map<String, Value>>,
    /// Why something has failed.
    pub error: Option<String>,
}

impl EventPayload {
    /// Contents with `data.output`.
    pub fn output(output: &str) -> Self {
        Self::data([("output", output.into())])
    }

    /// Contents with `data`.
    pub fn data<const N: usize>(fields: [(&str, Value); N]) -> Self {
        let data = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { data: Some(data), ..Self::default() }
    }

    /// Contents with `error`.
    pub fn error(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }
}

impl StageContext {
    /// The part of the outermost workflow.
    pub(super) fn root(run: Arc<Run>) -> Self {
        let (empty, run_id): (Arc<str>, _) = ("".into(), run.id.as_str().into());
        let (path, key) = (Arc::clone(&empty), empty);
        let (stage_id, branch_id, iteration) = (None, None, None);
        Self { run, path, key, run_id, depth: 0, stage_id, branch_id, iteration, keeps_failures: false }
    }

    /// The inputs with which the outermost graph was started; `None` for a graph within it, and without any.
    pub(super) fn params(&self) -> Option<&Map<String, Value>> {
        Some(&self.run.params).filter(|params| self.depth == 0 && !params.is_empty())
    }

    /// The part of a stage of the workflow that runs here.
    pub(super) fn stage(&self, id: &str) -> Self {
        Self { stage_id: Some(id.into()), path: join(&self.path, id), key: join(&self.key, id), ..self.clone() }
    }

    /// The part of a node of the dynamic workflow that runs here, in its `nth` activation, from 1.
    pub(in crate::workflow) fn node(&self, id: &str, nth: u32) -> Self {
        let place = if nth > 1 { format!("{id}[{nth}]") } else { id.to_owned() };
        Self { stage_id: Some(id.into()), ..self.stage(&place) }
    }

    /// A part at the same place whose steps have their own key prefix `id`.
    pub(in crate::workflow) fn keyed(&self, id: &str) -> Self {
        Self { key: join(&self.key, id), ..self.clone() }
    }

    /// The same part, for a stage after whose failure the run continues. The failure is recorded, so that a repeated
    /// run sees it again.
    pub(in crate::workflow) fn keeping_failures(&self) -> Self {
        Self { keeps_failures: true, ..self.clone() }
    }

    /// True if failures here must be recorded, after [`StageContext::keeping_failures`].
    pub(super) fn keeps_failures(&self) -> bool {
        self.keeps_failures
    }

    /// The part of a branch of the workflow that runs here.
    pub(in crate::workflow) fn branch(&self, id: &str) -> Self {
        Self { branch_id: Some(id.into()), path: join(&self.path, id), key: join(&self.key, id), ..self.clone() }
    }

    /// The part of an iteration of the loop `workflow_id` that runs here.
    pub(super) fn iterated(&self, workflow_id: &str, iteration: u32) -> Self {
        let nth = |path: &str| match path {
            "" => format!("{workflow_id}[{iteration}]").into(),
            path => format!("{path}[{iteration}]").into(),
        };
        Self { iteration: Some(iteration), path: nth(&self.path), key: nth(&self.key), ..self.clone() }
    }

    /// The part of an attempt of the stage, from 1.
    pub(super) fn attempt(&self, attempt: u32) -> Self {
        let key = if attempt > 1 { format!("{}~{attempt}", self.key).into() } else { Arc::clone(&self.key) };
        Self { key, ..self.clone() }
    }

    /// The part of the stage in a revision of its graph. 0 is the graph as it was when the run started.
    pub(super) fn revised(&self, revision: u32) -> Self {
        let key = if revision > 0 { format!("{}@{revision}", self.key).into() } else { Arc::clone(&self.key) };
        Self { key, ..self.clone() }
    }

    /// The part of the workflow, agent or function that the stage here runs. It has its own run id, which stays the
    /// same if the run is repeated.
    pub(in crate::workflow) fn inner(&self) -> Self {
        let digest = md5::compute(format!("{}/{}", self.run.id, self.key));
        let run_id = Builder::from_md5_bytes(digest.0).into_uuid().to_string().into();
        Self { run_id, depth: self.depth + 1, keeps_failures: false, ..self.clone() }
    }

    /// Returns the part's journal.
    pub fn journal(&self) -> Journal {
        if self.key.is_empty() { self.run.journal.clone() } else { self.run.journal.scope(&self.key) }
    }

    /// The recorded step whose key is that of this part.
    pub(super) fn own_step(&self) -> Option<Arc<StepRecord>> {
        self.run.journal.record_of(&self.key)
    }

    /// Returns the services that steps use.
    pub fn services(&self) -> &RunServices {
        &self.run.services
    }

    /// Creates the store for the outputs of the stages of `shape`, which runs here with `scope`.
    pub(super) fn outputs(&self, shape: &Shape, scope: Scope) -> OutputStore {
        OutputStore::begin(shape, scope, &|id| self.run.resolved.workflow(id))
    }

    /// Notes the last revision of the graph that runs here, if that is the outermost workflow.
    pub(super) fn note_revision(&self, revised: RevisedGraph) {
        if self.depth == 0 {
            self.run.progress.revise(revised.clone());
            *self.run.revised.lock().unwrap_or_else(PoisonError::into_inner) = Some(revised);
        }
    }

    pub(in crate::workflow) fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the path for people, such as `outer_loop[2]/parallel/verify`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the nesting depth of workflows.
    pub(in crate::workflow) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the part for the failure event of `workflow`, which runs here. The part names the failed stage or
    /// branch, unless it already names a stage or branch of the surrounding workflow.
    pub(super) fn failed_at(&self, workflow: &Workflow, failure: &RunFailure) -> Self {
        let Some(id) = failure.path_within(&self.path, &workflow.id).map(Arc::from) else { return self.clone() };
        let mut here = self.clone();
        match &workflow.shape {
            Shape::Parallel { .. } => here.branch_id.get_or_insert(id),
            Shape::Pipeline { .. }
            | Shape::Loop { .. }
            | Shape::Conditional { .. }
            | Shape::Dynamic(_)
            | Shape::Graph(_) => here.stage_id.get_or_insert(id),
        };
        here
    }

    /// Counts a model call. Fails if the run has exceeded its limit.
    pub(crate) fn count_model_call(&self) -> Result<(), Failure> {
        self.run.counters.count_model_call().map_err(|limit| Failure::fatal(self, limit))
    }

    /// Counts the tokens of a model call. Fails if the run has exceeded its limit.
    pub(crate) fn count_tokens(&self, tokens: TokenUsage) -> Result<(), Failure> {
        self.run.counters.count_tokens(tokens).map_err(|limit| Failure::fatal(self, limit))
    }

    /// Waits until this time. The turn of a run in a lane of its own may end meanwhile: its next turn waits for the rest.
    /// The caller must find the same time again when the run is repeated.
    pub(in crate::workflow) async fn wait_until(&self, at: Timestamp) {
        self.run.pauses.until(self.run.journal.clock(), at).await;
    }

    /// Queues an event of this part. It is published once all steps before it are durable.
    pub fn emit(&self, kind: RunEventType, payload: EventPayload) {
        self.run.event_buffer.push(QueuedEvent::Run(self.event(kind, payload)));
    }

    /// Queues an event of a decision of this part, masked. `id` is the last part of the message's id.
    pub(super) fn emit_decision(&self, id: &str, event: Value) {
        let event_id = [self.run.id.as_str(), &join(&self.key, id)].join("/");
        self.run.event_buffer.push(QueuedEvent::Decision(QueuedDecision { event_id, event }));
    }

    /// The id of the part in its outermost run, such as `<run>/<node>/recover[1]` for the key `recover[1]`.
    pub(super) fn id_of(&self, key: &str) -> String {
        [self.run.id.as_str(), &join(&self.key, key)].join("/")
    }

    /// Builds an event of this part without queueing it.
    pub(super) fn event(&self, kind: RunEventType, payload: EventPayload) -> RunEvent {
        let EventPayload { step, delta, snapshot, data, error } = payload;
        let root = &self.run.id;
        let mut event_id = root.clone();
        let sequence = delta.as_ref().map(|delta| format!("{}/{}", delta.stream_id, delta.seq));
        let segments = [Some(self.key.as_ref()), step.as_deref(), Some(kind.as_str()), sequence.as_deref()];
        for segment in segments.into_iter().flatten().filter(|segment| !segment.is_empty()) {
            event_id.push('/');
            event_id.push_str(segment);
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

/// Joins a path and an id.
pub(super) fn join(path: &str, id: &str) -> Arc<str> {
    if path.is_empty() { id.into() } else { format!("{path}/{id}").into() }
}
