//! The one error response: `{"error":{"code","message","hint"}}` with its status. Its texts are for the caller;
//! internal details are only logged.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use commands::error::{CommandError, ErrorKind};
use serde::Serialize;

/// Seconds after which a caller may try again (the header `Retry-After`).
const RETRY_AFTER: u32 = 1;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Reject {
    /// The HTTP status.
    pub status: StatusCode,
    /// Stable code of this kind of error, in `snake_case`.
    pub code: &'static str,
    /// The problem and its place.
    pub message: String,
    /// The remedy.
    pub hint: String,
    /// Seconds to wait before the next try, if a repeat may succeed.
    pub retry_after: Option<u32>,
}

impl Reject {
    /// Creates a response with `status`, without `Retry-After`.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: hint.into(), retry_after: None }
    }

    /// 400 Bad Request.
    pub fn invalid(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message, hint)
    }

    /// 404 for an unknown path.
    pub(super) fn unknown_path(hint: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_path", "this path does not exist", hint)
    }

    /// 405 Method Not Allowed.
    pub(super) fn wrong_method() -> Self {
        let hint = "the `allow` header lists the methods of this path";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "the path does not take this method", hint)
    }

    /// 401 Unauthorized.
    pub(super) fn unauthorized() -> Self {
        let hint = "send `Authorization: Bearer <token>` with a token of `gateway.tokens` or `[[gateway.access]]`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "the request has no valid bearer token", hint)
    }

    /// 403 Forbidden: the caller may not do this.
    pub(super) fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message, hint)
    }

    /// 403 for a request from another machine or web page; `header` is the header that names it.
    pub(super) fn foreign(header: &'static str) -> Self {
        let message = format!("the request's `{header}` header names another machine");
        let hint =
            "without `gateway.tokens` this gateway serves only programs and pages on its own machine; set tokens";
        Self::new(StatusCode::FORBIDDEN, "foreign_page", message, hint)
    }

    /// 403 for a request with a cookie, or a login, that a page of another origin may have sent.
    pub(super) fn foreign_origin() -> Self {
        let message = "the request's `Origin` header is not that of this host";
        let hint = "with the cookie of a login only pages of this host may call; programs send `Authorization: Bearer <token>`; \
                    a proxy has to pass the `Host` header on";
        Self::new(StatusCode::FORBIDDEN, "foreign_origin", message, hint)
    }

    /// 413 Payload Too Large.
    pub(super) fn too_large(message: impl Into<String>) -> Self {
        let hint = "send less text, or put large content somewhere else and send its address as an attachment";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message, hint)
    }

    /// The body of the response.
    pub(super) fn body(&self) -> ErrorResponse {
        let Self { code, message, hint, .. } = self;
        ErrorResponse { error: ErrorDetails { code, message: message.clone(), hint: hint.clone() } }
    }

    /// 503 with `Retry-After`: the same request may succeed later.
    pub(super) fn unavailable(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let mut reject = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message, hint);
        reject.retry_after = Some(RETRY_AFTER);
        reject
    }
}

/// The body of an error response.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct ErrorResponse {
    error: ErrorDetails,
}

/// An error: the problem and the remedy.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct ErrorDetails {
    /// Stable name of this kind of error. The examples of each response have its possible values.
    #[schemars(extend("example" = "unknown_session"))]
    code: &'static str,
    /// The problem and its place: a text for people, which may change.
    message: String,
    /// The remedy: a text for people, which may change.
    hint: String,
}

impl IntoResponse for Reject {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            // Who has no token keeps no connection.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Maps each kind of command error to its HTTP status.
impl<E: Into<CommandError>> From<E> for Reject {
    fn from(error: E) -> Self {
        let CommandError { kind, code, message, hint, .. } = error.into();
        let status = match kind {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Changed => StatusCode::PRECONDITION_FAILED,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let retry_after = (kind == ErrorKind::Unavailable).then_some(RETRY_AFTER);
        Self { status, code, message, hint, retry_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use storage::queue::QueueError;
    use storage::store::StoreError;
    use types::ids;
    use types::job::JobError;

    async fn body(reject: Reject) -> Value {
        let bytes = axum::body::to_bytes(reject.into_response().into_body(), 64 * 1024).await.unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn the_body_is_an_error_with_code_message_and_hint() {
        let error = body(CommandError::unknown_agent("客服").into()).await;
        assert_eq!(error["error"]["code"], "unknown_agent");
        assert!(error["error"]["message"].as_str().unwrap().contains("`客服`"));
        assert!(error["error"]["hint"].as_str().unwrap().contains("turnwheel agents apply"));
    }

    #[tokio::test]
    async fn each_failure_has_its_status() {
        for (reject, status) in [
            (Reject::from(QueueError::full("x")), 503),
            (Reject::from(QueueError::unavailable("x")), 503),
            (Reject::from(QueueError::TooLarge { bytes: 2, limit: 1 }), 413),
            (Reject::from(QueueError::refused("x")), 500),
            (Reject::from(StoreError::unavailable("x")), 503),
            (Reject::from(JobError::Empty), 400),
            (Reject::from(ids::check("job_id", "a/b").unwrap_err()), 400),
        ] {
            assert_eq!(reject.status.as_u16(), status, "{reject:?}");
            assert!(!reject.hint.is_empty(), "{reject:?}");
        }
        let response = Reject::from(QueueError::full("x")).into_response();
        assert!(response.headers().contains_key(header::RETRY_AFTER));
    }

    #[tokio::test]
    async fn addresses_of_servers_are_not_told() {
        let error = body(Reject::from(StoreError::unavailable("mongodb://u:p4ss@db"))).await;
        assert!(!error.to_string().contains("p4ss"), "{error}");
    }
}
