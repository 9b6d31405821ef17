//! Failures of commands, shown as `error: …` and `hint: …`.

use base::error::with_causes;
use thiserror::Error;

/// A failure with a remedy.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct Failure {
    /// What failed, and where.
    pub message: String,
    /// What to do.
    pub hint: String,
    /// The HTTP status, if a gateway refused the request.
    pub status: Option<u16>,
}

impl Failure {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), status: None }
    }
}

/// True if a gateway responded 404.
pub fn is_unknown(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.status == Some(404))
}

/// Formats a failure as lines: the error with its causes, then the hints.
pub fn lines(error: &anyhow::Error) -> Vec<String> {
    let mut lines = vec![format!("error: {}", with_causes(&**error))];
    let hints = error.chain().filter_map(|cause| cause.downcast_ref::<Failure>()).map(|failure| &failure.hint);
    lines.extend(hints.filter(|hint| !hint.is_empty()).map(|hint| format!("hint: {hint}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_come_in_one_line_and_hints_in_lines_of_their_own() {
        let failed: anyhow::Result<()> = Err(Failure::new("no gateway answers", "start `turnwheel dev`").into());
        let error = failed.context("cannot send").unwrap_err();
        assert_eq!(lines(&error), ["error: cannot send: no gateway answers", "hint: start `turnwheel dev`"]);
        let plain = anyhow::anyhow!("a").context("b: a");
        assert_eq!(lines(&plain), ["error: b: a"]);
    }
}
