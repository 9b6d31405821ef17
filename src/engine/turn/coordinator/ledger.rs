//! The decisions of a recorded turn with their verdicts, read from the steps of the turn.

use super::judge::RecordedVerdict;
use super::workflows::JudgedWorkflow;
use super::{OUTDATED, order};
use crate::model::answer::object;
use decisions::answer::Answer;
use decisions::correct::Correction;
use decisions::kind::{Decision, DecisionType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecisionOutcome {
    /// It was valid, and was carried out.
    Valid,
    /// It was not valid.
    Rejected,
    /// It was decided before a result that came first.
    Superseded,
    /// A recovery came first.
    Interrupted,
}

impl DecisionOutcome {
    /// The name in all formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Rejected => "rejected",
            Self::Superseded => "superseded",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A decision of a turn, and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedDecision {
    /// Id of the decision, as in its events.
    pub decision_id: String,
    /// Id of the turn.
    pub turn_id: String,
    /// The type of the decision.
    pub decision_type: DecisionType,
    /// The model's confidence, from 0 to 1; null if it gave none.
    pub confidence: Option<f64>,
    /// The payload as the model wrote it.
    pub payload: Map<String, Value>,
    /// The outcome.
    pub outcome: DecisionOutcome,
    /// The errors of a decision that was not carried out.
    pub errors: Vec<String>,
    /// The payload after correction; null if nothing was corrected.
    pub corrected: Option<Map<String, Value>>,
    /// The corrections.
    pub corrections: Vec<Correction>,
    /// Probable mistakes.
    pub warnings: Vec<String>,
    /// The workflow that the decision names, in the version and with the status with which it was judged; null if there
    /// was none.
    pub workflow: Option<JudgedWorkflow>,
    /// When the verdict was recorded.
    pub at: Timestamp,
}

/// The decisions of a turn, in the order in which they were taken. `steps` are those of the turn. Empty for turns of
/// agents that are no coordinators.
pub fn decisions_of_turn(turn_id: &str, steps: &[StepRecord]) -> Vec<RecordedDecision> {
    let iterations = steps.iter().filter_map(|step| step.key.split('/').next()?.parse::<u32>().ok());
    let last = iterations.max();
    let by_key = steps.iter().map(|step| (step.key.as_str(), step)).collect();
    let mut ledger = Ledger { turn_id, by_key, queue: VecDeque::new(), recorded: Vec::new() };
    for iteration in last.into_iter().flat_map(|last| 0..=last) {
        ledger.follow(iteration);
    }
    ledger.recorded
}

/// The state of the turn's loop while its steps are read again.
struct Ledger<'s> {
    turn_id: &'s str,
    by_key: HashMap<&'s str, &'s StepRecord>,
    /// Decisions of the last answer that wait, the next one first.
    queue: VecDeque<Decision>,
    recorded: Vec<RecordedDecision>,
}

impl Ledger<'_> {
    /// Takes the decision of one iteration as the turn did.
    fn follow(&mut self, iteration: u32) {
        if let Some(mut decisions) = self.answer(iteration) {
            order::sort(&mut decisions);
            self.queue = decisions.into();
        }
        let Some(step) = self.by_key.get(format!("{iteration}/judge").as_str()).copied() else { return };
        let (decision, verdict) = (self.queue.pop_front(), RecordedVerdict::deserialize(&step.output));
        let (Some(decision), Ok(verdict)) = (decision, verdict) else { return };
        let kind = decision.decision_type;
        if !verdict.errors.is_empty() {
            self.queue.clear();
            return self.record(decision, DecisionOutcome::Rejected, verdict, step.at);
        }
        self.record(decision, DecisionOutcome::Valid, verdict, step.at);
        // A receipt ends the turn.
        if self.by_key.get(format!("{iteration}/start").as_str()).is_some_and(|start| start.ok) {
            self.queue.clear();
        }
        for waiting in std::mem::take(&mut self.queue) {
            let outcome = match order::fate(kind, waiting.decision_type) {
                order::Fate::Next => {
                    self.queue.push_back(waiting);
                    continue;
                }
                order::Fate::Superseded => DecisionOutcome::Superseded,
                order::Fate::Interrupted => DecisionOutcome::Interrupted,
                order::Fate::Blocked | order::Fate::Ended => continue,
            };
            let verdict = RecordedVerdict { errors: vec![OUTDATED.to_owned()], ..RecordedVerdict::default() };
            self.record(waiting, outcome, verdict, step.at);
        }
    }

    /// The decisions of the answer that an iteration asked for, after the corrections of its form.
    fn answer(&self, iteration: u32) -> Option<Vec<Decision>> {
        let keys = ["decide/correct[2]", "decide/correct[1]", "decide"];
        let step = keys.iter().find_map(|key| self.by_key.get(format!("{iteration}/{key}").as_str()))?;
        let answer = object(step.output.as_str()?).ok()?;
        let read = match answer.contains_key("plan") && answer.contains_key("answer") {
            true => Answer::read_with_plan(&answer).map(|(_, first)| first),
            false => Answer::read(&answer),
        };
        Some(read.ok()?.decisions)
    }

    fn record(&mut self, decision: Decision, outcome: DecisionOutcome, verdict: RecordedVerdict, at: Timestamp) {
        let Decision { decision_type, confidence, payload } = decision;
        let RecordedVerdict { errors, corrected, corrections, warnings, workflow } = verdict;
        let (turn_id, decision_id) = (self.turn_id.to_owned(), format!("{}/{}", self.turn_id, self.recorded.len()));
        self.recorded.push(RecordedDecision {
            decision_id,
            turn_id,
            decision_type,
            confidence,
            payload,
            outcome,
            errors,
            corrected,
            corrections,
            warnings,
            workflow,
            at,
        });
    }
}
