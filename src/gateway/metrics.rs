//! `GET /metrics`, and the counter of HTTP requests.

use super::GatewayState;
use super::operation::Operation;
use super::roles::READERS;
use crate::exposition;
use axum::extract::{MatchedPath, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::IntoResponse;
use base::metrics::metrics;

pub(super) const SHOW: Operation = Operation::get("/metrics", "operation", "metrics")
    .roles(READERS)
    .summary("Returns the metrics of this process in Prometheus' text format.")
    .text("Metrics of this process");
pub(super) async fn show(State(state): State<GatewayState>) -> impl IntoResponse {
    let text = exposition::text(state.queue.as_ref(), state.store.as_ref()).await;
    ([(CONTENT_TYPE, HeaderValue::from_static(exposition::CONTENT_TYPE))], text)
}

/// Counts a request under its route. Requests to unknown paths share the label `none`.
pub(super) fn count(method: &Method, route: Option<&MatchedPath>, status: StatusCode) {
    let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::HEAD, Method::OPTIONS, Method::PATCH];
    let names = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
    // A client may send any word as the method; unknown ones share a label, which bounds the number of series.
    let method = known.iter().position(|known| known == method).map_or("other", |at| names[at]);
    metrics().request(method, route.map_or("none", MatchedPath::as_str), status.as_u16());
}
