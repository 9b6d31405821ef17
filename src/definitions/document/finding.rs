//! What is wrong with a document: what cannot work is an error, what is probably a mistake is a warning.

use super::places::{Place, Places};
use serde::Serialize;
use std::fmt;

/// Something to be put right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Finding {
    /// Its place in the text, when it was read from one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub at: Option<Place>,
    /// The field, such as `skills[0].http.url`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// What to do; empty when the problem says it.
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

/// All findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What cannot work.
    pub errors: Vec<Finding>,
    /// What is probably a mistake.
    pub warnings: Vec<Finding>,
}

impl Report {
    /// True when nothing stands in the way.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }

    /// Gives every finding its place in `text`.
    pub fn find(&mut self, text: &str) {
        if self.errors.is_empty() && self.warnings.is_empty() {
            return;
        }
        let places = Places::read(text);
        self.errors.iter_mut().chain(&mut self.warnings).for_each(|finding| finding.at = places.of(&finding.path));
    }

    /// Something that cannot work; `hint` may be empty.
    pub fn error(&mut self, path: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) {
        self.errors.push(Finding { at: None, path: path.into(), problem: problem.into(), hint: hint.into() });
    }

    /// Something that is probably a mistake; `hint` may be empty.
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

/// Names in backticks, or `none`.
pub fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
