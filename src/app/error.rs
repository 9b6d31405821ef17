//! Why the engine did not do it.

use commands::error::CommandError;
use definitions::agent::load::AgentError;
use definitions::workflow::read::WorkflowError;
use embedded::store::OpenError;
use engine::action::http::HttpCallerError;
use engine::model::registry::ModelSettingsError;
use std::net::SocketAddr;
use std::time::Duration;
use storage::queue::QueueError;
use storage::store::StoreError;
use thiserror::Error;

/// Why the engine did not do it.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The embedded file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The queue's fault.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The store's fault.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A model of the settings cannot work.
    #[error(transparent)]
    Model(#[from] ModelSettingsError),
    /// Skills and tools could not be called.
    #[error(transparent)]
    Http(#[from] HttpCallerError),
    /// An agent that cannot work.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A workflow that cannot work.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// A function whose params are no table.
    #[error(
        "the params of `{id}` are a `{kind}` in JSON, and an action's params are always an object; make them a struct with \
         named fields, or take `NoParams`"
    )]
    Params {
        /// What it was registered as.
        id: String,
        /// The type in its schema.
        kind: String,
    },
    /// A message or command that is refused.
    #[error("{}; {}", .0.message, .0.hint)]
    Refused(CommandError),
    /// An address cannot be listened on.
    #[error(
        "cannot listen on {setting} = {address}: {problem}; if another process uses the port, give this one its own"
    )]
    Listen {
        /// The setting.
        setting: &'static str,
        /// What it says.
        address: SocketAddr,
        /// What happened.
        problem: std::io::Error,
    },
    /// A turn did not end in time. It goes on, or waits in the queue.
    #[error(
        "message `{job_id}` of session `{session_id}` was not answered within {limit:?}; is a worker running? It stays queued"
    )]
    Overdue {
        /// The session.
        session_id: String,
        /// The message.
        job_id: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A run did not end in time. It goes on, or waits in the queue.
    #[error("run `{run_id}` did not end within {limit:?}; is a worker running? It stays queued")]
    Running {
        /// The run.
        run_id: String,
        /// How long it was waited for.
        limit: Duration,
    },
}

impl From<CommandError> for EngineError {
    fn from(error: CommandError) -> Self {
        Self::Refused(error)
    }
}
