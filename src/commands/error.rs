//! [`CommandError`]: why a command was refused, with a message and a hint for the caller.

use base::error::{SharedError, with_causes};
use definitions::agent::load::AgentError;
use definitions::knowledge::source::SourceError;
use definitions::workflow::read::WorkflowError;
use engine::admission::AdmissionError;
use engine::definition_files::{FileError, PublishError};
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
    /// The caller may not do this.
    Forbidden,
    /// The current state does not allow the command.
    Conflict,
    /// The state is not the one that the caller has seen.
    Changed,
    /// The payload exceeds a limit.
    TooLarge,
    /// The document is well-formed, but it cannot work.
    Unprocessable,
    /// A server is unreachable or full; the same command may succeed later.
    Unavailable,
    /// A server refused a command that should have worked. The log has the details.
    Internal,
}

/// Why a command failed. A failed command has changed nothing. Only after an error of the kind `Unavailable` it may
/// have taken effect.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// The kind of the refusal.
    pub kind: ErrorKind,
    /// A stable name in `snake_case`, such as `unknown_session`.
    pub code: &'static str,
    /// The fault and its place.
    pub message: String,
    /// How to correct it.
    pub hint: String,
    /// The cause, if another error has caused it. The gateway does not show it to callers.
    pub source: Option<SharedError>,
}

impl CommandError {
    /// Creates an error of this kind.
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), hint: hint.into(), source: None }
    }

    /// Creates an error of the kind [`ErrorKind::Invalid`].
    pub fn invalid(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, code, message, hint)
    }

    /// The error for a session that neither store nor queue has.
    pub fn unknown_session(session_id: &str) -> Self {
        let message = format!("there is no session `{session_id}`");
        Self::new(ErrorKind::NotFound, "unknown_session", message, "a session begins with its first message")
    }

    /// The error for a turn that the session does not have.
    pub fn unknown_turn(session_id: &str, turn_id: &str) -> Self {
        let message = format!("session `{session_id}` has no committed turn `{turn_id}`");
        let hint = "a turn appears once it is committed and is kept for `retention.turns`; …/turns lists the turns";
        Self::new(ErrorKind::NotFound, "unknown_turn", message, hint)
    }

    /// The error for an agent that the store does not have.
    pub fn unknown_agent(agent_id: &str) -> Self {
        let message = format!("there is no agent `{agent_id}`");
        let hint = "apply its file with `turnwheel agents apply`; `turnwheel agents list` shows the stored agents";
        Self::new(ErrorKind::NotFound, "unknown_agent", message, hint)
    }

    /// The error for a version that an agent or workflow does not have. `kind` is `agent` or `workflow`.
    pub fn unknown_version(kind: &str, id: &str, hash: &str) -> Self {
        let message = format!("{kind} `{id}` has no version `{hash}`");
        Self::new(
            ErrorKind::NotFound,
            "unknown_version",
            message,
            "…/versions lists those that are stored; unused ones expire",
        )
    }

    /// The error for a workflow that does not exist.
    pub fn unknown_workflow(workflow_id: &str) -> Self {
        let message = format!("there is no workflow `{workflow_id}`");
        let hint = "put its file into workflows_dir; `turnwheel workflows list` shows the existing workflows";
        Self::new(ErrorKind::NotFound, "unknown_workflow", message, hint)
    }

    /// The error for a run that does not exist.
    pub fn unknown_run(run_id: &str) -> Self {
        let message = format!("there is no run `{run_id}`");
        let hint = "an ended run is kept for `retention.turns`; `turnwheel runs list` shows the existing runs";
        Self::new(ErrorKind::NotFound, "unknown_run", message, hint)
    }

    /// Creates an error of the kind [`ErrorKind::TooLarge`].
    pub fn too_large(message: impl Into<String>) -> Self {
        let hint = "send less text, or put large content somewhere else and send its address as an attachment";
        Self::new(ErrorKind::TooLarge, "too_large", message, hint)
    }

    /// Creates an error of the kind [`ErrorKind::Unavailable`].
    pub fn unavailable(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, code, message, hint)
    }

    /// Creates an error of the kind [`ErrorKind::Internal`], and logs `cause`.
    fn internal(message: &str, cause: SharedError) -> Self {
        warn!("{message}: {}", with_causes(&*cause));
        Self::new(ErrorKind::Internal, "internal", message, "the gateway's log has the details").caused_by(cause)
    }

    fn caused_by(self, cause: impl Into<SharedError>) -> Self {
        Self { source: Some(cause.into()), ..self }
    }
}

impl From<IdError> for CommandError {
    fn from(error: IdError) -> Self {
        Self::invalid("invalid_id", error.to_string(), format!("choose another `{}`", error.field)).caused_by(error)
    }
}

impl From<JobError> for CommandError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Id(error) => error.into(),
            JobError::Empty => {
                Self::invalid("empty_message", error.to_string(), "give `text` or `attachments`").caused_by(error)
            }
            JobError::Newer(error) => {
                let hint = "a process of the newer version can handle it; this one leaves it as it is";
                Self::unavailable("newer_format", format!("the job needs a newer version: {error}"), hint)
                    .caused_by(error)
            }
            JobError::Malformed { .. } | JobError::OtherSession { .. } | JobError::TooDeep(_) => {
                let hint = "docs/contract/nats.md has the fields of a job";
                Self::invalid("invalid_request", error.to_string(), hint).caused_by(error)
            }
        }
    }
}

impl From<QueueError> for CommandError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Full(_) => {
                let hint = "retry after some of the waiting messages are processed";
                Self::unavailable("queue_full", error.to_string(), hint).caused_by(error)
            }
            QueueError::TooLarge { .. } => Self::too_large(error.to_string()).caused_by(error),
            QueueError::Unavailable(problem) => {
                warn!("the queue is unavailable: {}", with_causes(&*problem));
                Self::unavailable(
                    "queue_unavailable",
                    "the queue is unavailable",
                    "retry later; /readyz reports when it is reachable again",
                )
                .caused_by(problem)
            }
            QueueError::Refused(problem) => Self::internal("the queue refused", problem),
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(problem) => {
                warn!("the store is unavailable: {}", with_causes(&*problem));
                Self::unavailable(
                    "store_unavailable",
                    "the store is unavailable",
                    "retry later; /readyz reports when it is reachable again",
                )
                .caused_by(problem)
            }
            StoreError::Damaged { what, source } => {
                Self::internal(&format!("{what} in the store cannot be read"), source)
            }
            StoreError::Newer { what, source } => {
                let message = format!("{what} was written by a newer version of Turnwheel");
                Self::unavailable("newer_format", &message, "upgrade this process, or ask one of the newer version")
                    .caused_by(source)
            }
            StoreError::Refused(problem) => Self::internal("the store refused", problem),
        }
    }
}

impl From<AdmissionError> for CommandError {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Store(error) => error.into(),
            AdmissionError::Agent(error) => error.into(),
            AdmissionError::Workflow(error) => error.into(),
        }
    }
}

impl From<FileError> for CommandError {
    fn from(error: FileError) -> Self {
        let kind = match error {
            FileError::InTheWay { .. } => ErrorKind::Conflict,
            FileError::Unwritable { .. } | FileError::NotWritten { .. } => ErrorKind::Internal,
        };
        Self::new(kind, error.code(), error.to_string(), error.hint()).caused_by(error)
    }
}

impl From<PublishError> for CommandError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Store(error) => error.into(),
            PublishError::File(error) => error.into(),
        }
    }
}

impl From<AgentError> for CommandError {
    fn from(error: AgentError) -> Self {
        let hint = "correct the document; `turnwheel agents validate` checks a file";
        Self::new(ErrorKind::Unprocessable, "invalid_agent", error.to_string(), hint).caused_by(error)
    }
}

impl From<WorkflowError> for CommandError {
    fn from(error: WorkflowError) -> Self {
        let hint = "correct the document; `turnwheel workflows validate` checks a file";
        Self::new(ErrorKind::Unprocessable, "invalid_workflow", error.to_string(), hint).caused_by(error)
    }
}

impl From<SourceError> for CommandError {
    fn from(error: SourceError) -> Self {
        let refused = match error {
            SourceError::TooLarge(_) | SourceError::TooMany(_) => Self::too_large(error.to_string()),
            SourceError::Name => Self::invalid("invalid_source", error.to_string(), "name it like `kb/returns.md`"),
            SourceError::Empty | SourceError::Kind | SourceError::Encoding(_) | SourceError::Read(_) => {
                Self::invalid("invalid_source", format!("text: {error}"), "send Markdown or plain text")
            }
        };
        refused.caused_by(error)
    }
}
