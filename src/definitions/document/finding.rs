//! Problems in a document: errors make it unusable, warnings are probable mistakes.

use super::positions::{Position, Positions};
use serde::Serialize;
use std::fmt;

/// A problem in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    /// Line and column of the problem, if the document was read from a text.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub at: Option<Position>,
    /// The field, such as `skills[0].http.url`.
    pub path: String,
    /// The problem.
    pub problem: String,
    /// How to correct it; empty if the problem implies that.
    #[schemars(default)]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{at}: ")?;
        }
        write!(f, "{}: {}", self.path, self.problem)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

/// All problems of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Problems that make the document unusable.
    pub errors: Vec<Finding>,
    /// Probable mistakes.
    pub warnings: Vec<Finding>,
}

impl Report {
    /// True if there are no errors.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }

    /// Sets line and column of each finding from `text`.
    pub fn find(&mut self, text: &str) {
        if self.errors.is_empty() && self.warnings.is_empty() {
            return;
        }
        let positions = Positions::read(text);
        self.errors
            .iter_mut()
            .chain(&mut self.warnings)
            .for_each(|finding| finding.at = positions.position_of(&finding.path));
    }

    /// Adds an error. `hint` may be empty.
    pub fn error(&mut self, path: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.errors.push(Finding { at: None, path: path.into(), problem: problem.into(), hint: hint.into() });
    }

    /// Adds a warning. `hint` may be empty.
    pub fn warn(&mut self, path: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.warnings.push(Finding { at: None, path: path.into(), problem: problem.into(), hint: hint.into() });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = self.errors.iter().map(|finding| ("error", finding));
        let warnings = self.warnings.iter().map(|finding| ("warning", finding));
        for (at, (kind, finding)) in errors.chain(warnings).enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{kind}: {finding}")?;
        }
        Ok(())
    }
}

/// Formats names in backticks, separated by commas; `none` if there are no names.
pub fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
