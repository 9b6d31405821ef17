//! Collects errors and warnings, in the order in which a reader corrects them.

use crate::limits::MAX_FINDINGS;
use crate::path::Path;

/// The group of an error. Errors are listed in the order of these groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    ActionType,
    Size,
    Missing,
    Kind,
    Rule,
    Unsupported,
    Safety,
}

const GROUPS: usize = 7;

/// The result of a validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// True without errors.
    pub is_valid: bool,
    /// Each begins with the field in backquotes and ends with the remedy.
    pub errors: Vec<String>,
    /// Probable mistakes, in the same form.
    pub warnings: Vec<String>,
}

/// Errors and warnings of one payload.
#[derive(Debug, Default)]
pub(crate) struct Report {
    errors: [Vec<String>; GROUPS],
    more: usize,
    warnings: Vec<String>,
    more_warnings: usize,
}

impl Report {
    /// Adds an error. The texts are only made while there is room for them.
    pub(crate) fn error(&mut self, group: Group, path: &Path<'_>, text: impl FnOnce() -> String) {
        let errors = &mut self.errors[group as usize];
        if errors.len() < MAX_FINDINGS {
            errors.push(finding(path, &text()));
        } else {
            self.more += 1;
        }
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, path: &Path<'_>, text: impl FnOnce() -> String) {
        if self.warnings.len() < MAX_FINDINGS {
            self.warnings.push(finding(path, &text()));
        } else {
            self.more_warnings += 1;
        }
    }

    /// True if there are errors.
    pub(crate) fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    /// The errors for which the report had room.
    pub(crate) fn errors(&self) -> impl Iterator<Item = &str> {
        self.errors.iter().flatten().map(String::as_str)
    }

    /// Keeps the errors for which `keep` is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.errors.iter_mut().for_each(|errors| errors.retain(|error| keep(error)));
    }

    /// Adds the findings of another report as findings of `path`. `lead` introduces the errors.
    pub(crate) fn adopt(&mut self, path: &Path<'_>, lead: &str, other: Self) {
        let Self { errors, more, warnings, more_warnings } = other;
        for error in errors.into_iter().flatten() {
            self.error(Group::Rule, path, || format!("{lead}: {error}"));
        }
        warnings.into_iter().for_each(|warning| self.warn(path, || format!("{lead}: {warning}")));
        self.more += more;
        self.more_warnings += more_warnings;
    }

    /// The verdict, with at most [`MAX_FINDINGS`] errors and as many warnings.
    pub(crate) fn finish(self) -> Validation {
        let errors = self.errors.into_iter().flatten().collect();
        let errors = bounded(errors, self.more, "errors");
        Validation {
            is_valid: errors.is_empty(),
            errors,
            warnings: bounded(self.warnings, self.more_warnings, "warnings"),
        }
    }
}

fn bounded(mut findings: Vec<String>, more: usize, name: &str) -> Vec<String> {
    let more = more + findings.len().saturating_sub(MAX_FINDINGS);
    findings.truncate(MAX_FINDINGS);
    if more > 0 {
        findings.push(format!("`payload` has {more} more {name}; correct these first"));
    }
    findings
}

fn finding(path: &Path<'_>, text: &str) -> String {
    let path = path.to_string();
    format!("`{}` {text}", if path.is_empty() { "payload" } else { &path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_grouped_and_bounded() {
        let mut report = Report::default();
        report.error(Group::Safety, &Path::ROOT.field("code"), || "is bad; x".into());
        for _ in 0..60 {
            report.error(Group::Missing, &Path::ROOT.field("url"), || "is missing; y".into());
        }
        let verdict = report.finish();
        assert!(!verdict.is_valid && verdict.errors.len() == MAX_FINDINGS + 1);
        assert_eq!(verdict.errors[0], "`url` is missing; y");
        assert_eq!(verdict.errors[MAX_FINDINGS], "`payload` has 11 more errors; correct these first");
        assert!(Report::default().finish().is_valid);
    }
}
