//! [`CommandError`]: why a command was refused, in words for its caller.

use definitions::agent::load::AgentError;
use definitions::knowledge::source::SourceError;
use definitions::workflow::read::WorkflowError;
use storage::queue::QueueError;
use storage::store::StoreError;
use tracing::warn;
use types::ids::IdError;
use types::job::JobError;

/// The kind of a refusal: who has to act, and whether a retry can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is malformed or contradicts itself.
    Invalid,
    /// The session, run, agent, … does not exist.
    NotFound,
    /// The current state does not allow the command.
    Conflict,
    /// The payload exceeds a limit.
    TooLarge,
    /// The document is well-formed and cannot work.
    Unprocessable,
    /// A server is unreachable or full; the same command may succeed later.
    Unavailable,
    /// A server refused a command that should have worked. The log has the details.
    Internal,
}

/// Why a command was not carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// Its kind.
    pub kind: ErrorKind,
    /// A stable name in `snake_case`, such as `unknown_session`.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl CommandError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), hint: hint.into() }
    }

    /// [`ErrorKind::Invalid`].
    pub fn invalid(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, code, message, hint)
    }

    /// Neither store nor queue has the session.
    pub fn unknown_session(session_id: &str) -> Self {
        let message = format!("there is no session `{session_id}`");
        Self::new(ErrorKind::NotFound, "unknown_session", message, "a session begins with its first message")
    }

    /// The session has no such turn.
    pub fn unknown_turn(session_id: &str, turn_id: &str) -> Self {
        let message = format!("session `{session_id}` has no committed turn `{turn_id}`");
        let hint =
            "a turn appears once it is committed and is kept for `retention.turns`; see …/turns for those there are";
        Self::new(ErrorKind::NotFound, "unknown_turn", message, hint)
    }

    /// The store does not have the agent.
    pub fn unknown_agent(agent_id: &str) -> Self {
        let message = format!("there is no agent `{agent_id}`");
        let hint = "apply its file with `turnwheel agents apply`; `turnwheel agents list` shows those there are";
        Self::new(ErrorKind::NotFound, "unknown_agent", message, hint)
    }

    /// There is no such workflow.
    pub fn unknown_workflow(workflow_id: &str) -> Self {
        let message = format!("there is no workflow `{workflow_id}`");
        let hint = "put its file into workflows_dir; `turnwheel workflows list` shows those there are";
        Self::new(ErrorKind::NotFound, "unknown_workflow", message, hint)
    }

    /// There is no such run.
    pub fn unknown_run(run_id: &str) -> Self {
        let message = format!("there is no run `{run_id}`");
        let hint = "runs are kept for `retention.turns` after their end; `turnwheel runs list` shows those there are";
        Self::new(ErrorKind::NotFound, "unknown_run", message, hint)
    }

    /// [`ErrorKind::TooLarge`].
    pub fn too_large(message: impl Into<String>) -> Self {
        let hint = "send less text, or put large content somewhere else and send its address as an attachment";
        Self::new(ErrorKind::TooLarge, "too_large", message, hint)
    }

    /// [`ErrorKind::Unavailable`].
    pub fn unavailable(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, code, message, hint)
    }

    /// [`ErrorKind::Internal`]; `detail` is only logged.
    fn internal(message: &str, detail: &dyn std::fmt::Display) -> Self {
        warn!("{message}: {detail}");
        Self::new(ErrorKind::Internal, "internal", message, "the gateway's log has the details")
    }
}

impl From<IdError> for CommandError {
    fn from(error: IdError) -> Self {
        Self::invalid("invalid_id", error.to_string(), format!("choose another `{}`", error.field))
    }
}

impl From<JobError> for CommandError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Id(error) => error.into(),
            JobError::Empty => Self::invalid("empty_message", error.to_string(), "give `text` or `attachments`"),
            JobError::Malformed(_) | JobError::OtherSession { .. } | JobError::TooDeep(_) => {
                Self::invalid("invalid_request", error.to_string(), "docs/contract/nats.md has the fields of a job")
            }
        }
    }
}

impl From<QueueError> for CommandError {
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

impl From<StoreError> for CommandError {
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

impl From<AgentError> for CommandError {
    fn from(error: AgentError) -> Self {
        let hint = "correct the document; `turnwheel agents validate` checks a file";
        Self::new(ErrorKind::Unprocessable, "invalid_agent", error.to_string(), hint)
    }
}

impl From<WorkflowError> for CommandError {
    fn from(error: WorkflowError) -> Self {
        let hint = "correct the document; `turnwheel workflows validate` checks a file";
        Self::new(ErrorKind::Unprocessable, "invalid_workflow", error.to_string(), hint)
    }
}

impl From<SourceError> for CommandError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::TooLarge(_) | SourceError::TooMany(_) => Self::too_large(error.to_string()),
            SourceError::Name => Self::invalid("invalid_source", error.to_string(), "name it like `kb/returns.md`"),
            SourceError::Empty | SourceError::Kind | SourceError::Encoding(_) | SourceError::Read(_) => {
                Self::invalid("invalid_source", format!("text: {error}"), "send Markdown or plain text")
            }
        }
    }
}
