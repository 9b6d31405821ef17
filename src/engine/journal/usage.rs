//! The tokens that the steps of a turn have used.

use super::lock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use types::step::StepRecord;
use types::timestamp::Timestamp;

/// Tokens of prompts and completions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnUsage {
    /// All tokens of the turn.
    pub total: u64,
    /// The tokens that count against the daily budget of a task agent, by agent id.
    pub agents: BTreeMap<String, u64>,
}

/// The usage of each step by turn id and key, so that a step that is recorded twice counts once.
#[derive(Default)]
pub(super) struct UsageLog(Mutex<HashMap<(String, String), StepUsage>>);

struct StepUsage {
    tokens: u64,
    charged: Option<String>,
    at: Timestamp,
}

impl UsageLog {
    pub(super) fn add(&self, turn_id: &str, step: &StepRecord) {
        let key = (turn_id.to_owned(), step.key.clone());
        let Some(tokens) = step.tokens else {
            lock(&self.0).remove(&key);
            return;
        };
        let tokens = tokens.prompt.saturating_add(tokens.completion);
        let usage = StepUsage { tokens, charged: step.charged.clone(), at: step.at };
        lock(&self.0).insert(key, usage);
    }

    pub(super) fn forget(&self, before: Timestamp) {
        lock(&self.0).retain(|_, usage| usage.at >= before);
    }

    pub(super) fn sum(&self) -> TurnUsage {
        let mut sum = TurnUsage::default();
        for usage in lock(&self.0).values() {
            sum.total = sum.total.saturating_add(usage.tokens);
            if let Some(agent) = &usage.charged {
                let of_agent = sum.agents.entry(agent.clone()).or_default();
                *of_agent = of_agent.saturating_add(usage.tokens);
            }
        }
        sum
    }
}
