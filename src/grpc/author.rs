//! The authoring agent as its callers see it: one message of the user in, a stream of responses out.

use crate::invalid::Invalid;
use futures::stream::BoxStream;
use thiserror::Error;
use tonic::{Code, Status};
use types::authoring::{AgentState, Body, ConversationConfig, ErrorCode, WorkflowContext};
use types::timestamp::Timestamp;

/// Takes conversations on. Stateless: the request has the whole conversation.
pub trait Author: Send + Sync {
    /// Handles one message of the user. Exactly the last response has `is_final`; an error ends the stream, too.
    ///
    /// Each `updated_state` is complete: a caller that has stored it may drop the stream and continue from it later.
    /// Dropping the stream stops the work at its next await.
    fn converse(&self, request: AuthorRequest) -> BoxStream<'static, Result<AuthorResponse, AuthorError>>;
}

/// One message of the user, with the conversation so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorRequest {
    /// Id of the session.
    pub session_id: String,
    /// Id of the user.
    pub user_id: String,
    /// The message. Empty to continue a state for which [`AgentState::goes_on`] is true.
    pub user_message: String,
    /// The conversation so far; `None` for a new one.
    pub current_state: Option<AgentState>,
    /// The source of the document, with the first message of an edit or a copy.
    pub workflow_context: Option<WorkflowContext>,
    /// The settings of the conversation.
    pub config: ConversationConfig,
}

/// One response.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorResponse {
    /// The event.
    pub body: Body,
    /// The number in the turn, from 0. Over gRPC only a piece of a text has it.
    pub seq: u64,
    /// The conversation after this response; `None` if it has not changed.
    pub updated_state: Option<AgentState>,
    /// When the author made it.
    pub timestamp: Timestamp,
    /// True for the last response.
    pub is_final: bool,
}

/// Why a stream ended without its last response.
#[derive(Clone, Debug, Error)]
pub enum AuthorError {
    /// The request must not be repeated as it is.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The author cannot work now; a repeat may succeed.
    #[error("the authoring agent is unavailable: {0}")]
    Unavailable(String),
    /// A defect of the author.
    #[error("the authoring agent failed: {0}")]
    Internal(String),
    /// The server of `authoring.endpoint` refused the call or is unreachable.
    #[error("the authoring agent at {endpoint} (`authoring.endpoint`) failed: {}: {}", source.code(), source.message())]
    Remote {
        /// The address of the server.
        endpoint: String,
        /// The status of the call.
        source: Box<Status>,
    },
    /// The server of `authoring.endpoint` sent a response that breaks the protocol.
    #[error("the authoring agent at {endpoint} (`authoring.endpoint`) sent a response that breaks the protocol")]
    Broken {
        /// The address of the server.
        endpoint: String,
        /// The offending field.
        source: Invalid,
    },
}

impl AuthorError {
    /// True if the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Remote { source, .. } => is_transient(source),
            Self::Invalid(_) | Self::Internal(_) | Self::Broken { .. } => false,
        }
    }

    /// Returns the code of the error event with which a turn ends after this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Remote { .. } | Self::Broken { .. } => ErrorCode::AgentUnavailable,
            Self::Unavailable(_) => ErrorCode::Unavailable,
            Self::Invalid(_) | Self::Internal(_) => ErrorCode::Internal,
        }
    }

    /// The status of a call that ends with this error. Details of a remote server stay in the log.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Invalid(invalid) => Status::invalid_argument(invalid.to_string()),
            Self::Unavailable(_) => Status::unavailable(self.to_string()),
            Self::Remote { .. } if self.is_transient() => Status::unavailable("the authoring agent is unreachable"),
            Self::Internal(_) | Self::Remote { .. } | Self::Broken { .. } => {
                Status::internal("the authoring agent failed; its log has the reason")
            }
        }
    }
}

/// True for a status that reports a lost or refused connection. A status that the server sent has no source.
pub(crate) fn is_transient(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable => true,
        Code::Cancelled | Code::DeadlineExceeded => false,
        _ => std::error::Error::source(status).is_some(),
    }
}
