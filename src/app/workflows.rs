//! Registers workflows, starts runs and waits for their end.

use super::answer::{read_interval, until_reachable};
use super::{Applied, Engine, EngineError};
use commands::error::CommandError;
use commands::run_answers::{AnsweredRun, NewAnswer};
use commands::runs::{NewRun, StartedRun};
use definitions::workflow::definition::WorkflowRecord;
use engine::run;
use futures::StreamExt;
use std::sync::{Arc, PoisonError};
use storage::queue::{From, QueueError};
use tokio::time::timeout;
use types::event::{Event, EventType};
use types::run::{RunQuery, RunRecord, RunStatus};

impl Engine {
    /// Checks a workflow and stores it. Every run that starts afterwards, on any process, uses it.
    pub async fn register(&self, workflow: WorkflowRecord) -> Result<Applied, EngineError> {
        let applied = self.register_all(vec![workflow]).await?.pop();
        Ok(applied.unwrap_or(Applied { changed: false, warnings: Vec::new() }))
    }

    /// Checks workflows, which may refer to each other, and stores them.
    pub(super) async fn register_all(&self, workflows: Vec<WorkflowRecord>) -> Result<Vec<Applied>, EngineError> {
        let known = run::runnables(self.store.as_ref(), self.flows.ids()).await?;
        let known = known.with_names(&self.known());
        let known = known.with_workflows(workflows.iter().map(|record| Arc::clone(&record.workflow)));
        let mut applied = Vec::new();
        for workflow in workflows {
            // In a workflow built in code, a reference to an unknown output is no error: the placeholder stays in the
            // input.
            let from_file = workflow.source.is_some();
            let (workflow, warnings) = if from_file { known.check(workflow)? } else { known.check_built(workflow)? };
            let id = workflow.id().to_owned();
            let changed = self.store.put_workflow(workflow).await?;
            self.registered.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
            applied.push(Applied { changed, warnings });
        }
        Ok(applied)
    }

    /// Registers the valid files of `workflows_dir` whose workflows are not stored yet. Logs the others with their
    /// errors.
    pub async fn register_folder(&self) {
        let (store, flows, known) = (self.store.as_ref(), self.flows.ids(), self.known());
        run::register_folder(&self.settings, store, flows, &known, run::Registered::Stays).await;
    }

    /// Starts a run with its own lane. The run is durable on return; a worker of any process executes it.
    pub async fn start_run(&self, new: NewRun) -> Result<StartedRun, EngineError> {
        Ok(commands::runs::start_run(self.queue.as_ref(), self.store.as_ref(), new).await?)
    }

    /// Starts a run of a workflow with `query` as its input. [`Engine::start_run`] takes more options, and
    /// [`Engine::run_ended`] waits for the end.
    pub async fn run_workflow(
        &self,
        workflow_id: impl Into<String>,
        query: impl Into<String>,
    ) -> Result<StartedRun, EngineError> {
        self.start_run(NewRun::new(workflow_id, query)).await
    }

    /// Reads a run from the store; `None` if it does not exist.
    pub async fn run(&self, run_id: &str) -> Result<Option<RunRecord>, EngineError> {
        Ok(self.store.run(run_id).await?)
    }

    /// The output of the workflow's run that completed last, cut as in the run's record; `None` if no run has
    /// completed.
    pub async fn last_output(&self, workflow_id: &str) -> Result<Option<String>, EngineError> {
        let (workflow_id, status) = (Some(workflow_id.to_owned()), Some(RunStatus::Completed));
        let query = RunQuery { workflow_id, status, by_end: true, limit: 1, ..RunQuery::default() };
        Ok(self.store.runs(query).await?.pop().and_then(|run| run.output))
    }

    /// Waits for the end of a run, which may have ended already. Fails with [`EngineError::Running`] after
    /// [`EngineBuilder::patience`](super::EngineBuilder::patience).
    pub async fn run_ended(&self, run_id: &str) -> Result<RunRecord, EngineError> {
        let run = self.store.run(run_id).await?.ok_or_else(|| CommandError::unknown_run(run_id))?;
        let stream = run.origin_session.as_deref().unwrap_or(run_id);
        let mut events = self.queue.events(stream, From::Now).await?;
        let overdue = |_| EngineError::Running { run_id: run_id.to_owned(), limit: self.patience };
        let mut reads = read_interval();
        let ended = async {
            loop {
                let run = until_reachable(|| async { Ok(self.store.run(run_id).await?) }).await?;
                if let Some(run) = run.filter(|run| run.status.has_ended()) {
                    return Ok(run);
                }
                // The run's record is durable before its last event is published. A full stream may drop that event.
                loop {
                    let event = tokio::select! {
                        event = events.next() => event,
                        _ = reads.tick() => break,
                    };
                    let gone = || QueueError::unavailable("the stream of events ended");
                    let event = event.ok_or_else(gone)??;
                    if event.event_type == EventType::Run && is_last(&event.payload, run_id) {
                        break;
                    }
                }
            }
        };
        timeout(self.patience, ended).await.map_err(overdue)?
    }

    /// Cancels a run. For a run within a session's turn it cancels that turn.
    pub async fn cancel_run(&self, run_id: &str) -> Result<StartedRun, EngineError> {
        Ok(commands::runs::cancel_run(self.queue.as_ref(), self.store.as_ref(), run_id, None, None).await?)
    }

    /// Puts an answer on the lane of a run: to the question that was asked first, or to that of a node. The answer is durable
    /// on return; a worker of any process continues the run with it. Returns the question.
    pub async fn answer_run(&self, run_id: &str, answer: NewAnswer) -> Result<AnsweredRun, EngineError> {
        let (queue, store) = (self.queue.as_ref(), self.store.as_ref());
        Ok(commands::run_answers::answer_run(queue, store, run_id, answer).await?)
    }

    /// Repeats a run from a stage, or from a node of a graph, as a new run. Stages before it keep their output.
    pub async fn restart_run(&self, run_id: &str, from: impl Into<String>) -> Result<StartedRun, EngineError> {
        let (queue, store) = (self.queue.as_ref(), self.store.as_ref());
        Ok(commands::runs::rerun_from(queue, store, run_id, from.into()).await?)
    }

    /// Continues a failed or cancelled run: recorded stages keep their output, failed stages run again.
    pub async fn resume_run(&self, run_id: &str) -> Result<StartedRun, EngineError> {
        Ok(commands::runs::resume_run(self.queue.as_ref(), self.store.as_ref(), run_id).await?)
    }
}

fn is_last(payload: &[u8], run_id: &str) -> bool {
    match Event::decode(EventType::Run, payload) {
        Ok(Event::Run(event)) => {
            event["run_id"] == run_id && matches!(event["type"].as_str(), Some("run_completed" | "run_failed"))
        }
        _ => false,
    }
}
