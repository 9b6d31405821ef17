//! The recorded steps of a journal, as its callers read them.

use super::{Journal, hash, lock};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use types::step::StepRecord;
use types::timestamp::Timestamp;

impl Journal {
    /// The recorded steps of this part, including those of its iterations (`path[n]/…`).
    pub fn recorded(&self) -> Vec<StepRecord> {
        self.recorded_within(&['/', '['])
    }

    /// The recorded steps of this part, without those of its iterations.
    pub(crate) fn recorded_once(&self) -> Vec<StepRecord> {
        self.recorded_within(&['/'])
    }

    /// The recorded steps whose keys continue with one of `ends` after the prefix.
    fn recorded_within(&self, ends: &[char]) -> Vec<StepRecord> {
        let within = |key: &str| {
            self.prefix.is_empty() || key.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(ends))
        };
        let recorded = lock(&self.turn.recorded);
        let from = recorded.range(self.prefix.clone()..).map(|(_, step)| step);
        let begins = |step: &&Arc<StepRecord>| step.key.starts_with(&self.prefix);
        from.take_while(begins).filter(|step| within(&step.key)).map(|step| step.as_ref().clone()).collect()
    }

    /// The full keys of the recorded steps of this part, in order.
    pub(crate) fn recorded_keys(&self) -> Vec<String> {
        let recorded = lock(&self.turn.recorded);
        let keys = recorded.range(self.prefix.clone()..).map(|(key, _)| key);
        keys.take_while(|key| key.starts_with(&self.prefix)).cloned().collect()
    }

    /// The start of the first recorded step of this part, and the end of the last one.
    pub(crate) fn recorded_times(&self) -> Option<(Timestamp, Timestamp)> {
        let within = |key: &str| key.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(['/', '[']));
        let recorded = lock(&self.turn.recorded);
        let from = recorded.range(self.prefix.clone()..).map(|(_, step)| step);
        let own = from.take_while(|step| step.key.starts_with(&self.prefix)).filter(|step| within(&step.key));
        own.fold(None, |times, step| {
            let begun = step.at.minus(Duration::from_millis(step.ms));
            let (from, to) = times.unwrap_or((begun, step.at));
            Some((from.min(begun), to.max(step.at)))
        })
    }

    /// Whether the step is recorded with this input.
    pub fn has<I: Serialize + ?Sized>(&self, key: &str, input: &I) -> bool {
        lock(&self.turn.recorded).get(&self.full_key(key)).is_some_and(|step| step.input_hash == hash(input))
    }

    /// Whether the step is recorded, with any input.
    pub(crate) fn is_recorded(&self, key: &str) -> bool {
        lock(&self.turn.recorded).contains_key(&self.full_key(key))
    }

    /// The record of a step of this part; `None` if it is not recorded.
    pub(crate) fn record_of(&self, key: &str) -> Option<Arc<StepRecord>> {
        lock(&self.turn.recorded).get(&self.full_key(key)).cloned()
    }
}
