//! Reports each action to those who watch: a count of every one, a warning for every one that failed.

use super::ActionResult;
use base::http_client::bounded;
use base::metrics::metrics;
use std::time::Duration;
use tracing::warn;

/// The label of a target that no agent file names: a model may write anything.
const UNKNOWN: &str = "unknown";

/// The most bytes of a target and of an error in the log.
const MAX_TARGET: usize = 64;
const MAX_PROBLEM: usize = 500;

/// An action, as metrics and log name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called<'a> {
    /// `skill`, `tool`, `flow`, `system` or `handoff`.
    pub(crate) kind: &'static str,
    /// Its target, as the decision has it.
    pub(crate) target: &'a str,
    /// Whether the agent may use it: else it is refused, and its target is no label.
    pub(crate) known: bool,
}

/// Reports the result of a call.
pub(crate) fn of_result(called: Called<'_>, result: &ActionResult, took: Duration) {
    let problem = (!result.ok).then(|| result.error.as_deref().unwrap_or_default());
    report(called, problem, took);
}

/// Counts an action. Logs a warning when there is a `problem`; the span around it names session and turn.
pub(crate) fn report(called: Called<'_>, problem: Option<&str>, took: Duration) {
    let Called { kind, target, known } = called;
    let (label, outcome) = match (known, problem) {
        (false, _) => (UNKNOWN, "refused"),
        (true, Some(_)) => (target, "failed"),
        (true, None) => (target, "ok"),
    };
    metrics().action(kind, label, outcome);
    if let Some(problem) = problem {
        let (target, ms) = (bounded(target, MAX_TARGET), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        warn!(kind, target, outcome, ms, "action failed: {}", bounded(problem, MAX_PROBLEM));
    }
}
