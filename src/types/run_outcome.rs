//! The outcome of a run: its failure and its usage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunFailure {
    /// Path of the failed stage, such as `outer_loop[2]/parallel/verify`; empty for the run itself.
    pub path: String,
    /// The error.
    pub cause: String,
    /// How often the stage was tried.
    pub attempts: u32,
}

impl RunFailure {
    /// Id of the failed stage or branch, as seen from the workflow `id` at `path`. Returns `None` if the workflow
    /// itself failed.
    pub fn path_within(&self, path: &str, id: &str) -> Option<&str> {
        let rest = match path {
            // The iterations of an outermost loop have paths that begin with the workflow's id.
            "" => self.path.strip_prefix(id).filter(|rest| rest.starts_with('[')).unwrap_or(&self.path),
            path => self.path.strip_prefix(path).filter(|rest| rest.starts_with(['/', '[']))?,
        };
        let rest = match rest.strip_prefix('[') {
            Some(iteration) => iteration.split_once(']')?.1,
            None => rest,
        };
        rest.trim_start_matches('/').split(['/', '[']).next().filter(|found| !found.is_empty())
    }
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.cause)?;
        if self.attempts > 1 { write!(f, " (after {} attempts)", self.attempts) } else { Ok(()) }
    }
}

/// The usage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunUsage {
    /// Stages that were started.
    pub stages: u64,
    /// Model calls.
    pub model_calls: u64,
    /// Tokens of prompts and answers.
    pub tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_stage_of_the_workflow_that_tells_it() {
        let failure = |path: &str| RunFailure { path: path.into(), cause: "x".into(), attempts: 1 };
        for (path, of, expected) in [
            ("plan", "", Some("plan")),
            ("outer[2]/all/verify", "", Some("outer")),
            ("outer[2]/all/verify", "outer", Some("all")),
            ("outer[2]/all/verify", "outer[2]/all", Some("verify")),
            ("outer[2]/all/verify", "outer[2]/all/verify", None),
            ("w[3]/plan", "", Some("plan")),
            ("w[3]/inner[2]/plan", "", Some("inner")),
            ("w[3]/inner[2]/plan", "w[3]/inner", Some("plan")),
            ("triage[2]", "", Some("triage")),
            ("", "", None),
        ] {
            assert_eq!(failure(path).path_within(of, "w"), expected, "{path} in {of}");
        }
    }
}
