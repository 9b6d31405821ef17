//! Executing an action as a step of the journal.

use super::TurnError;
use super::state::Turn;
use crate::action::system::Operation;
use crate::action::{Action, ActionKind, ActionResult, flow, skill, tool};
use crate::clock;
use crate::journal::{Done, Label, StepError, Stepped};
use crate::model::ModelError;
use crate::run::Inline;
use crate::workflow::{FlowContext, FlowError, Flows};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tracing::warn;

impl Turn<'_> {
    /// Runs a SKILL or TOOL once and answers its result as the model reads it.
    pub(super) async fn act(&mut self, iteration: u32, action: &Action) -> Result<Value, TurnError> {
        let kind = if action.kind == ActionKind::Skill { "skill" } else { "tool" };
        let (services, agent) = (self.services, Arc::clone(&self.agent));
        let key = format!("{iteration}/act");
        let label = Label { kind, target: &action.target };
        let journal = self.journal.clone();
        let step = journal.step(&key, label, action, |idempotency_key| async move {
            let result = if action.kind == ActionKind::Skill {
                skill::run(&services.http, &services.tools, &agent.config, action, &idempotency_key).await
            } else {
                tool::run(&services.http, &services.tools, &agent.config, action, &idempotency_key).await
            }
            .bounded();
            let (ok, attempts) = (result.ok, Some(result.attempts));
            Ok::<_, Infallible>(Done { ok, attempts, ..Done::ok(result) })
        });
        let stepped: Stepped<ActionResult> = match self.beside(Box::pin(step)).await? {
            Ok(stepped) => stepped,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(never)) => match never {},
        };
        self.step_finished(kind, &action.target, &stepped);
        Ok(json!(stepped.output))
    }

    /// Applies a silent operation to the session; `handoff` is none of them.
    pub(super) fn system(&mut self, iteration: u32, operation: Operation, action: &Action) {
        let done = match operation {
            Operation::CloseConversation => {
                self.session.closed_at = Some(clock::now());
                Ok(())
            }
            Operation::UpdateProfile => self.update_profile(&action.params),
            Operation::Handoff => Ok(()),
        };
        let output = match done {
            Ok(()) => Value::Null,
            Err(problem) => {
                warn!(session_id = %self.session.session_id, turn_id = self.turn_id(), "{}: {problem}", action.target);
                json!({ "ok": false, "error": problem })
            }
        };
        let label = Label { kind: "system", target: &action.target };
        self.journal.note(&format!("{iteration}/act"), label, action, output);
    }

    /// Runs a flow to its final text; an inner error is for the model to read.
    pub(super) async fn flow(&mut self, iteration: u32, action: &Action) -> Result<Result<String, String>, TurnError> {
        self.settle().await?;
        let runnable = match flow::find(&self.services.flows, &self.agent.config, action) {
            Ok(Some(runnable)) => runnable,
            Ok(None) => return self.workflow(iteration, action).await,
            Err(problem) => return Ok(Err(problem)),
        };
        if let Err(problem) = Flows::check(runnable.as_ref(), &action.params) {
            return Ok(Err(format!("flow `{}`: {problem}", action.target)));
        }
        let model = match self.models.chain(&self.agent.config.model) {
            Ok(model) => model,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let prefix = format!("{iteration}/{}", action.target);
        let context = FlowContext {
            input: flow::input(action, &self.message_text()),
            params: action.params.clone(),
            session_id: self.session.session_id.clone(),
            agent: Arc::clone(&self.agent),
            model,
            journal: self.journal.scope(&prefix),
            listener: Arc::new(self.voice(&prefix).await?),
        };
        let begun = Instant::now();
        let outcome = runnable.run(context).await;
        self.flow_finished(iteration, action, (begun, outcome.is_ok()));
        match outcome {
            Ok(text) => Ok(Ok(text)),
            Err(FlowError::Journal(error)) => Err(error.into()),
            Err(FlowError::Model(error @ ModelError::Unknown(_))) => Ok(Err(error.to_string())),
            Err(FlowError::Model(error)) => Ok(Err(format!("flow `{}`: {error}", action.target))),
            Err(FlowError::Failed(problem)) => Ok(Err(format!("flow `{}`: {problem}", action.target))),
        }
    }

    /// Runs a workflow within the turn.
    async fn workflow(&mut self, iteration: u32, action: &Action) -> Result<Result<String, String>, TurnError> {
        let query = flow::input(action, &self.message_text());
        let prefix = format!("{iteration}/{}", action.target);
        let speech = self.speaking(&prefix).await?;
        let inline = Inline {
            session_id: &self.session.session_id,
            turn_id: self.turn_id(),
            channel: &self.session.channel,
            epoch: self.session.epoch,
            resumed: self.resumed,
            guard: &self.guard,
            models: self.models.clone(),
            journal: self.journal.clone(),
            speech,
            prefix,
            workflow_id: &action.target,
            query: &query,
            begun_at: self.started_at(),
        };
        let begun = Instant::now();
        let outcome = Box::pin(inline.run(self.services)).await?;
        self.flow_finished(iteration, action, (begun, outcome.is_ok()));
        Ok(outcome)
    }

    fn flow_finished(&mut self, iteration: u32, action: &Action, (begun, ok): (Instant, bool)) {
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (key, target) = (format!("{iteration}/flow"), action.target.clone());
        self.step_finished("flow", &action.target, &Stepped { output: (), ok, ms, key, target });
    }
}
