//! The decision loop (E-15 to E-25).

use super::decision::{Decision, NextStatus};
use super::inform::Informed;
use super::prompt;
use super::state::Turn;
use super::waiting::FlowEnd;
use crate::action::system::Operation;
use crate::execution::shown::Shown;
use crate::execution::{CancelReason, TurnError};
use crate::model::ActionAnswer;
use crate::prompt::SharedText;
use serde_json::{Map, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::{Change, TimerChange};
use types::action::{Action, ActionKind, SYSTEM_OPERATIONS};
use types::canonical;
use types::event::ReplyKind;
use types::plan::Plan;
use types::session::Status;
use types::timer::{NewTimer, timer_id};
use types::turn::Outcome;

/// Decisions without action and response in a row that end a turn (OP-E14).
const MAX_IDLE: u32 = 3;

/// What the loop carries from one iteration to the next.
pub(super) struct Loop {
    pub(super) plan: Arc<Plan>,
    /// What the plan lets the model use, and what was said before the turn, as prompts show it.
    pub(super) shown: Arc<Shown>,
    pub(super) history: SharedText,
    pub(super) greeted: bool,
    /// SKILL and TOOL results in order: what the model sees of this turn.
    pub(super) results: Vec<Arc<ActionAnswer>>,
    /// A hint for the next decision.
    pub(super) note: Option<&'static str>,
    /// Executed SYSTEM actions, outside the model's sight (OP-E17).
    ledger: HashSet<String>,
    idle: u32,
}

/// Whether the loop goes on.
pub(super) enum Flow {
    Continue,
    End(End),
}

/// How the loop ends.
pub(super) enum End {
    /// With a reply.
    Answered,
    /// Without one.
    Silent,
    /// By a flow.
    Flow,
    /// In human hands, or back from them at once.
    Transferred,
    /// Cancelled.
    Cancelled(CancelReason),
}

impl Turn<'_> {
    /// Decides and acts until the turn ends. The status is `processing` on entry.
    pub(super) async fn iterate(
        mut self: Box<Self>,
        plan: Arc<Plan>,
        first: Option<Decision>,
        greeted: bool,
    ) -> Result<Change, TurnError> {
        let mut state = Loop {
            shown: self.services.shown.of(&plan, &self.agent.config, self.services),
            history: prompt::conversation(&self.session),
            plan,
            greeted,
            results: std::mem::take(&mut self.brought),
            note: None,
            ledger: HashSet::new(),
            idle: 0,
        };
        let end = self.decide_and_act(&mut state, first).await?;
        self.end(end, &state.plan).await
    }

    async fn decide_and_act(&mut self, state: &mut Loop, first: Option<Decision>) -> Result<End, TurnError> {
        let mut first = first;
        for iteration in 0..self.agent.config.max_iterations.max(1) {
            let decision = match first.take() {
                Some(decision) => decision,
                None => match self.decide(iteration, state).await? {
                    Ok(decision) => decision,
                    Err(reason) => return Ok(End::Cancelled(reason)),
                },
            };
            if let Flow::End(end) = self.follow(iteration, state, decision).await? {
                return Ok(end);
            }
        }
        let detail = format!("{} decisions without an end", self.agent.config.max_iterations.max(1));
        Ok(End::Cancelled(CancelReason::new("iteration_limit", detail)))
    }

    /// Does what one decision says.
    async fn follow(&mut self, iteration: u32, state: &mut Loop, decision: Decision) -> Result<Flow, TurnError> {
        let Decision { next_status, action, response, .. } = decision;
        if let Some(action) = action.as_ref().filter(|action| action.kind == ActionKind::Flow) {
            return Box::pin(self.run_flow(iteration, state, action)).await;
        }
        if next_status == NextStatus::Transferred {
            return Box::pin(self.transfer(iteration, state, action, response)).await.map(Flow::End);
        }
        if next_status == NextStatus::Processing && action.is_none() && response.is_none() {
            return Ok(self.idle(state));
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
            (NextStatus::Ready, _) => Flow::End(End::Silent),
            (NextStatus::Typing, _) => match self.respond(iteration, state, response.unwrap_or_default()).await? {
                Ok(()) => Flow::End(End::Answered),
                Err(reason) => Flow::End(End::Cancelled(reason)),
            },
            // The model cannot see a silent action, so it asks for it again: that is the end of the turn (OP-E17).
            (_, true) if response.is_some() => {
                self.transition(Status::Typing);
                Flow::End(End::Answered)
            }
            (_, true) => Flow::End(End::Silent),
            (_, false) => Flow::Continue,
        })
    }

    async fn respond(
        &mut self,
        iteration: u32,
        state: &Loop,
        decided: String,
    ) -> Result<Result<(), CancelReason>, TurnError> {
        self.transition(Status::Typing);
        let key = format!("{iteration}/respond");
        let informed = match self.services.knowledge.index(&self.agent.config.id).await {
            Some(index) => Box::pin(self.informed(iteration, state, index, &decided)).await?,
            None => Ok(None),
        };
        match informed {
            Err(reason) => return Ok(Err(reason)),
            Ok(Some(Informed { text, sources })) => {
                let metadata = Map::from_iter([("sources".to_owned(), json!(sources))]);
                // Of a text whose pieces were said the whole one is `final` (CONTRACT.md).
                let kind = if self.speech.is_of(&text) { ReplyKind::Final } else { ReplyKind::Response };
                self.reply_with(kind, &key, &text, metadata);
            }
            Ok(None) => self.reply(ReplyKind::Response, &key, &decided),
        }
        Ok(Ok(()))
    }

    fn idle(&mut self, state: &mut Loop) -> Flow {
        state.idle += 1;
        state.note = Some("no_progress");
        if state.idle < MAX_IDLE {
            return Flow::Continue;
        }
        let detail = format!("{MAX_IDLE} decisions in a row with neither action nor response");
        Flow::End(End::Cancelled(CancelReason::new("no_progress", detail)))
    }

    /// Executes a SKILL, TOOL or silent SYSTEM action. True when a SYSTEM action is asked for again.
    pub(super) async fn execute(
        &mut self,
        iteration: u32,
        state: &mut Loop,
        action: &Action,
    ) -> Result<bool, TurnError> {
        if action.kind != ActionKind::System {
            let result = self.act(iteration, action).await?;
            state.results.push(Arc::new((action.target.clone(), result)));
            return Ok(false);
        }
        let Some(operation) = Operation::of(action) else {
            let known = SYSTEM_OPERATIONS.join(", ");
            let error = format!("there is no system operation `{}`; they are: {known}", action.target);
            let refused = Err(error.clone());
            self.note_action(&format!("{iteration}/act"), ("system", false), action, (&refused, Duration::ZERO));
            state.results.push(Arc::new((action.target.clone(), json!({ "ok": false, "error": error }))));
            return Ok(false);
        };
        let entry = canonical::hash(&json!([action.target, action.params]));
        if !state.ledger.insert(entry) {
            return Ok(true);
        }
        if let Err(error) = self.system(iteration, operation, action) {
            // What did not happen is no secret of the engine: the model can tell the user.
            state.results.push(Arc::new((action.target.clone(), json!({ "ok": false, "error": error }))));
        }
        Ok(false)
    }

    async fn run_flow(&mut self, iteration: u32, state: &mut Loop, action: &Action) -> Result<Flow, TurnError> {
        state.idle = 0;
        state.note = None;
        Ok(match Box::pin(self.flow(iteration, action)).await? {
            FlowEnd::Said(text) => {
                self.reply(ReplyKind::Final, &format!("{iteration}/final"), &text);
                Flow::End(End::Flow)
            }
            FlowEnd::Asks(asks) => {
                self.ask_user(&format!("{iteration}/final"), *asks);
                Flow::End(End::Flow)
            }
            FlowEnd::Failed(error) => {
                state.results.push(Arc::new((action.target.clone(), json!({ "ok": false, "error": error }))));
                Flow::Continue
            }
        })
    }

    async fn end(mut self: Box<Self>, end: End, plan: &Plan) -> Result<Change, TurnError> {
        let outcome = match end {
            End::Cancelled(reason) => return self.cancel(&reason),
            End::Transferred => return self.finish_transfer(),
            End::Answered => Outcome::Answered,
            End::Silent => Outcome::Silent,
            End::Flow => Outcome::Flow,
        };
        self.transition(Status::Ready);
        let timers = self.timers_after(outcome, plan);
        self.finish(outcome, timers)
    }

    /// What becomes of the timers (E-33, E-34, OP-E12, OP-E21): a user's turn replaces all, a timer's turn arms none.
    fn timers_after(&self, outcome: Outcome, plan: &Plan) -> TimerChange {
        if let Some(waiting) = &self.session.waiting {
            return TimerChange::Replace(vec![self.flow_timer(waiting)]);
        }
        if self.session.closed_at.is_some() {
            return TimerChange::Replace(Vec::new());
        }
        if self.fired_timer().is_some() {
            return self.timer_removed();
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
