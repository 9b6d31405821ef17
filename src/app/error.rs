//! The error of the engine's interface for programs.

use ::grpc::client::EndpointError;
use commands::error::CommandError;
use definitions::agent::load::AgentError;
use definitions::workflow::read::WorkflowError;
use embedded::store::OpenError;
use engine::action::http::HttpCallerError;
use engine::model::registry::ModelSettingsError;
use gateway::GrpcError;
use std::net::SocketAddr;
use std::time::Duration;
use storage::queue::QueueError;
use storage::store::StoreError;
use thiserror::Error;

/// Why a call of the engine failed.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The embedded file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The queue refused the call or is unreachable.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The store refused the call or is unreachable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A model in the settings cannot be used.
    #[error(transparent)]
    Model(#[from] ModelSettingsError),
    /// The HTTP client for skills and tools cannot be created.
    #[error(transparent)]
    Http(#[from] HttpCallerError),
    /// An agent file cannot be read or has errors.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A workflow cannot be read or has errors.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// A registered function takes params that are not a JSON object.
    #[error(
        "the params of `{id}` are of the JSON type `{kind}`, but an action's params are always an object; use a struct \
         with named fields, or take `NoParams`"
    )]
    Params {
        /// The id under which the function is registered.
        id: String,
        /// The JSON type in its schema.
        kind: String,
    },
    /// A message or command was refused.
    #[error("{}; {}", .0.message, .0.hint)]
    Refused(#[source] CommandError),
    /// The gateway or the metrics endpoint cannot listen on its address.
    #[error(
        "cannot listen on {setting} = {address}: {source}; if another process uses the port, give this one its own"
    )]
    Listen {
        /// The setting that names the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// gRPC cannot be served.
    #[error(transparent)]
    Grpc(#[from] GrpcError),
    /// The settings of the authoring agent on another server cannot be used.
    #[error(transparent)]
    Author(#[from] EndpointError),
    /// A turn did not end within the limit. It stays queued, or continues to run.
    #[error(
        "message `{job_id}` of session `{session_id}` was not answered within {limit:?}; it stays queued; check that \
         a worker runs"
    )]
    Overdue {
        /// The message's session.
        session_id: String,
        /// The message's id.
        job_id: String,
        /// How long the call waited.
        limit: Duration,
    },
    /// A run did not end within the limit. It stays queued, or continues to run.
    #[error("run `{run_id}` did not end within {limit:?}; it stays queued; check that a worker runs")]
    Running {
        /// The run's id.
        run_id: String,
        /// How long the call waited.
        limit: Duration,
    },
}

impl From<CommandError> for EngineError {
    fn from(error: CommandError) -> Self {
        Self::Refused(error)
    }
}
