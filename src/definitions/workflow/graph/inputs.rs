//! The declared inputs of a graph: the check of a run's values, and their defaults.

use super::GraphDefinition;
use crate::workflow::condition::Condition;
use decisions::policy::Policy;
use decisions::validate::validate_inputs;
use decisions::world::Snapshot;
use serde_json::{Map, Value};

/// The inputs in the text with which a graph is started, if that is a JSON object.
pub fn inputs_in(query: &str) -> Map<String, Value> {
    if query.trim_start().starts_with('{') { serde_json::from_str(query).unwrap_or_default() } else { Map::new() }
}

impl GraphDefinition {
    /// Checks the inputs of a run, and adds defaults. Each error begins with the input in backquotes and ends with the
    /// remedy. Without declared inputs everything is accepted.
    pub fn inputs(&self, given: &Map<String, Value>) -> Result<Map<String, Value>, Vec<String>> {
        let check = |text: &str| Condition::parse(text).map(drop).map_err(|error| error.to_string());
        let verdict = validate_inputs(&self.plan, given, &Snapshot::new(Policy::default(), check));
        if !verdict.is_valid {
            return Err(verdict.errors);
        }
        let mut inputs = given.clone();
        for input in self.global.inputs.iter().flatten() {
            if let Some(default) = &input.default {
                inputs.entry(input.name.clone()).or_insert_with(|| default.clone());
            }
        }
        Ok(inputs)
    }

    /// True if the graph declares its inputs.
    pub fn declares_inputs(&self) -> bool {
        self.global.inputs.is_some()
    }
}
