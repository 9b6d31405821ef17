//! The decision loop: asks the model for a decision, executes its action, and repeats until a decision ends the turn.

use super::coordinator::First;
use super::decision::{Decision, NextStatus};
use super::interruption::Interruption;
use super::knowledge_reply::InformedReply;
use super::pending_flow::FlowEnd;
use super::prompt;
use super::state::Turn;
use crate::action::system::Operation;
use crate::execution::prompt_view::PlanTexts;
use crate::execution::{CancelReason, TurnError};
use crate::model::ActionAnswer;
use crate::prompt::SharedText;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::{Change, TimerChange};
use types::action::{Action, ActionKind, SYSTEM_OPERATIONS};
use types::agent::coordinator::Mode;
use types::canonical;
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::plan::Plan;
use types::session::Status;
use types::timer::{NewTimer, timer_id};

/// Number of consecutive decisions without action and response after which the turn is cancelled.
const MAX_IDLE: u32 = 3;

/// State of the loop between iterations.
pub(super) struct LoopState {
    pub(super) plan: Arc<Plan>,
    /// Texts of the plan, for the prompts.
    pub(super) plan_texts: Arc<PlanTexts>,
    /// The conversation before this turn, for the prompts.
    pub(super) history: SharedText,
    pub(super) greeted: bool,
    /// Results that the model sees, in order: those of SKILL and TOOL actions, and errors.
    pub(super) results: Vec<Arc<ActionAnswer>>,
    /// Prompt with a hint for the next decision.
    pub(super) note: Option<&'static str>,
    /// Hashes of the SYSTEM actions that have run. The model does not see these actions.
    executed_actions: HashSet<String>,
    /// Number of decisions in a row that brought the turn no further.
    pub(super) idle: u32,
}

/// Whether the loop continues.
pub(super) enum LoopControl {
    Continue,
    End(LoopEnd),
}

/// How the loop has ended.
pub(super) enum LoopEnd {
    /// The decision had a response.
    Answered,
    /// The decision ended the turn without a response.
    Silent,
    /// A flow has taken over the turn.
    Flow,
    /// The conversation was handed off.
    Transferred,
    /// A coordinator's decisions were rejected several times in a row, at last for this reason.
    Rejected(String),
}

impl Turn<'_> {
    /// Runs the loop and returns the turn's change. The status must be `processing`. `first` is the decision of the
    /// first iteration if it is already known.
    pub(super) async fn iterate(
        mut self: Box<Self>,
        plan: Arc<Plan>,
        first: Option<First>,
        greeted: bool,
    ) -> Result<Change, TurnError> {
        let mut state = LoopState {
            plan_texts: self.services.plan_texts.get(&plan, &self.agent.config, self.services),
            history: prompt::conversation(&self.session),
            plan,
            greeted,
            results: std::mem::take(&mut self.initial_results),
            note: None,
            executed_actions: HashSet::new(),
            idle: 0,
        };
        let end = match self.agent.config.mode {
            Mode::Coordinator => Box::pin(self.coordinate(&mut state, first)).await,
            Mode::Actions => self.decide_and_act(&mut state, first).await,
        };
        let end = match end {
            Ok(end) => end,
            Err(interruption) => return self.interrupted(interruption),
        };
        self.finish_loop(end, &state.plan).await
    }

    async fn decide_and_act(&mut self, state: &mut LoopState, first: Option<First>) -> Result<LoopEnd, Interruption> {
        let mut first = first.and_then(First::decision);
        for iteration in 0..self.agent.config.max_iterations.max(1) {
            let decision = match first.take() {
                Some(decision) => decision,
                None => self.decide(iteration, state).await?,
            };
            if let LoopControl::End(end) = self.execute_decision(iteration, state, decision).await? {
                return Ok(end);
            }
        }
        let detail = format!("the turn has not ended after {} decisions", self.agent.config.max_iterations.max(1));
        Err(CancelReason::new("iteration_limit", detail).into())
    }

    /// Follows one decision.
    pub(super) async fn execute_decision(
        &mut self,
        iteration: u32,
        state: &mut LoopState,
        decision: Decision,
    ) -> Result<LoopControl, Interruption> {
        let Decision { next_status, action, response, .. } = decision;
        if let Some(action) = action.as_ref().filter(|action| action.kind == ActionKind::Flow) {
            return Ok(Box::pin(self.run_flow(iteration, state, action)).await?);
        }
        if next_status == NextStatus::Transferred {
            return Box::pin(self.transfer(iteration, state, action, response)).await.map(LoopControl::End);
        }
        if next_status == NextStatus::Processing && action.is_none() && response.is_none() {
            return Ok(note_no_progress(state)?);
        }
        state.idle = 0;
        state.note = None;
        if next_status == NextStatus::Processing
            && let Some(text) = &response
        {
            self.reply(ReplyKind::Interim, &format!("{iteration}/interim"), text);
        }
        let mut repeated = false;
        if let Some(action) = &action {
            repeated = self.execute(iteration, state, action).await?;
        }
        Ok(match (next_status, repeated) {
            (NextStatus::Ready, _) => LoopControl::End(LoopEnd::Silent),
            (NextStatus::Typing, _) => {
                self.respond(iteration, state, response.unwrap_or_default(), Map::new()).await?;
                LoopControl::End(LoopEnd::Answered)
            }
            // The model does not see that a SYSTEM action has run, so it may ask for it again. The repeat ends the
            // turn.
            (_, true) if response.is_some() => {
                self.transition(Status::Typing);
                LoopControl::End(LoopEnd::Answered)
            }
            (_, true) => LoopControl::End(LoopEnd::Silent),
            (_, false) => LoopControl::Continue,
        })
    }

    /// Replies with the decided text, or with one that is written from the agent's knowledge.
    pub(super) async fn respond(
        &mut self,
        iteration: u32,
        state: &LoopState,
        decided: String,
        mut metadata: Map<String, Value>,
    ) -> Result<(), Interruption> {
        self.transition(Status::Typing);
        let key = format!("{iteration}/respond");
        let informed = match self.services.knowledge.index(&self.agent.config.id).await {
            Some(index) => Box::pin(self.write_knowledge_reply(iteration, state, index, &decided)).await?,
            None => None,
        };
        match informed {
            Some(InformedReply { text, sources }) => {
                metadata.insert("sources".to_owned(), json!(sources));
                // A whole text that follows its own chunks is of the kind `final`.
                let kind = if self.reply_stream.is_start_of(&text) { ReplyKind::Final } else { ReplyKind::Response };
                self.reply_with(kind, &key, &text, metadata);
            }
            None => self.reply_with(ReplyKind::Response, &key, &decided, metadata),
        }
        Ok(())
    }

    /// Executes a SKILL, TOOL or SYSTEM action. Returns true, without executing it, if the same SYSTEM action has
    /// already run in this turn.
    pub(super) async fn execute(
        &mut self,
        iteration: u32,
        state: &mut LoopState,
        action: &Action,
    ) -> Result<bool, TurnError> {
        if action.kind != ActionKind::System {
            let result = self.act(iteration, action).await?;
            state.results.push(Arc::new((action.target.clone(), result)));
            return Ok(false);
        }
        let Some(operation) = Operation::from_action(action) else {
            let known = SYSTEM_OPERATIONS.join(", ");
            let error = format!("there is no system operation `{}`; they are: {known}", action.target);
            let refused = Err(error.clone());
            self.note_action(&format!("{iteration}/act"), "system", false, action, &refused, Duration::ZERO);
            state.results.push(Arc::new((action.target.clone(), json!({ "ok": false, "error": error }))));
            return Ok(false);
        };
        let entry = canonical::hash(&json!([action.target, action.params]));
        if !state.executed_actions.insert(entry) {
            return Ok(true);
        }
        if let Err(error) = self.system(iteration, operation, action) {
            // The model sees a failed SYSTEM action, so that it can inform the user.
            state.results.push(Arc::new((action.target.clone(), json!({ "ok": false, "error": error }))));
        }
        Ok(false)
    }

    async fn run_flow(
        &mut self,
        iteration: u32,
        state: &mut LoopState,
        action: &Action,
    ) -> Result<LoopControl, TurnError> {
        state.idle = 0;
        state.note = None;
        Ok(match Box::pin(self.flow(iteration, action)).await? {
            FlowEnd::Said(text) => {
                self.reply(ReplyKind::Final, &format!("{iteration}/final"), &text);
                LoopControl::End(LoopEnd::Flow)
            }
            FlowEnd::Asks(asks) => {
                self.ask_user(&format!("{iteration}/final"), *asks);
                LoopControl::End(LoopEnd::Flow)
            }
            FlowEnd::Failed(error) => {
                state.results.push(Arc::new((action.target.clone(), json!({ "ok": false, "error": error }))));
                LoopControl::Continue
            }
        })
    }

    async fn finish_loop(mut self: Box<Self>, end: LoopEnd, plan: &Plan) -> Result<Change, TurnError> {
        let outcome = match end {
            LoopEnd::Transferred => return self.finish_transfer(),
            LoopEnd::Answered => Outcome::Answered,
            LoopEnd::Silent => Outcome::Silent,
            LoopEnd::Flow => Outcome::Flow,
            LoopEnd::Rejected(problem) => {
                self.apologise_for_rejection(problem);
                Outcome::Answered
            }
        };
        self.transition(Status::Ready);
        let timers = self.timers_after(outcome, plan);
        self.finish(outcome, timers)
    }

    /// Returns the turn's change to the timers: a user's turn replaces all of them, and a timer's turn only removes
    /// its own.
    fn timers_after(&self, outcome: Outcome, plan: &Plan) -> TimerChange {
        if let Some(waiting) = &self.session.waiting {
            return TimerChange::Replace(vec![self.flow_timer(waiting)]);
        }
        if let Some(task) = &self.session.task {
            return TimerChange::Replace(vec![self.task_timer(task)]);
        }
        if self.session.closed_at.is_some() {
            return TimerChange::Replace(Vec::new());
        }
        if self.fired_timer().is_some() {
            return self.timer_removal();
        }
        if !matches!(outcome, Outcome::Answered | Outcome::Silent) {
            return TimerChange::Replace(Vec::new());
        }
        let timers = plan.timers.iter().flatten().enumerate().map(|(index, timer)| NewTimer {
            timer_id: timer_id(&self.session.session_id, self.turn_id(), index),
            name: timer.name.clone(),
            delay: timer.delay,
            action: timer.action.clone(),
            message: timer.message.clone(),
            traceparent: None,
        });
        TimerChange::Replace(timers.collect())
    }
}

/// Notes a decision without action and response. Returns the reason for the turn's cancellation after too many.
pub(super) fn note_no_progress(state: &mut LoopState) -> Result<LoopControl, CancelReason> {
    state.idle += 1;
    state.note = Some("no_progress");
    if state.idle < MAX_IDLE {
        return Ok(LoopControl::Continue);
    }
    let detail = format!("{MAX_IDLE} consecutive decisions without action and response");
    Err(CancelReason::new("no_progress", detail))
}
