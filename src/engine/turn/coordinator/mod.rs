//! The decision loop of a coordinator agent. The model returns several decisions, and the
//! loop takes one at a time by priority: it judges the decision, reports the verdict and carries the decision out. After
//! the last one it asks the model again.
//!
//! - `question` asks the model. `workflows` reads the session's plans, for the prompt and for the verdict. `judge` records a
//!   verdict and publishes the decision's events.
//! - `carry_out` follows a valid decision: `plan_changes` stores plans, `execution` runs them, `recovery` continues a failed
//!   run, and `task` suspends the task while the user is asked.
//! - `ledger` reads the decisions of a recorded turn.

mod carry_out;
mod execution;
mod judge;
mod ledger;
mod plan_changes;
mod question;
mod recovery;
mod task;
mod workflows;

pub use ledger::{DecisionOutcome, RecordedDecision, decisions_of_turn};
pub(super) use question::CoordinatorAnswer;
pub use workflows::JudgedWorkflow;

use super::decision::Decision as ActionDecision;
use super::interruption::Interruption;
use super::iterate::{LoopControl, LoopEnd, LoopState};
use super::state::Turn;
use crate::execution::CancelReason;
use decisions::event::{EventBody, Rejection};
use decisions::kind::{Decision, DecisionType};
use decisions::order;
use decisions::world::Snapshot;
use judge::Verdict;
use std::collections::VecDeque;

/// Rejections in a row after which the turn ends with an apology.
const MAX_REJECTIONS: u32 = 3;
/// Error of a decision that was decided before a result.
const OUTDATED: &str = "`decision_type` was decided before the latest result; decide again with it";

/// The first decision or answer of a turn, if it is known before the first question.
pub(super) enum First {
    /// The decision of phase 1, or the action of a timer.
    Decision(ActionDecision),
    /// A coordinator's answer in phase 1.
    Answer(Box<CoordinatorAnswer>),
}

impl First {
    /// The decision of an ordinary agent.
    pub(super) fn decision(self) -> Option<ActionDecision> {
        match self {
            Self::Decision(decision) => Some(decision),
            Self::Answer(_) => None,
        }
    }
}

/// State of the loop between decisions.
struct Round {
    /// The facts by which the decisions of this turn are judged.
    world: Snapshot,
    /// Decisions of the last answer that wait, the next one first.
    queue: VecDeque<Decision>,
    /// Warnings about the last answer.
    warnings: Vec<String>,
    /// Rejections in a row.
    rejections: u32,
    /// Errors of the last rejection, for the next question.
    errors: Vec<String>,
    /// Thoughts of this turn, for the next question.
    thoughts: Vec<String>,
    /// The highest progress that a thought has claimed.
    progress: f64,
    /// Number of decisions taken so far.
    taken: u32,
    /// Number of decision events so far.
    events: u32,
}

impl Round {
    fn new(world: Snapshot) -> Self {
        let (queue, warnings, errors, thoughts) = (VecDeque::new(), Vec::new(), Vec::new(), Vec::new());
        Self { world, queue, warnings, rejections: 0, errors, thoughts, progress: 0.0, taken: 0, events: 0 }
    }
}

impl Turn<'_> {
    /// Runs the loop. `first` is the first decision or answer, if it is known.
    pub(super) async fn coordinate(
        &mut self,
        state: &mut LoopState,
        mut first: Option<First>,
    ) -> Result<LoopEnd, Interruption> {
        let mut round = Round::new(self.services.decisions.world(Some(&self.agent.config)));
        for iteration in 0..self.agent.config.max_iterations.max(1) {
            let control = match round.queue.pop_front() {
                Some(decision) => self.follow_decision(iteration, state, &mut round, decision).await?,
                None => self.follow_answer(iteration, state, &mut round, first.take()).await?,
            };
            if let LoopControl::End(end) = control {
                return Ok(end);
            }
        }
        let detail = format!("the turn has not ended after {} decisions", self.agent.config.max_iterations.max(1));
        Err(CancelReason::new("iteration_limit", detail).into())
    }

    /// Takes the first answer, or asks for the next one, and follows its most urgent decision.
    async fn follow_answer(
        &mut self,
        iteration: u32,
        state: &mut LoopState,
        round: &mut Round,
        first: Option<First>,
    ) -> Result<LoopControl, Interruption> {
        let answer = match first {
            Some(First::Decision(action)) => return self.execute_decision(iteration, state, action).await,
            Some(First::Answer(answer)) => *answer,
            None => match self.ask_coordinator(iteration, state, round).await? {
                Ok(answer) => answer,
                Err(problem) => return Ok(LoopControl::End(LoopEnd::Rejected(problem))),
            },
        };
        let CoordinatorAnswer { mut decisions, warnings, action } = answer;
        order::sort(&mut decisions);
        round.errors.clear();
        (round.queue, round.warnings) = (decisions.into(), warnings);
        match (round.queue.pop_front(), action) {
            (Some(decision), _) => self.follow_decision(iteration, state, round, decision).await,
            (None, Some(action)) => self.execute_decision(iteration, state, action).await,
            (None, None) => Ok(LoopControl::Continue),
        }
    }

    /// Judges one decision, and carries it out if it is valid. An invalid one goes back to the model with its errors,
    /// and those behind it are decided again.
    async fn follow_decision(
        &mut self,
        iteration: u32,
        state: &mut LoopState,
        round: &mut Round,
        decision: Decision,
    ) -> Result<LoopControl, Interruption> {
        let kind = decision.decision_type;
        let id = self.decision_made(iteration, round, &decision);
        match self.judge(iteration, &round.world, decision).await? {
            Verdict::Rejected { errors } => {
                round.rejections += 1;
                round.queue.clear();
                let attempt = round.rejections;
                let body = EventBody::DecisionRejected { errors: errors.clone(), attempt, reason: Rejection::Invalid };
                self.tell(round, kind, &id, body);
                if attempt >= MAX_REJECTIONS {
                    return Ok(LoopControl::End(LoopEnd::Rejected(errors.join("; "))));
                }
                round.errors = errors.into_iter().map(|error| format!("{kind}: {error}")).collect();
                Ok(LoopControl::Continue)
            }
            Verdict::Valid { accepted, corrections, mut warnings } => {
                round.rejections = 0;
                warnings.append(&mut round.warnings);
                self.tell(round, kind, &id, EventBody::DecisionValidated { corrections, warnings });
                let control = self.carry_out(iteration, state, round, accepted).await?;
                match control {
                    LoopControl::Continue => self.resolve_waiting(iteration, round, kind),
                    // The turn has ended with a reply.
                    LoopControl::End(_) => round.queue.clear(),
                }
                Ok(control)
            }
        }
    }

    /// Decides what becomes of the decisions that waited behind a finished one.
    fn resolve_waiting(&mut self, iteration: u32, round: &mut Round, done: DecisionType) {
        for decision in std::mem::take(&mut round.queue) {
            let kind = decision.decision_type;
            let reason = match order::fate(done, kind) {
                order::Fate::Next => {
                    round.queue.push_back(decision);
                    continue;
                }
                order::Fate::Superseded => Rejection::Superseded,
                order::Fate::Interrupted => Rejection::Interrupted,
                order::Fate::Blocked | order::Fate::Ended => continue,
            };
            let id = self.decision_made(iteration, round, &decision);
            let errors = vec![OUTDATED.to_owned()];
            self.tell(round, kind, &id, EventBody::DecisionRejected { errors, attempt: round.rejections, reason });
        }
    }
}
