//! How a command fails: `error: …` and `hint: …` on stderr, exit status 1.

use commands::error::CommandError;
use gateway::Reject;
use std::process::ExitCode;
use thiserror::Error;

/// A failure with a remedy.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct Failure {
    /// What happened, and where.
    pub message: String,
    /// What to do.
    pub hint: String,
    /// The HTTP status, when a gateway refused.
    pub status: Option<u16>,
}

impl Failure {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), status: None }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        // As a gateway would have refused it.
        let reject = Reject::from(error);
        Self { message: reject.message, hint: reject.hint, status: Some(reject.status.as_u16()) }
    }
}

/// True when a gateway answered 404.
pub fn is_unknown(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.status == Some(404))
}

/// The lines that tell of a failure.
pub fn lines(error: &anyhow::Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors repeat their source in their own words.
        if !causes.iter().any(|said| said.contains(&cause)) {
            causes.push(cause);
        }
    }
    let mut lines = vec![format!("error: {}", causes.join(": "))];
    let hints = error.chain().filter_map(|cause| cause.downcast_ref::<Failure>()).map(|failure| &failure.hint);
    lines.extend(hints.filter(|hint| !hint.is_empty()).map(|hint| format!("hint: {hint}")));
    lines
}

/// Prints it.
pub fn report(error: &anyhow::Error) -> ExitCode {
    for line in lines(error) {
        eprintln!("{}", crate::log::masked(&line));
    }
    ExitCode::FAILURE
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
