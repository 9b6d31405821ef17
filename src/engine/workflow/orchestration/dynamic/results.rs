//! What the steps of plans have found out.

use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;

/// The result of a step: `{agent, question, result}`, or `{agent, question, error}` (OP-D5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepResult {
    /// Who was asked.
    pub agent: String,
    /// What.
    pub question: String,
    /// What came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<str>>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// All results so far, in the order of their first coming.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Results(Vec<StepResult>);

impl Results {
    /// Takes in newer ones: each replaces the one of the same agent and question (OP-D3).
    pub fn merge(&mut self, newer: impl IntoIterator<Item = StepResult>) {
        for new in newer {
            let same = |old: &&mut StepResult| old.agent == new.agent && old.question == new.question;
            match self.0.iter_mut().find(same) {
                Some(old) => *old = new,
                None => self.0.push(new),
            }
        }
    }

    /// True when nothing was asked yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For agents to read: a heading for each question, and what it came to.
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
