//! What has happened in a run, stage by stage. Inputs are not stored: the run is repeated over its recorded steps, without
//! doing anything, and each stage is noted as it comes.

use super::event::RunEvent;
use super::failure::Failure;
use super::part::Part;
use super::pinned::Pinned;
use super::run::{EventSink, RunServices, RunStart, execute};
use super::spent::Limits;
use crate::journal::Journal;
use crate::model::Models;
use crate::model::offline::Offline;
use crate::workflow::asking::Asking;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use types::step::{StepRecord, Tokens};
use types::timestamp::Timestamp;
use utoipa::ToSchema;

/// How far a stage has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageStatus {
    /// Begun.
    Running,
    /// It has an output.
    Completed,
    /// It has an error.
    Failed,
}

/// One attempt of a stage or branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TimelineEntry {
    /// Such as `outer_loop[2]/parallel/verify`.
    pub path: String,
    /// The task agent, workflow or function; of a workflow written in its place its id.
    pub runnable: String,
    /// From 1.
    pub attempt: u32,
    /// How deep it is nested; 0 for a stage of the run itself.
    pub depth: u32,
    /// How far it has come.
    pub status: StageStatus,
    /// What its template made.
    pub input: String,
    /// What came out.
    pub output: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// When its first step began.
    pub started_at: Option<Timestamp>,
    /// When its last step was done.
    pub ended_at: Option<Timestamp>,
    /// Between them, in milliseconds.
    pub ms: Option<u64>,
    /// The model that answered.
    pub model: Option<String>,
    /// What its model calls used.
    pub tokens: Tokens,
    /// Model calls that it made.
    pub model_calls: u64,
}

/// What is noted of a run that is looked at.
#[derive(Default)]
pub(in crate::workflow) struct Notes(Mutex<Vec<TimelineEntry>>);

impl Notes {
    /// A stage begins; answers its place.
    pub(super) fn begin(&self, part: &Part, runnable: &str, attempt: u32, input: &str) -> usize {
        self.begin_over(part, runnable, (attempt, input), &part.journal().recorded())
    }

    /// A node of a dynamic workflow begins: what comes again is another place.
    pub(in crate::workflow) fn begin_node(&self, part: &Part, runnable: &str, input: &str) -> usize {
        self.begin_over(part, runnable, (1, input), &part.journal().recorded_once())
    }

    fn begin_over(&self, part: &Part, runnable: &str, (attempt, input): (u32, &str), steps: &[StepRecord]) -> usize {
        let started_at = steps.iter().map(|step| step.at.minus(Duration::from_millis(step.ms))).min();
        let ended_at = steps.iter().map(|step| step.at).max();
        let asked = || steps.iter().filter(|step| step.kind == "model");
        let tokens = asked().filter_map(|step| step.tokens).fold(Tokens::default(), |sum, tokens| Tokens {
            prompt: sum.prompt + tokens.prompt,
            completion: sum.completion + tokens.completion,
        });
        let entry = TimelineEntry {
            path: part.path().to_owned(),
            runnable: runnable.to_owned(),
            attempt,
            depth: part.depth(),
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

    /// The stage at `place` has ended, or is as far as it has come.
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

/// Nobody hears of a run that is looked at.
struct Nowhere;

#[async_trait]
impl EventSink for Nowhere {
    async fn publish(&self, _: Vec<RunEvent>) -> Result<(), String> {
        Ok(())
    }
}

/// The stages of a run as far as they have been begun, in the order of their beginning; `journal` is the run's, looked at
/// ([`Journal::looked_at`]), `input` and `request` are what it began with.
pub async fn timeline(
    pinned: Pinned,
    journal: Journal,
    services: RunServices,
    (input, request): (String, String),
) -> Vec<TimelineEntry> {
    let notes = Arc::new(Notes::default());
    // None of them is asked: a step that is not recorded does not run.
    let models =
        pinned.models().into_iter().fold(Models::offline(), |models, name| models.with(&name, Arc::new(Offline)));
    let start = RunStart {
        run_id: journal.session_id().to_owned(),
        pinned,
        input,
        request,
        journal,
        services: RunServices { models, ..services },
        sink: Arc::new(Nowhere),
        limits: Limits::NONE,
        elapsed: Duration::ZERO,
        asking: Arc::new(Asking::onlooker()),
        notes: Some(Arc::clone(&notes)),
    };
    // How it ends is known; what it did on the way is noted.
    let _ = execute(start).await;
    notes.take()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
