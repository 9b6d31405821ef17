//! The console: web pages under `/console/`. They need no token; the API that they call does.
//!
//! - [`files`]: the files in the program, or those of the folder `console.dir`.

mod files;

pub(super) use files::Files;

use super::{GatewayState, Reject};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use files::File;

/// The page that every client-side route shows.
const INDEX: &str = "index.html";
/// What the pages may load, and who may show them: only this server. Scripts, styles and calls of other origins, inline
/// scripts and styles, and frames around the console are blocked.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; style-src 'self'",
);

/// The routes of the console, and the redirection of `/` to it.
pub(super) fn routes() -> Router<GatewayState> {
    let redirect = || get(async || Redirect::temporary("/console/"));
    Router::new()
        .route("/", redirect())
        .route("/console", redirect())
        .route("/console/", get(index))
        .route("/console/{*path}", get(show))
}

async fn index(State(state): State<GatewayState>, headers: HeaderMap) -> Result<Response, Reject> {
    respond(&state.console, INDEX, &headers).await
}

async fn show(
    State(state): State<GatewayState>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    // A path without an extension is a route of the page itself.
    let is_file = path.rsplit('/').next().is_some_and(|name| name.contains('.'));
    respond(&state.console, if is_file { &path } else { INDEX }, &headers).await
}

async fn respond(files: &Files, path: &str, asked: &HeaderMap) -> Result<Response, Reject> {
    let file = files.find(path).await;
    let file = file.ok_or_else(|| Reject::unknown_path("the console has no such file; it begins at /console/"))?;
    let zipped = if accepts_gzip(asked) { file.gzip() } else { None };
    let etag = file.etag(zipped.is_some());
    let mut response = match asked.get(IF_NONE_MATCH).and_then(|seen| seen.to_str().ok()) {
        Some(seen) if names(seen, &etag) => StatusCode::NOT_MODIFIED.into_response(),
        _ => content(&file, zipped),
    };
    let headers = response.headers_mut();
    if let Ok(etag) = etag.parse() {
        headers.insert(ETAG, etag);
    }
    for (name, value) in [
        // The names of the files do not change with their content, so browsers ask each time.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (VARY, HeaderValue::from_static("accept-encoding")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ] {
        headers.insert(name, value);
    }
    Ok(response)
}

fn content(file: &File, zipped: Option<axum::body::Bytes>) -> Response {
    let kind = HeaderValue::from_static(file.media_type());
    match zipped {
        Some(zipped) => {
            let encoding = HeaderValue::from_static("gzip");
            ([(CONTENT_TYPE, kind), (CONTENT_ENCODING, encoding)], zipped).into_response()
        }
        None => ([(CONTENT_TYPE, kind)], file.bytes()).into_response(),
    }
}

/// True if `If-None-Match` names this tag.
fn names(seen: &str, etag: &str) -> bool {
    seen.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == "*" || tag == etag)
}

/// True if the client accepts gzip, by name or by `*`, with a weight above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut weights = [None, None];
    for one in accepted.split(',') {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |weight| weight.parse().ok());
        match name.as_str() {
            "gzip" => weights[0] = weight,
            "*" => weights[1] = weight,
            _ => {}
        }
    }
    weights[0].or(weights[1]).is_some_and(|weight: f32| weight > 0.0)
}

#[cfg(test)]
mod tests;
