//! A request's id (the caller's `x-request-id` or a new one, in the log and in the response), and the trace it belongs
//! to.

use super::metrics;
use axum::extract::{MatchedPath, Request};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use base::telemetry::otlp::PROBE_TARGET;
use base::telemetry::{TraceContext, trace_context};
use tracing::field::Empty;
use tracing::{Instrument, Span, debug, info_span};
use uuid::Uuid;

pub(super) const HEADER: &str = "x-request-id";
/// Longer ids are replaced: they would only burden the log.
const MAX_BYTES: usize = 128;

/// Middleware: adds the request id and counts the request. The log has the path without the query, which may hold
/// secrets.
pub(super) async fn request_id(mut request: Request, next: Next) -> Response {
    let id = request.headers().get(HEADER).filter(|value| is_sane(value)).cloned().unwrap_or_else(fresh);
    let (method, route) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    let span = span_of(&request, &id);
    // The audit trail reads it from there.
    request.headers_mut().insert(HEADER, id.clone());
    let mut response = async {
        let response = next.run(request).await;
        debug!(status = response.status().as_u16(), "response sent");
        response
    }
    .instrument(span.clone())
    .await;
    trace_context::set_name(&span, || format!("{method} {}", route.as_ref().map_or("none", MatchedPath::as_str)));
    trace_context::record_status(&span, response.status().as_u16());
    metrics::count(&method, route.as_ref(), response.status());
    response.headers_mut().insert(HEADER, id);
    response
}

/// Opens the request's span, within the caller's trace if it sends one. Handlers fill in the session and the job.
fn span_of(request: &Request, id: &HeaderValue) -> Span {
    macro_rules! span {
        ($target:expr) => {
            info_span!(
                target: $target,
                "request",
                request_id = id.to_str().unwrap_or_default(),
                method = %request.method(),
                path = request.uri().path(),
                session_id = Empty,
                job_id = Empty,
                caller = Empty,
            )
        };
    }
    if matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics") {
        return span!(PROBE_TARGET);
    }
    let span = span!(module_path!());
    if let Some(trace) = TraceContext::from_request(request.headers()) {
        trace.adopt(&span);
    }
    span
}

fn is_sane(value: &HeaderValue) -> bool {
    !value.is_empty() && value.len() <= MAX_BYTES && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn fresh() -> HeaderValue {
    HeaderValue::from_str(&Uuid::new_v4().to_string()).unwrap_or_else(|_| HeaderValue::from_static("none"))
}
