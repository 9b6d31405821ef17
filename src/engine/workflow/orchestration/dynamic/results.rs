//! Results of the steps of plans.

use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;

/// Result of a step: `{agent, question, result}`, or `{agent, question, error}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepResult {
    /// The sub-agent that was asked.
    pub agent: String,
    /// The question.
    pub question: String,
    /// The sub-agent's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<str>>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// All results so far, in the order of the first result for each question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Results(Vec<StepResult>);

impl Results {
    /// Adds results. Each replaces an earlier result of the same agent and question.
    pub fn merge(&mut self, newer: impl IntoIterator<Item = StepResult>) {
        for new in newer {
            let same = |old: &&mut StepResult| old.agent == new.agent && old.question == new.question;
            match self.0.iter_mut().find(same) {
                Some(old) => *old = new,
                None => self.0.push(new),
            }
        }
    }

    /// True if there is no result yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the results as a text for agents: a heading for each question, followed by its answer or error.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for StepResult { agent, question, result, error } in &self.0 {
            let question = question.split_whitespace().collect::<Vec<_>>().join(" ");
            let gap = if text.is_empty() { "" } else { "\n\n" };
            let _ = writeln!(text, "{gap}## {agent}: {question}");
            match error {
                Some(error) => drop(write!(text, "error: {error}")),
                None => text.push_str(result.as_deref().unwrap_or_default().trim_end()),
            }
        }
        text
    }
}
