//! Carries out valid decisions.

use super::Round;
use super::execution::{Executed, SyncRun};
use super::judge::Accepted;
use crate::execution::{CancelReason, TurnError};
use crate::run::{NestedRun, NestedRunEnd, Subagent};
use crate::turn::interruption::Interruption;
use crate::turn::iterate::{LoopControl, LoopEnd, LoopState, note_no_progress};
use crate::turn::state::Turn;
use decisions::kind::DecisionType;
use decisions::payload::{Payload, Respond, SpawnSubagent, Thought};
use futures::FutureExt;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

impl Turn<'_> {
    /// Carries out a decision. Its `decision_validated` event is published before anything begins outside.
    pub(super) async fn carry_out(
        &mut self,
        iteration: u32,
        state: &mut LoopState,
        round: &mut Round,
        accepted: Accepted,
    ) -> Result<LoopControl, Interruption> {
        if !matches!(*accepted.payload, Payload::Continue(_)) {
            state.idle = 0;
            state.note = None;
        }
        let (kind, result) = match *accepted.payload {
            Payload::Respond(respond) => {
                self.say(iteration, state, respond).await?;
                return Ok(LoopControl::End(LoopEnd::Answered));
            }
            Payload::RequestClarification(question) => {
                self.suspend_task(iteration, state, round, question);
                return Ok(LoopControl::End(LoopEnd::Answered));
            }
            Payload::Continue(thought) => return Ok(think(state, round, thought)?),
            Payload::SpawnSubagent(spawn) => {
                self.settle().await?;
                (DecisionType::SpawnSubagent, self.spawn(iteration, spawn).boxed().await?)
            }
            Payload::ExecuteWorkflow(ref execute) => match self.execute_workflow(iteration, execute).boxed().await? {
                Executed::Result(result) => (DecisionType::ExecuteWorkflow, result),
                Executed::Started => return Ok(LoopControl::End(LoopEnd::Answered)),
            },
            Payload::CreateWorkflowPlan(_) => {
                (DecisionType::CreateWorkflowPlan, self.create_plan(iteration, &accepted).boxed().await?)
            }
            Payload::CreateNode(_) => (DecisionType::CreateNode, self.create_node(iteration, &accepted).boxed().await?),
            Payload::ModifyNode(_) => (DecisionType::ModifyNode, self.modify_node(iteration, &accepted).boxed().await?),
            Payload::ReplanWorkflow(_) => {
                (DecisionType::ReplanWorkflow, self.replan(iteration, &accepted).boxed().await?)
            }
            Payload::ErrorRecovery(_) => {
                (DecisionType::ErrorRecovery, self.recover(iteration, &accepted).boxed().await?)
            }
        };
        state.results.push(Arc::new((kind.as_str().to_owned(), result)));
        Ok(LoopControl::Continue)
    }

    /// Stores a plan with one node, runs it, and returns the result of the run.
    async fn create_node(&mut self, iteration: u32, accepted: &Accepted) -> Result<Value, TurnError> {
        let stored = self.create_plan(iteration, accepted).await?;
        if stored["ok"] != true {
            return Ok(stored);
        }
        let (id, query) = (self.plan_id(iteration), self.message_text());
        let run = SyncRun { workflow_id: &id, query: &query, params: Map::new(), from: None };
        let mut result = self.run_within_turn(iteration, run).await?;
        if let Some(fields) = result["result"].as_object_mut() {
            fields.insert("workflow_id".into(), id.into());
        }
        Ok(result)
    }

    async fn say(&mut self, iteration: u32, state: &LoopState, respond: Respond) -> Result<(), Interruption> {
        let mut metadata = Map::from_iter([
            ("intent".to_owned(), json!(respond.intent)),
            ("confidence".to_owned(), json!(respond.confidence)),
        ]);
        if let Some(followup) = respond.requires_followup {
            metadata.insert("requires_followup".into(), json!(followup));
        }
        self.respond(iteration, state, respond.response, metadata).await
    }

    /// Runs a sub-agent until it ends, and returns its result for the model.
    async fn spawn(&mut self, iteration: u32, spawn: SpawnSubagent) -> Result<Value, TurnError> {
        let Some(subagent) = self.agent.config.subagents.iter().find(|one| one.kind == spawn.subagent_type).cloned()
        else {
            let error = format!("the agent has no sub-agent `{}`", spawn.subagent_type);
            return Ok(json!({"ok": false, "error": error}));
        };
        let mut task = json!({"task": spawn.task_payload});
        if let Some(context) = spawn.context_snapshot {
            task["context"] = context.into();
        }
        let wanted = spawn.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let limit = wanted.map_or(subagent.timeout(), |wanted| wanted.min(subagent.timeout()));
        let prefix = format!("{iteration}/{}", subagent.kind);
        let (task, of_subagent) = (task.to_string(), Subagent { kind: &subagent.kind, timeout: limit });
        let begun = self.run_begins_at(&prefix);
        let nested = NestedRun {
            subagent: Some(of_subagent),
            run_started_at: begun,
            turn_started_at: begun,
            ..self.nested_run(prefix, &subagent.runnable, &task)
        };
        let end = nested.run(self.services).boxed().await?;
        self.add_action(&subagent.kind);
        Ok(match end {
            NestedRunEnd::Said(text) => {
                let result = serde_json::from_str(&text).unwrap_or(Value::String(text));
                json!({"ok": true, "result": result})
            }
            NestedRunEnd::Failed(error) => json!({"ok": false, "error": error}),
            NestedRunEnd::Waits(_) => json!({"ok": false, "error": "a sub-agent cannot ask the user"}),
        })
    }
}

/// Keeps a thought for the next question. One without progress counts towards the limit of idle decisions.
fn think(state: &mut LoopState, round: &mut Round, thought: Thought) -> Result<LoopControl, CancelReason> {
    let next = thought.next_step.map(|step| format!(" Next: {step}")).unwrap_or_default();
    round.thoughts.push(format!("{}{next}", thought.thought));
    if thought.progress.is_some_and(|progress| progress > round.progress) {
        round.progress = thought.progress.unwrap_or_default();
        state.idle = 0;
        state.note = None;
        return Ok(LoopControl::Continue);
    }
    note_no_progress(state)
}
