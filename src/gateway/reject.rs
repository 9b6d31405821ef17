//! The one refusal: `{"error":{"code","message","hint"}}` with its status. What it says is for the caller; details of the
//! inside are only logged.

use crate::definitions::agent::load::AgentError;
use crate::definitions::workflow::read::WorkflowError;
use crate::storage::queue::QueueError;
use crate::storage::store::StoreError;
use crate::types::ids::IdError;
use crate::types::job::JobError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::warn;

/// Seconds after which a caller may try again.
const RETRY_AFTER: u32 = 1;

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Reject {
    /// The HTTP status.
    pub status: StatusCode,
    /// The same for the same kind of refusal, in `snake_case`.
    pub code: &'static str,
    /// What was found, and where.
    pub message: String,
    /// The remedy.
    pub hint: String,
    /// Seconds to wait before another try, where that may help.
    pub retry_after: Option<u32>,
}

impl Reject {
    /// A refusal with `status`.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: hint.into(), retry_after: None }
    }

    /// 400.
    pub fn invalid(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message, hint)
    }

    /// 404 for a session that neither store nor queue knows.
    pub fn unknown_session(session_id: &str) -> Self {
        let message = format!("there is no session `{session_id}`");
        Self::new(StatusCode::NOT_FOUND, "unknown_session", message, "a session begins with its first message")
    }

    /// 404 for a turn.
    pub fn unknown_turn(session_id: &str, turn_id: &str) -> Self {
        let message = format!("session `{session_id}` has no committed turn `{turn_id}`");
        let hint =
            "a turn appears once it is committed and is kept for `retention.turns`; see …/turns for those there are";
        Self::new(StatusCode::NOT_FOUND, "unknown_turn", message, hint)
    }

    /// 404 for an agent.
    pub fn unknown_agent(agent_id: &str) -> Self {
        let message = format!("there is no agent `{agent_id}`");
        let hint = "apply its file with `turnwheel agents apply`; `turnwheel agents list` shows those there are";
        Self::new(StatusCode::NOT_FOUND, "unknown_agent", message, hint)
    }

    /// 404 for a workflow.
    pub fn unknown_workflow(workflow_id: &str) -> Self {
        let message = format!("there is no workflow `{workflow_id}`");
        let hint = "put its file into workflows_dir; `turnwheel workflows list` shows those there are";
        Self::new(StatusCode::NOT_FOUND, "unknown_workflow", message, hint)
    }

    /// 404 for a run.
    pub fn unknown_run(run_id: &str) -> Self {
        let message = format!("there is no run `{run_id}`");
        let hint = "runs are kept for `retention.turns` after their end; `turnwheel runs list` shows those there are";
        Self::new(StatusCode::NOT_FOUND, "unknown_run", message, hint)
    }

    /// 404 for a path.
    pub(super) fn unknown_path(hint: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_path", "there is no such path", hint)
    }

    /// 405.
    pub(super) fn wrong_method() -> Self {
        let hint = "the `allow` header has the methods of this path";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "the path does not take this method", hint)
    }

    /// 401.
    pub(super) fn unauthorized() -> Self {
        let hint = "send `Authorization: Bearer <token>` with one of the tokens of the setting `gateway.tokens`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "the request has no valid bearer token", hint)
    }

    /// 403 for a web page of another site; `header` tells on it.
    pub(super) fn foreign(header: &'static str) -> Self {
        let message = format!("the request's `{header}` header names another machine");
        let hint =
            "without `gateway.tokens` this gateway serves only programs and pages of its own machine; set tokens";
        Self::new(StatusCode::FORBIDDEN, "foreign_page", message, hint)
    }

    /// 413.
    pub(super) fn too_large(message: impl Into<String>) -> Self {
        let hint = "send less text, or put large content somewhere else and send its address as an attachment";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message, hint)
    }

    /// 503, to be tried again.
    pub(super) fn unavailable(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let mut reject = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message, hint);
        reject.retry_after = Some(RETRY_AFTER);
        reject
    }

    /// 500; `detail` is logged.
    fn internal(message: &str, detail: &dyn std::fmt::Display) -> Self {
        warn!("{message}: {detail}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message, "the gateway's log has the details")
    }
}

/// The body of a refusal.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Refusal {
    error: Fault,
}

/// What is wrong.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Fault {
    /// The same for the same kind of refusal, in `snake_case`.
    #[schema(example = "unknown_session")]
    code: &'static str,
    /// What was found, and where.
    message: String,
    /// The remedy.
    hint: String,
}

impl IntoResponse for Reject {
    fn into_response(self) -> Response {
        let body = Refusal { error: Fault { code: self.code, message: self.message, hint: self.hint } };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<IdError> for Reject {
    fn from(error: IdError) -> Self {
        Self::invalid("invalid_id", error.to_string(), format!("choose another `{}`", error.field))
    }
}

impl From<JobError> for Reject {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Id(error) => error.into(),
            JobError::Empty => Self::invalid("empty_message", error.to_string(), "give `text` or `attachments`"),
            JobError::Malformed(_) | JobError::OtherSession { .. } | JobError::TooDeep(_) => {
                Self::invalid("invalid_request", error.to_string(), "see the contract's `Job`")
            }
        }
    }
}

impl From<QueueError> for Reject {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Full(problem) => Self::unavailable(
                "queue_full",
                format!("the queue is full: {problem}"),
                "try again when some of the waiting messages have been handled",
            ),
            QueueError::TooLarge { .. } => Self::too_large(error.to_string()),
            QueueError::Unavailable(problem) => {
                warn!("the queue is unavailable: {problem}");
                Self::unavailable(
                    "queue_unavailable",
                    "the queue is unavailable",
                    "try again; /readyz says when it is back",
                )
            }
            QueueError::Refused(problem) => Self::internal("the queue refused", &problem),
        }
    }
}

impl From<StoreError> for Reject {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(problem) => {
                warn!("the store is unavailable: {problem}");
                Self::unavailable(
                    "store_unavailable",
                    "the store is unavailable",
                    "try again; /readyz says when it is back",
                )
            }
            StoreError::Damaged { what, problem } => {
                Self::internal(&format!("{what} in the store cannot be read"), &problem)
            }
            StoreError::Refused(problem) => Self::internal("the store refused", &problem),
        }
    }
}

impl From<AgentError> for Reject {
    fn from(error: AgentError) -> Self {
        let hint = "correct the document; `turnwheel agents validate` checks a file";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_agent", error.to_string(), hint)
    }
}

impl From<WorkflowError> for Reject {
    fn from(error: WorkflowError) -> Self {
        let hint = "correct the document; `turnwheel workflows validate` checks a file";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_workflow", error.to_string(), hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids;
    use serde_json::Value;

    async fn body(reject: Reject) -> Value {
        let bytes = axum::body::to_bytes(reject.into_response().into_body(), 64 * 1024).await.unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn the_body_is_an_error_with_code_message_and_hint() {
        let error = body(Reject::unknown_agent("客服")).await;
        assert_eq!(error["error"]["code"], "unknown_agent");
        assert!(error["error"]["message"].as_str().unwrap().contains("`客服`"));
        assert!(error["error"]["hint"].as_str().unwrap().contains("turnwheel agents apply"));
    }

    #[tokio::test]
    async fn each_failure_has_its_status() {
        for (reject, status) in [
            (Reject::from(QueueError::Full("x".into())), 503),
            (Reject::from(QueueError::Unavailable("x".into())), 503),
            (Reject::from(QueueError::TooLarge { bytes: 2, limit: 1 }), 413),
            (Reject::from(QueueError::Refused("x".into())), 500),
            (Reject::from(StoreError::Unavailable("x".into())), 503),
            (Reject::from(JobError::Empty), 400),
            (Reject::from(ids::check("job_id", "a/b").unwrap_err()), 400),
        ] {
            assert_eq!(reject.status.as_u16(), status, "{reject:?}");
            assert!(!reject.hint.is_empty(), "{reject:?}");
        }
        let response = Reject::from(QueueError::Full("x".into())).into_response();
        assert!(response.headers().contains_key(header::RETRY_AFTER));
    }

    #[tokio::test]
    async fn addresses_of_servers_are_not_told() {
        let error = body(Reject::from(StoreError::Unavailable("mongodb://u:p4ss@db".into()))).await;
        assert!(!error.to_string().contains("p4ss"), "{error}");
    }
}
