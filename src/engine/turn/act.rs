//! Execution of the decision's action, as steps of the turn's journal.

use super::pending_flow::{FlowCall, FlowEnd};
use super::state::{StepName, Turn, run_beside};
use crate::action::outcome::{self, CallLabels};
use crate::action::system::Operation;
use crate::action::would_call::WouldCall;
use crate::action::{ActionResult, skill, tool};
use crate::execution::TurnError;
use crate::journal::{Done, Durability, Label, StepError, Stepped};
use crate::model::ModelError;
use crate::run::{NestedRun, NestedRunEnd, SuspendedRun};
use crate::turn::flow;
use crate::workflow::asking::Asking;
use crate::workflow::{Asker, FlowContext, FlowError, Flows};
use futures::FutureExt;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::action::{Action, ActionKind};

impl Turn<'_> {
    /// Runs a SKILL or TOOL action as one step, and returns its result for the model.
    pub(super) async fn act(&mut self, iteration: u32, action: &Action) -> Result<Value, TurnError> {
        let kind = if action.kind == ActionKind::Skill { "skill" } else { "tool" };
        let (services, agent) = (self.services, Arc::clone(&self.agent));
        let http = services.http.for_session(self.session_facts());
        let key = format!("{iteration}/act");
        let label = Label { kind, target: &action.target };
        let name = StepName { kind, target: &action.target, key: &key };
        let journal = self.journal.clone();
        let step = journal.step(&key, label, Durability::OnReturn, action, |idempotency_key| async move {
            let result = if action.kind == ActionKind::Skill {
                skill::run(&http, &services.tools, &agent.config, action, &idempotency_key).await
            } else {
                tool::run(&http, &services.tools, &agent.config, action, &idempotency_key).await
            }
            .bounded();
            let (ok, attempts) = (result.ok, Some(result.attempts));
            Ok::<_, Infallible>(Done { ok, attempts, ..Done::ok(result) })
        });
        let stepped: Stepped<ActionResult> = match self.run_while_publishing(name, Box::pin(step)).await? {
            Ok(stepped) => stepped,
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(never)) => match never {},
        };
        self.add_action(&action.target);
        self.step_finished(kind, &action.target, &stepped);
        Ok(json!(stepped.output))
    }

    /// Applies a SYSTEM operation to the session, except `handoff`, which the caller executes. The error is for the
    /// model.
    pub(super) fn system(&mut self, iteration: u32, operation: Operation, action: &Action) -> Result<(), String> {
        let done = match operation {
            Operation::CloseConversation => {
                self.session.closed_at = Some(self.services.clock.now());
                Ok(())
            }
            Operation::UpdateProfile => self.update_profile(&action.params),
            Operation::Handoff => Ok(()),
        };
        self.note_action(&format!("{iteration}/act"), "system", true, action, &done, Duration::ZERO);
        done
    }

    /// Records the outcome of a SYSTEM or FLOW action in the journal, the turn's record and the metrics.
    pub(super) fn note_action(
        &mut self,
        key: &str,
        kind: &'static str,
        known: bool,
        action: &Action,
        done: &Result<(), String>,
        took: Duration,
    ) {
        let target = action.target.as_str();
        self.add_action(target);
        let counted = self.services.http.stand_in().is_none();
        outcome::report(CallLabels { kind, target, known, counted }, done.as_ref().err().map(String::as_str), took);
        let (ok, output) = match done {
            Ok(()) => (true, Value::Null),
            Err(error) => (false, json!({ "ok": false, "error": error })),
        };
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if kind == "flow" {
            self.publish_step(kind, target, key, ok, ms);
        }
        self.journal.note(key, Label { kind, target }, action, Done { ok, ..Done::ok(output) }, ms);
    }

    /// Runs a FLOW action until it completes, asks the user or fails.
    pub(super) async fn flow(&mut self, iteration: u32, action: &Action) -> Result<FlowEnd, TurnError> {
        let call = FlowCall {
            action: action.clone(),
            input: flow::input(action, &self.message_text()),
            turn_id: self.turn_id().to_owned(),
            prefix: format!("{iteration}/{}", action.target),
            journal: self.journal.clone(),
            asking: Arc::new(Asking::for_user(None)),
            asked: 0,
            began_at: self.started_at(),
            before: SuspendedRun::default(),
            key: format!("{iteration}/flow"),
        };
        self.call_flow(call).await
    }

    /// Calls a flow from its start, replaying its recorded steps, and records a step with the outcome.
    pub(super) async fn call_flow(&mut self, call: FlowCall) -> Result<FlowEnd, TurnError> {
        self.settle().await?;
        let (key, action, begun) = (call.key.clone(), call.action.clone(), Instant::now());
        let known = self.agent.config.flows.contains(&action.target);
        let begin = Box::pin(self.flow_announcement(&action.target, &key));
        let end = run_beside(ready(Ok(())), Box::pin(self.run_called(call)), begin).await??;
        let done = match &end {
            FlowEnd::Failed(problem) => Err(problem.clone()),
            FlowEnd::Said(_) | FlowEnd::Asks(_) => Ok(()),
        };
        self.note_action(&key, "flow", known, &action, &done, begun.elapsed());
        Ok(end)
    }

    async fn run_called(&mut self, call: FlowCall) -> Result<FlowEnd, TurnError> {
        let action = &call.action;
        let found = match flow::find(&self.services.flows, &self.agent.config, action) {
            Ok(found) => found,
            Err(problem) => return Ok(FlowEnd::Failed(problem)),
        };
        let stand_in = self.services.http.stand_in();
        if let Some(stand_in) = stand_in.filter(|_| found.is_some()) {
            stand_in.called(&action.target, || WouldCall::function(&action.target, &action.params));
        }
        match stand_in.and_then(|stand_in| stand_in.flow(&action.target, &action.params, found.is_some())) {
            Some(Ok(text)) => return Ok(FlowEnd::Said(text)),
            Some(Err(problem)) => return Ok(FlowEnd::Failed(problem)),
            None => {}
        }
        let Some(runnable) = found else { return self.workflow(call).await };
        if let Err(problem) = Flows::check(runnable.as_ref(), &action.params) {
            return Ok(FlowEnd::Failed(format!("flow `{}`: {problem}", action.target)));
        }
        let model = match self.models.chain(&self.agent.config.model) {
            Ok(model) => model,
            Err(error) => return Ok(FlowEnd::Failed(error.to_string())),
        };
        let context = FlowContext {
            input: call.input.clone(),
            params: action.params.clone(),
            session_id: self.session.session_id.clone(),
            agent: Arc::clone(&self.agent),
            model,
            journal: call.journal.scope(&call.prefix),
            listener: Arc::new(self.chunk_publisher(&call.prefix).await?),
            asker: Asker::Turn(Arc::clone(&call.asking)),
        };
        let outer = call.journal.running_steps();
        let outcome = tokio::select! {
            biased;
            outcome = runnable.run(context) => Some(outcome),
            () = call.asking.wait_until_suspended(&call.journal, outer) => None,
            // The journal checks for a cancellation only in steps, so a flow that waits outside of a step is stopped
            // here.
            () = call.journal.wait_cancelled(outer) => return Err(TurnError::Cancelled),
        };
        if !matches!(outcome, Some(Err(_))) {
            call.asking.check_answered(&call.journal)?;
        }
        let target = &call.action.target;
        match outcome {
            None => self.suspend_flow(call, SuspendedRun::default(), None).await,
            Some(Ok(text)) => Ok(FlowEnd::Said(text)),
            Some(Err(FlowError::Journal(error))) => Err(error.into()),
            Some(Err(FlowError::Model(error @ ModelError::Unknown(_)))) => Ok(FlowEnd::Failed(error.to_string())),
            Some(Err(error)) => Ok(FlowEnd::Failed(format!("flow `{target}`: {error}"))),
        }
    }

    /// A run of a workflow in this turn, which starts now, cannot ask the user and has no output for the user.
    pub(super) fn nested_run<'t>(&'t self, prefix: String, workflow_id: &'t str, query: &'t str) -> NestedRun<'t> {
        NestedRun {
            session_id: &self.session.session_id,
            turn_id: self.turn_id(),
            channel: &self.session.channel,
            user_id: &self.session.user_id,
            epoch: self.session.epoch,
            resumed: self.resumed,
            guard: &self.guard,
            models: self.models.clone(),
            journal: self.journal.clone(),
            reply_stream: None,
            prefix,
            workflow_id,
            query,
            params: None,
            from: None,
            run_started_at: self.started_at(),
            turn_started_at: self.started_at(),
            asking: Arc::new(Asking::without_user()),
            subagent: None,
            longest: None,
            before: SuspendedRun::default(),
        }
    }

    /// Runs the workflow that a FLOW action names, within the turn.
    async fn workflow(&mut self, call: FlowCall) -> Result<FlowEnd, TurnError> {
        let reply_stream = self.open_reply_stream(&call.prefix).await?;
        let nested = NestedRun {
            turn_id: &call.turn_id,
            journal: call.journal.clone(),
            reply_stream: Some(reply_stream),
            run_started_at: call.began_at,
            asking: Arc::clone(&call.asking),
            before: call.before.clone(),
            params: inputs_of(&call.action),
            ..self.nested_run(call.prefix.clone(), &call.action.target, &call.input)
        };
        let run_id = nested.run_id();
        match nested.run(self.services).boxed().await? {
            NestedRunEnd::Said(said) => Ok(FlowEnd::Said(said)),
            NestedRunEnd::Failed(problem) => Ok(FlowEnd::Failed(problem)),
            NestedRunEnd::Waits(suspended) => self.suspend_flow(call, suspended, Some(run_id)).await,
        }
    }
}

/// The params of a FLOW action apart from `input`, which is the query: the inputs of a graph.
fn inputs_of(action: &Action) -> Option<Map<String, Value>> {
    let is_input = |(name, _): &(&String, &Value)| name.as_str() != "input";
    let inputs: Map<_, _> =
        action.params.iter().filter(is_input).map(|(name, value)| (name.clone(), value.clone())).collect();
    Some(inputs).filter(|inputs| !inputs.is_empty())
}
