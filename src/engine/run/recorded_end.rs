//! The end of a run as a step of its journal, so that a run with a recorded end is not executed again.

use super::ending::{completed, failed};
use super::event_publisher::EventAddress;
use super::execute::{RunContext, RunInterruption, execute_workflow};
use super::start_record::LoadedRun;
use crate::execution::Services;
use crate::journal::{Done, Durability, Journal, Label, StepError};
use crate::workflow::orchestration::event::RunEvent;
use crate::workflow::orchestration::graph::progress::GraphProgress;
use crate::workflow::orchestration::{RevisedGraph, RunEnd};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use types::run::{NodeState, RunRecord};
use types::run_outcome::{RunFailure, RunUsage};
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// Key of the step that records how the run has ended. It is durable before the last event is published.
pub(super) const END_KEY: &str = "end";

/// Output of the step that records how the run has ended.
#[derive(Serialize, Deserialize)]
pub(super) struct RecordedEnd {
    pub(super) output: Option<String>,
    pub(super) failure: Option<RunFailure>,
    pub(super) usage: RunUsage,
    pub(super) event: RunEvent,
    /// The last revision of a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revised: Option<RevisedGraph>,
    /// The nodes of a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) graph: Option<Vec<NodeState>>,
}

impl RecordedEnd {
    /// The end of a run with the states of its nodes.
    pub(super) fn new(end: RunEnd, progress: &GraphProgress) -> Self {
        let RunEnd { outcome, usage, event, revised } = end;
        let (output, failure) = match outcome {
            Ok(output) => (Some(output), None),
            Err(failure) => (None, Some(failure)),
        };
        Self { output, failure, usage, event, revised, graph: progress.nodes() }
    }

    /// The final record of the run, and its last event.
    pub(super) fn into_record(self, record: RunRecord, now: Timestamp) -> (RunRecord, RunEvent) {
        let record = self.with_graph(record);
        let Self { output, failure, usage, event, .. } = self;
        let record = match failure {
            Some(failure) => failed(record, failure, usage, now),
            None => completed(record, &output.unwrap_or_default(), usage, now),
        };
        (record, event)
    }

    /// The record with the states of a graph's nodes.
    pub(super) fn with_graph(&self, record: RunRecord) -> RunRecord {
        let Some(graph) = self.graph.clone() else { return record };
        let revision = Some(self.revised.as_ref().map_or(0, |revised| revised.number));
        RunRecord { graph: Some(graph), revision, ..record }
    }

    /// Reads it from the steps of a run with the key prefix `prefix`. Returns `None` if the run has not ended.
    pub(super) fn from_steps(steps: &[StepRecord], prefix: &str) -> Option<Self> {
        let key = if prefix.is_empty() { END_KEY.to_owned() } else { format!("{prefix}/{END_KEY}") };
        let end = steps.iter().find(|step| step.key == key)?;
        serde_json::from_value(end.output.clone()).ok()
    }
}

/// Executes the workflow as one step of `journal`.
pub(super) async fn execute_as_step(
    services: &Services,
    journal: &Journal,
    address: EventAddress,
    loaded: LoadedRun,
    context: RunContext<'_>,
) -> Result<RecordedEnd, RunInterruption> {
    let workflow_id = loaded.start_record.manifest.workflow_id.clone();
    let label = Label { kind: "run", target: &workflow_id };
    let step = journal.step(END_KEY, label, Durability::OnReturn, END_KEY, |_| async {
        let progress = Arc::clone(&context.progress);
        let end = RecordedEnd::new(execute_workflow(services, address, loaded, context).await?, &progress);
        Ok(Done { ok: end.failure.is_none(), ..Done::ok(end) })
    });
    match Box::pin(step).await {
        Ok(stepped) => Ok(stepped.output),
        Err(StepError::Journal(error)) => Err(RunInterruption::Turn(error.into())),
        Err(StepError::Operation(unended)) => Err(unended),
    }
}
