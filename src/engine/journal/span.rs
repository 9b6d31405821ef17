//! The tracing span of a running step. It carries the same figures as the step's record.

use super::{Done, Label};
use base::telemetry::trace_context;
use tracing::field::Empty;
use tracing::{Span, debug_span};

/// Opens the span of a step that starts now.
pub(super) fn begin(key: &str, label: Label<'_>) -> Span {
    let Label { kind, target } = label;
    let span = debug_span!(
        "step",
        key,
        kind,
        target,
        ok = Empty,
        attempts = Empty,
        model = Empty,
        prompt_tokens = Empty,
        completion_tokens = Empty,
    );
    trace_context::set_name(&span, || format!("{kind} {target}"));
    span
}

/// Records the outcome of the step in its span.
pub(super) fn end<O, E>(span: &Span, ended: &Result<Done<O>, E>) {
    if span.is_disabled() {
        return;
    }
    let Ok(done) = ended else { return trace_context::record_failure(span) };
    span.record("ok", done.ok);
    if !done.ok {
        trace_context::record_failure(span);
    }
    done.attempts.map(|attempts| span.record("attempts", attempts));
    done.model.as_deref().map(|model| span.record("model", model));
    if let Some(tokens) = done.tokens {
        span.record("prompt_tokens", tokens.prompt).record("completion_tokens", tokens.completion);
    }
}
