//! Decisions that run a workflow: within the turn, or in a lane of its own with a receipt for the user.

use crate::execution::{TurnError, stored};
use crate::journal::{Done, Durability, Label, StepError};
use crate::run::{BEGIN_KEY, NestedRun, NestedRunEnd, plan_state};
use crate::turn::state::Turn;
use decisions::payload::{Execute, Mode};
use definitions::workflow::definition::WorkflowRecord;
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;
use storage::queue::Publish;
use types::event::ReplyKind;
use types::job::{Job, JobBody};
use types::run::{RunRecord, RunStatus};
use types::run_outcome::RunFailure;
use types::session::Status;
use types::timestamp::Timestamp;

/// The longest run for which a conversation waits.
const LONGEST_SYNC: Duration = Duration::from_secs(300);

/// Output of the step that starts a run in a lane of its own.
#[derive(Serialize, Deserialize)]
struct Started {
    run_id: String,
    /// The name of the workflow for people.
    name: String,
    /// Why it has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A run to execute within the turn.
pub(super) struct SyncRun<'r> {
    pub(super) workflow_id: &'r str,
    pub(super) query: &'r str,
    pub(super) params: Map<String, Value>,
    /// The run that it repeats, with the node from which it does so.
    pub(super) from: Option<(&'r str, &'r str)>,
}

/// How a run that a decision asked for has ended.
pub(super) enum Executed {
    /// The result for the model.
    Result(Value),
    /// The run continues in a lane of its own, and the user has a receipt.
    Started,
}

impl Turn<'_> {
    /// Runs a workflow as an `execute_workflow` decision asks.
    pub(super) async fn execute_workflow(&mut self, iteration: u32, execute: &Execute) -> Result<Executed, TurnError> {
        self.settle().await?;
        let message = self.message_text();
        let query = query_of(&execute.input_params).unwrap_or(&message);
        if execute.execution_mode == Mode::Async {
            return self.start_run(iteration, execute, query).await;
        }
        let Execute { workflow_id, input_params, .. } = execute;
        let run = SyncRun { workflow_id, query, params: input_params.clone(), from: None };
        self.run_within_turn(iteration, run).boxed().await.map(Executed::Result)
    }

    /// Runs a workflow until it ends, and returns its result for the model. Its events must be published before.
    pub(super) async fn run_within_turn(&mut self, iteration: u32, run: SyncRun<'_>) -> Result<Value, TurnError> {
        let SyncRun { workflow_id, query, params, from } = run;
        let prefix = format!("{iteration}/{workflow_id}");
        let begun = self.run_begins_at(&prefix);
        let nested = NestedRun {
            params: Some(params).filter(|params| !params.is_empty()),
            from,
            longest: Some(LONGEST_SYNC),
            run_started_at: begun,
            turn_started_at: begun,
            ..self.nested_run(prefix, workflow_id, query)
        };
        let run_id = nested.run_id();
        let end = nested.run(self.services).boxed().await?;
        self.add_action(workflow_id);
        self.make_current(workflow_id).await?;
        Ok(match end {
            NestedRunEnd::Said(text) => {
                json!({"ok": true, "result": {"run_id": run_id, "status": "completed", "output": output_of(text)}})
            }
            NestedRunEnd::Failed(error) => self.failure(workflow_id, &run_id, error).await?,
            NestedRunEnd::Waits(_) => {
                json!({"ok": false, "error": "a workflow that a decision runs cannot ask the user"})
            }
        })
    }

    /// When the run with this prefix begins or has begun. The time before it, such as that of an earlier run in this turn,
    /// does not count against its limit.
    pub(super) fn run_begins_at(&self, prefix: &str) -> Timestamp {
        let begin = self.journal.scope(prefix).record_of(BEGIN_KEY);
        begin.map_or_else(|| self.services.clock.now(), |begin| begin.at)
    }

    /// The result of a failed run. `error` counts if the run has no record, because it could not start.
    async fn failure(&self, workflow_id: &str, run_id: &str, error: String) -> Result<Value, TurnError> {
        let run = self.services.store.run(run_id).await?;
        let Some(failure) = run.and_then(|run| run.error) else { return Ok(json!({"ok": false, "error": error})) };
        let mut result = json!({"ok": false, "error": failure.to_string()});
        if let Some(node) = failure.path_within("", workflow_id) {
            result["failed_node_id"] = node.into();
        }
        result["result"] = json!({"run_id": run_id, "status": "failed"});
        Ok(result)
    }

    /// Makes a plan of the session its current workflow. A registered workflow is none.
    async fn make_current(&mut self, workflow_id: &str) -> Result<(), TurnError> {
        if self.session.current_workflow.as_deref() == Some(workflow_id) {
            return Ok(());
        }
        let found = self.services.store.workflow(workflow_id).await?;
        if found.is_some_and(|workflow| workflow.owner_session.is_some()) {
            self.session.current_workflow = Some(workflow_id.to_owned());
        }
        Ok(())
    }

    /// Starts a run in a lane of its own, and replies with a receipt.
    async fn start_run(&mut self, iteration: u32, execute: &Execute, query: &str) -> Result<Executed, TurnError> {
        let record = self.new_run(iteration, execute, query);
        let (key, journal) = (format!("{iteration}/start"), self.journal.clone());
        let label = Label { kind: "run", target: &execute.workflow_id };
        let step = journal.step(&key, label, Durability::OnReturn, execute, |_| async {
            let started = self.publish_run(record).await?;
            Ok::<_, TurnError>(Done { ok: started.error.is_none(), ..Done::ok(started) })
        });
        let Started { run_id, name, error } = match Box::pin(step).await {
            Ok(stepped) => stepped.output,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(error)) => return Err(error),
        };
        self.add_action(&execute.workflow_id);
        self.make_current(&execute.workflow_id).await?;
        if let Some(error) = error {
            return Ok(Executed::Result(json!({"ok": false, "error": error})));
        }
        let text = self.receipt(&name, execute.notify_on_completion);
        let of_run = [("run_id", run_id), ("workflow_id", execute.workflow_id.clone())];
        let metadata = of_run.map(|(name, id)| (name.to_owned(), Value::from(id))).into_iter().collect();
        self.transition(Status::Typing);
        self.reply_with(ReplyKind::Response, &format!("{iteration}/respond"), &text, metadata);
        Ok(Executed::Started)
    }

    fn receipt(&self, name: &str, notify: bool) -> String {
        let values = json!({"chinese": self.speaks_chinese(), "name": name, "notify": notify});
        let text = self.services.prompts.render("receipt", &values);
        text.map_or_else(|_| "已经开始处理。".to_owned(), |text| text.trim().to_owned())
    }

    fn new_run(&self, iteration: u32, execute: &Execute, query: &str) -> RunRecord {
        let Execute { workflow_id, input_params, notify_on_completion, .. } = execute;
        let run_id = self.nested_run(format!("{iteration}/{workflow_id}"), workflow_id, "").run_id();
        RunRecord {
            query: query.to_owned(),
            params: Some(input_params.clone()).filter(|params| !params.is_empty()),
            notify: Some(*notify_on_completion),
            origin_session: Some(self.session.session_id.clone()),
            user_id: Some(self.session.user_id.clone()).filter(|user_id| !user_id.is_empty()),
            channel: self.session.channel.clone(),
            ..RunRecord::pending(&run_id, &run_id, workflow_id, self.services.clock.now())
        }
    }

    /// Stores the record of a run, sets its plan to `RUNNING`, and publishes its job. Each part may be repeated.
    async fn publish_run(&self, mut record: RunRecord) -> Result<Started, TurnError> {
        let services = self.services;
        let (run_id, id) = (record.run_id.clone(), record.workflow_id.clone());
        let Some(workflow) = stored::workflow(services.store.as_ref(), &id).await? else {
            let error = Some(format!("the workflow `{id}` no longer exists"));
            return Ok(Started { run_id, name: id, error });
        };
        let name = name_of(&workflow);
        if workflow.graph().is_none() {
            record.params = None;
        }
        // The record is stored before anything else, so that the end of the run can always be found.
        services.store.put_run(record.clone()).await?;
        if workflow.owner_session.is_some() && !plan_state::begin(services, &id, &run_id).await? {
            let cause = plan_state::busy(&id);
            let error = Some(RunFailure { path: String::new(), cause: cause.clone(), attempts: 1 });
            let ended_at = Some(services.clock.now());
            let failed = RunRecord { status: RunStatus::Failed, error, ended_at, ..record };
            services.store.update_run(failed, 0).await?;
            return Ok(Started { run_id, name, error: Some(cause) });
        }
        let body = JobBody::Run {
            workflow_id: id,
            query: record.query,
            origin_session: record.origin_session,
            user_id: record.user_id,
            channel: Some(record.channel),
            from_run: None,
            from_stage: None,
        };
        let job = Job { session_id: run_id.clone(), job_id: run_id.clone(), body };
        let msg_id = Some(format!("{run_id}:{run_id}"));
        let publish = Publish { session_id: run_id.clone(), msg_id, payload: job.encode() };
        services.queue.publish(publish).await?;
        Ok(Started { run_id, name, error: None })
    }
}

/// The name of a workflow for people.
fn name_of(workflow: &WorkflowRecord) -> String {
    let name = workflow.graph().map(|graph| graph.name.as_str()).filter(|name| !name.is_empty());
    name.unwrap_or(workflow.id()).to_owned()
}

/// The input `query`, which is the task for a workflow that is no graph.
fn query_of(params: &Map<String, Value>) -> Option<&str> {
    params.get("query").and_then(Value::as_str).filter(|query| !query.trim().is_empty())
}

/// The output of a run: JSON if it is an object or a list, else the text.
fn output_of(text: String) -> Value {
    match text.trim_start().starts_with(['{', '[']) {
        true => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        false => Value::String(text),
    }
}
