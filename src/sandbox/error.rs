//! The reasons for which a script fails.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// The kind of a script's failure, also in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorKind {
    /// The code is no Python.
    Syntax,
    /// The runner does not support a construct of the code.
    Unsupported,
    /// The script has raised an exception, or returned a value that is no JSON.
    Exception,
    /// The script took too long, and was killed.
    Timeout,
    /// The script needs too much memory.
    Memory,
    /// The output is too large.
    Output,
    /// The script has tried to reach a file, the environment or the network.
    Forbidden,
    /// The child process has ended without a response, or responded with something else than the protocol's line. The worker finds
    /// it; no runner reports it.
    #[serde(skip)]
    Crashed,
    /// There is no runner, or it cannot start.
    Unavailable,
}

impl ErrorKind {
    /// The error code in events and records.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Syntax | Self::Unsupported => "PYTHON_SYNTAX",
            Self::Exception => "PYTHON_EXCEPTION",
            Self::Timeout => "TIMEOUT",
            Self::Memory => "PYTHON_MEMORY",
            Self::Output => "OUTPUT_TOO_LARGE",
            Self::Forbidden => "PYTHON_FORBIDDEN",
            Self::Crashed => "PYTHON_CRASHED",
            Self::Unavailable => "SANDBOX_UNAVAILABLE",
        }
    }

    /// The value of the label `kind` in the metric of deaths; `None` if the child has not died.
    pub(crate) const fn death(self) -> Option<&'static str> {
        match self {
            Self::Timeout => Some("timeout"),
            Self::Memory => Some("memory"),
            Self::Output => Some("output"),
            Self::Forbidden => Some("forbidden"),
            Self::Crashed => Some("crashed"),
            Self::Syntax | Self::Unsupported | Self::Exception | Self::Unavailable => None,
        }
    }
}

/// The failure of a script. Its text names the line and, if there is one, the remedy.
#[derive(Clone, Debug, Error)]
pub struct ScriptError {
    /// The kind.
    pub kind: ErrorKind,
    /// The type of the exception, such as `KeyError`; empty for other failures.
    pub name: String,
    /// The message, without the line.
    pub message: String,
    /// The line in the code, from 1.
    pub line: Option<u32>,
    /// The text that the script printed before it failed, if it is known.
    pub stdout: String,
    /// The cause in the system.
    #[source]
    pub source: Option<Arc<io::Error>>,
}

impl ScriptError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, name: String::new(), message: message.into(), line: None, stdout: String::new(), source: None }
    }

    pub(crate) fn with_source(self, source: io::Error) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// The error code in events and records.
    pub const fn code(&self) -> &'static str {
        self.kind.code()
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.message.as_str()) {
            ("", "") => f.write_str(self.code())?,
            ("", message) => f.write_str(message)?,
            (name, "") => f.write_str(name)?,
            (name, message) => write!(f, "{name}: {message}")?,
        }
        match self.line {
            Some(line) => write!(f, " (line {line})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_exception_and_the_line() {
        let error =
            ScriptError { name: "KeyError".into(), line: Some(4), ..ScriptError::new(ErrorKind::Exception, "'a'") };
        assert_eq!((error.to_string().as_str(), error.code()), ("KeyError: 'a' (line 4)", "PYTHON_EXCEPTION"));
        let error = ScriptError::new(ErrorKind::Timeout, "");
        assert_eq!(error.to_string(), "TIMEOUT");
    }
}
