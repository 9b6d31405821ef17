//! Carries out valid decisions.

use super::Round;
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
        payload: Payload,
    ) -> Result<LoopControl, Interruption> {
        if !matches!(payload, Payload::Continue(_)) {
            state.idle = 0;
            state.note = None;
        }
        match payload {
            Payload::Respond(respond) => {
                self.say(iteration, state, respond).await?;
                Ok(LoopControl::End(LoopEnd::Answered))
            }
            Payload::RequestClarification(question) => {
                self.suspend_task(iteration, state, round, question);
                Ok(LoopControl::End(LoopEnd::Answered))
            }
            Payload::Continue(thought) => Ok(think(state, round, thought)?),
            Payload::SpawnSubagent(spawn) => {
                self.settle().await?;
                let result = self.spawn(iteration, spawn).boxed().await?;
                state.results.push(Arc::new((DecisionType::SpawnSubagent.as_str().to_owned(), result)));
                Ok(LoopControl::Continue)
            }
            Payload::ErrorRecovery(_)
            | Payload::ReplanWorkflow(_)
            | Payload::ExecuteWorkflow(_)
            | Payload::CreateWorkflowPlan(_)
            | Payload::ModifyNode(_)
            | Payload::CreateNode(_) => {
                Err(TurnError::Failed("a decision that no turn carries out was not rejected".into()).into())
            }
        }
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
        let nested = NestedRun { subagent: Some(of_subagent), ..self.nested_run(prefix, &subagent.runnable, &task) };
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
