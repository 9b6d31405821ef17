//! Trace context (W3C): the headers `traceparent` and `tracestate` of requests, jobs and events.

use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanContext, Status, TraceContextExt, TraceFlags};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use reqwest::header::{HeaderMap, HeaderValue};
use tracing::{Span, debug};
use tracing_opentelemetry::{OpenTelemetrySpanExt, SetParentError};

/// The header with the trace id and the id of the parent span.
pub const TRACEPARENT: &str = "traceparent";
/// The header with vendor-specific data of tracing systems.
pub const TRACESTATE: &str = "tracestate";
/// The longest accepted `tracestate` in bytes. A longer one is dropped, because every job of the trace would carry it.
const MAX_STATE: usize = 512;

/// A trace and the parent span of its next span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext(SpanContext);

impl TraceContext {
    /// The context of the current span; `None` if it is not traced.
    pub fn current() -> Option<Self> {
        Self::from_span(&Span::current())
    }

    fn from_span(span: &Span) -> Option<Self> {
        let context = span.context();
        let span = context.span();
        let context = span.span_context();
        context.is_valid().then(|| Self(context.clone()))
    }

    /// Parses the values of the two headers. Returns `None` for an invalid `traceparent`.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let headers = Headers { parent, state: state.filter(|state| state.len() <= MAX_STATE) };
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
        let span = context.span();
        let context = span.span_context();
        context.is_valid().then(|| Self(context.clone()))
    }

    /// The context that the headers of a request name.
    pub fn from_request(headers: &HeaderMap) -> Option<Self> {
        let get = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        Self::parse(get(TRACEPARENT)?, get(TRACESTATE))
    }

    /// The value for the header `traceparent`.
    pub fn traceparent(&self) -> String {
        let flags = self.0.trace_flags() & TraceFlags::SAMPLED;
        format!("00-{}-{}-{:02x}", self.0.trace_id(), self.0.span_id(), flags)
    }

    /// The value for the header `tracestate`; `None` if it is empty.
    pub fn tracestate(&self) -> Option<String> {
        Some(self.0.trace_state().header()).filter(|state| !state.is_empty())
    }

    /// Makes `span` part of this trace. Must be called right after the span was created.
    pub fn adopt(&self, span: &Span) {
        match span.set_parent(Context::new().with_remote_span_context(self.0.clone())) {
            // Without an exporter there is nothing to do.
            Ok(()) | Err(SetParentError::LayerNotFound | SetParentError::SpanDisabled) => {}
            Err(problem) => debug!("the span starts a new trace: {problem}"),
        }
    }
}

/// Adds the current trace context to the headers of an outgoing request, unless they have one already.
pub fn inject_trace(headers: &mut HeaderMap) {
    let Some(trace) = TraceContext::current() else { return };
    if headers.contains_key(TRACEPARENT) {
        return;
    }
    let mut put = |name, value: String| HeaderValue::from_str(&value).map(|value| headers.insert(name, value)).ok();
    put(TRACEPARENT, trace.traceparent());
    trace.tracestate().and_then(|state| put(TRACESTATE, state));
}

/// Renames a traced span. `name` is not called for other spans.
pub fn set_name(span: &Span, name: impl FnOnce() -> String) {
    let context = span.context();
    if context.span().span_context().is_valid() {
        context.span().update_name(name());
    }
}

/// Records the HTTP status of the response on a traced span. A status of 500 or more marks the span as failed.
pub fn record_status(span: &Span, status: u16) {
    let context = span.context();
    context.span().set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
    if status >= 500 {
        context.span().set_status(Status::error(""));
    }
}

/// Marks a traced span as failed.
pub fn record_failure(span: &Span) {
    span.set_status(Status::error(""));
}

struct Headers<'h> {
    parent: &'h str,
    state: Option<&'h str>,
}

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TRACEPARENT => Some(self.parent),
            TRACESTATE => self.state,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_read_is_written_again_and_other_texts_are_none() {
        let trace = TraceContext::parse(GOOD, Some("vendor=a,other=b")).unwrap();
        assert_eq!((trace.traceparent().as_str(), trace.tracestate().as_deref()), (GOOD, Some("vendor=a,other=b")));
        let not_sampled = GOOD.replace("-01", "-00");
        assert_eq!(TraceContext::parse(&not_sampled, None).unwrap().traceparent(), not_sampled);
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for bad in ["", "00", "你好", &GOOD.replace("4bf9", "4BF9"), &GOOD.replacen("00", "ff", 1), zeros] {
            assert_eq!(TraceContext::parse(bad, None), None, "{bad}");
        }
    }

    #[test]
    fn a_state_that_is_none_or_too_long_is_left_out() {
        for state in ["no state", &format!("vendor={}", "x".repeat(MAX_STATE))] {
            assert_eq!(TraceContext::parse(GOOD, Some(state)).unwrap().tracestate(), None, "{state}");
        }
    }

    #[test]
    fn nobody_traces_where_nothing_is_exported() {
        assert_eq!(TraceContext::current(), None);
        let mut headers = HeaderMap::new();
        inject_trace(&mut headers);
        assert!(headers.is_empty());
    }
}
