//! Timeline of a run: its stages with their inputs and outputs.
//!
//! The inputs of stages are not stored. The timeline replays the run over its recorded steps, without executing
//! anything, and notes each stage as it starts and ends.

use super::event::QueuedEvent;
use super::failure::Failure;
use super::graph::progress::GraphProgress;
use super::resolved::ResolvedDefinitions;
use super::run::{EventSink, RunServices, RunStart, SinkError, execute};
use super::stage_context::StageContext;
use super::usage::Limits;
use crate::journal::Journal;
use crate::model::Models;
use crate::model::offline::Offline;
use crate::workflow::asking::Asking;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use types::step::{StepRecord, TokenUsage};
use types::timestamp::Timestamp;

/// Beginning of the keys of a node's recoveries.
const RECOVERIES: &str = "recover[";

/// State of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageStatus {
    /// The stage has started and not ended. In a run with the status `waiting`, it waits for the user's answer. In a
    /// run that has ended, the run ended before the stage did.
    Running,
    /// The stage has an output.
    Completed,
    /// The stage has failed.
    Failed,
    /// A node of a graph that was not run: no taken edge leads to it.
    Skipped,
}

/// One attempt of a stage or branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineEntry {
    /// Place in the run, such as `outer_loop[2]/parallel/verify`.
    pub path: String,
    /// Id of the task agent, workflow or function that the stage runs. For an inline workflow the workflow's own id.
    pub runnable: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Nesting depth; 0 for a stage of the outermost workflow.
    pub depth: u32,
    /// State of the attempt.
    pub status: StageStatus,
    /// Input text, made by the stage's template.
    pub input: String,
    /// Output text, if the attempt has completed.
    pub output: Option<String>,
    /// Why the attempt has failed.
    pub error: Option<String>,
    /// Start of its first step.
    pub started_at: Option<Timestamp>,
    /// End of its last step.
    pub ended_at: Option<Timestamp>,
    /// Time from the first step's start to the last step's end, in milliseconds.
    pub ms: Option<u64>,
    /// Model that responded first.
    pub model: Option<String>,
    /// Tokens that its model calls have used.
    pub tokens: TokenUsage,
    /// Number of its model calls.
    pub model_calls: u64,
}

/// Stages noted during the replay of a run.
#[derive(Default)]
pub(in crate::workflow) struct Notes(Mutex<Vec<TimelineEntry>>);

impl Notes {
    /// Notes the start of a stage. Returns its index for [`Notes::end`].
    pub(super) fn start(&self, context: &StageContext, runnable: &str, attempt: u32, input: &str) -> usize {
        self.add_entry(context, runnable, attempt, input, &context.journal().recorded())
    }

    /// Notes the start of an attempt of a graph's node. Its recoveries are entries of their own.
    pub(super) fn start_attempt(&self, context: &StageContext, runnable: &str, attempt: u32, input: &str) -> usize {
        let recoveries = context.journal().full_key(RECOVERIES);
        let mut steps = context.journal().recorded();
        steps.retain(|step| !step.key.starts_with(&recoveries));
        self.add_entry(context, runnable, attempt, input, &steps)
    }

    /// Notes a node of a graph that is not run.
    pub(super) fn skipped(&self, context: &StageContext, runnable: &str) {
        let place = self.add_entry(context, runnable, 0, "", &[]);
        if let Some(entry) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place) {
            entry.status = StageStatus::Skipped;
        }
    }

    /// Notes a recovery or a replan of a graph at its place. `by` is the agent that decided it, with its number.
    pub(super) fn note(&self, context: &StageContext, by: (&str, u32), input: &str, ended: Result<String, String>) {
        let mut steps = context.journal().recorded();
        steps.extend(context.own_step().map(|step| step.as_ref().clone()));
        let place = self.add_entry(context, by.0, by.1, input, &steps);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get_mut(place) else { return };
        match ended {
            Ok(output) => (entry.status, entry.output) = (StageStatus::Completed, Some(output)),
            Err(error) => (entry.status, entry.error) = (StageStatus::Failed, Some(error)),
        }
    }

    /// Notes the start of a node of a dynamic workflow. Counts only the steps of this activation, not of later ones.
    pub(in crate::workflow) fn start_node(&self, context: &StageContext, runnable: &str, input: &str) -> usize {
        self.add_entry(context, runnable, 1, input, &context.journal().recorded_once())
    }

    fn add_entry(
        &self,
        context: &StageContext,
        runnable: &str,
        attempt: u32,
        input: &str,
        steps: &[StepRecord],
    ) -> usize {
        let started_at = steps.iter().map(|step| step.at.minus(Duration::from_millis(step.ms))).min();
        let ended_at = steps.iter().map(|step| step.at).max();
        let asked = || steps.iter().filter(|step| step.kind == "model");
        let tokens = asked().filter_map(|step| step.tokens).fold(TokenUsage::default(), |sum, tokens| TokenUsage {
            prompt: sum.prompt + tokens.prompt,
            completion: sum.completion + tokens.completion,
        });
        let entry = TimelineEntry {
            path: context.path().to_owned(),
            runnable: runnable.to_owned(),
            attempt,
            depth: context.depth(),
            status: StageStatus::Running,
            input: input.to_owned(),
            output: None,
            error: None,
            started_at,
            ended_at,
            ms: started_at.zip(ended_at).map(|(from, to)| millis(from.until(to))),
            model: asked().find_map(|step| step.model.clone()),
            tokens,
            model_calls: asked().count() as u64,
        };
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(entry);
        entries.len() - 1
    }

    /// Notes the end of the stage with the index `place`. A stage that ends with a journal error stays `running`,
    /// since its steps are not recorded further.
    pub(in crate::workflow) fn end(&self, place: usize, ended: Result<&Arc<str>, &Failure>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.get_mut(place) else { return };
        match ended {
            Ok(output) => {
                entry.status = StageStatus::Completed;
                entry.output = Some(output.to_string());
            }
            Err(Failure::Failed { failure, .. }) => {
                entry.status = StageStatus::Failed;
                entry.error = Some(failure.to_string());
            }
            Err(Failure::Journal(_)) => {}
        }
    }

    fn take(&self) -> Vec<TimelineEntry> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sink that drops all events: a replay for a timeline publishes nothing.
struct NullSink;

#[async_trait]
impl EventSink for NullSink {
    async fn publish(&self, _: Vec<QueuedEvent>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Returns the stages that a run has started, in the order of their start, and the states of a graph's nodes.
///
/// `journal` has the run's steps, from [`Journal::read_only`]. `input`, `request` and `params` are those with which the
/// run started.
pub(crate) async fn timeline(
    resolved: ResolvedDefinitions,
    journal: Journal,
    services: RunServices,
    input: String,
    request: String,
    params: Map<String, Value>,
) -> (Vec<TimelineEntry>, Arc<GraphProgress>) {
    let (notes, progress) = (Arc::new(Notes::default()), Arc::<GraphProgress>::default());
    // Placeholders under the names of the run's models. They are never asked, since only recorded steps are replayed.
    let models =
        resolved.models().into_iter().fold(Models::offline(), |models, name| models.with(&name, Arc::new(Offline)));
    let start = RunStart {
        run_id: journal.session_id().to_owned(),
        resolved,
        input,
        request,
        params,
        journal,
        services: RunServices { models, ..services },
        sink: Arc::new(NullSink),
        limits: Limits::UNLIMITED,
        elapsed: Duration::ZERO,
        asking: Arc::new(Asking::for_replay()),
        pauses: Arc::default(),
        progress: Arc::clone(&progress),
        notes: Some(Arc::clone(&notes)),
    };
    // The end of the run is in its record. Only the notes matter here.
    let _ = execute(start).await;
    (notes.take(), progress)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
