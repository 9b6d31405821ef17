//! Counts each action, and logs a warning for each failed one.

use super::ActionResult;
use base::http_client::bounded;
use base::metrics::metrics;
use std::time::Duration;
use tracing::warn;

/// Metric label for a target that no agent file names: a model may write any text, which must not become a label.
const UNKNOWN: &str = "unknown";

/// Maximum number of bytes of a target, and of an error, in the log.
const MAX_TARGET: usize = 64;
const MAX_PROBLEM: usize = 500;

/// An action as it appears in metrics and log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLabels<'a> {
    /// `skill`, `tool`, `flow`, `system` or `handoff`.
    pub(crate) kind: &'static str,
    /// The target in the decision.
    pub(crate) target: &'a str,
    /// Whether the agent may use the target. If not, the action is refused, and the target is not used as a label.
    pub(crate) known: bool,
    /// False where a stand-in answers: nothing was called.
    pub(crate) counted: bool,
}

/// Counts and logs the result of a call.
pub(crate) fn report_result(labels: CallLabels<'_>, result: &ActionResult, took: Duration) {
    let problem = (!result.ok).then(|| result.error.as_deref().unwrap_or_default());
    report(labels, problem, took);
}

/// Counts an action, and logs a warning if there is a `problem`. The surrounding span carries session and turn.
pub(crate) fn report(labels: CallLabels<'_>, problem: Option<&str>, took: Duration) {
    let CallLabels { kind, target, known, counted } = labels;
    let (label, outcome) = match (known, problem) {
        (false, _) => (UNKNOWN, "refused"),
        (true, Some(_)) => (target, "failed"),
        (true, None) => (target, "ok"),
    };
    if counted {
        metrics().action(kind, label, outcome);
    }
    if let Some(problem) = problem {
        let (target, ms) = (bounded(target, MAX_TARGET), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        warn!(kind, target, outcome, ms, "action failed: {}", bounded(problem, MAX_PROBLEM));
    }
}
