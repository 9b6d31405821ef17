//! The gRPC server: an [`Author`], health (`grpc.health.v1`) and reflection (v1 and v1alpha).
//!
//! - [`admission`] decides who may call, before a message is read;
//! - [`connection`] is a connection that the caller of [`Server::serve`] has accepted;
//! - `conversation` runs the author for one call and ends its stream;
//! - `deadline` reads the time limit of a call.

pub mod admission;
pub mod connection;
mod conversation;
mod deadline;

pub use admission::{Admission, Admitted, Call, Purpose, Refusal};
pub use connection::Accepted;

use crate::author::Author;
use crate::generated::{DESCRIPTORS, workflow_agent::workflow_agent_server::WorkflowAgentServer};
use axum::middleware::from_fn_with_state;
use base::tasks::Tasks;
use connection::Connection;
use conversation::Conversations;
use futures::{Stream, StreamExt};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::{Identity, Server as Transport, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;

/// How often an idle connection is examined, and how long its client may take to respond.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The most calls of one connection at the same time.
const MAX_CALLS_PER_CONNECTION: u32 = 256;
/// How long a client may take for its TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long clients may take for the end of their streams after the server has ended them.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// The certificate chain of the server and its private key, both in PEM.
pub struct ServerCertificate {
    /// The certificate chain.
    pub chain: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

/// Why a server cannot serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The certificate or its key is unusable.
    #[error("the certificate or its private key is unusable; check `gateway.grpc_cert` and `gateway.grpc_key`")]
    Certificate(#[source] tonic::transport::Error),
    /// The built-in descriptors are damaged.
    #[error("reflection cannot start")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the gRPC server failed")]
    Transport(#[source] tonic::transport::Error),
}

/// A server that does not serve yet.
pub struct Server {
    author: Arc<dyn Author>,
    admission: Arc<dyn Admission>,
    transport: Transport,
    grace: Duration,
}

impl Server {
    /// A server without TLS.
    pub fn new(author: Arc<dyn Author>, admission: Arc<dyn Admission>) -> Self {
        Self { author, admission, transport: transport(), grace: Duration::from_secs(5) }
    }

    /// Serves TLS with this certificate, and nothing without TLS; without a certificate, no TLS.
    pub fn with_certificate(self, certificate: Option<ServerCertificate>) -> Result<Self, ServeError> {
        let Some(ServerCertificate { chain, key }) = certificate else { return Ok(self) };
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(chain, key)).timeout(HANDSHAKE_TIMEOUT);
        let transport = self.transport.tls_config(tls).map_err(ServeError::Certificate)?;
        Ok(Self { transport, ..self })
    }

    /// Replaces the time that streams get to end after `stop`; 5 s unless given.
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Serves these connections until `stop`.
    ///
    /// From `stop` on, health reports `NOT_SERVING` and no connection is taken. Streams get the time of
    /// [`Server::with_grace`] to end; then they end with `UNAVAILABLE`, and all connections close.
    pub async fn serve(
        self,
        connections: impl Stream<Item = Accepted> + Send,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let (tasks, cut) = (Tasks::new(), CancellationToken::new());
        let (health, health_service) = tonic_health::server::health_reporter();
        let conversations = Conversations::new(self.author, tasks.clone(), self.grace, stop.clone());
        let agent = WorkflowAgentServer::new(conversations)
            .max_decoding_message_size(crate::MAX_MESSAGE)
            .max_encoding_message_size(crate::MAX_MESSAGE);
        health.set_serving::<WorkflowAgentServer<Conversations>>().await;
        let routes = routes(agent, health_service, self.admission)?;
        let closing = cut.clone();
        let incoming = connections.map(move |accepted| Ok::<_, Infallible>(Connection::new(accepted, closing.clone())));
        let draining = CancellationToken::new();
        let mut transport = self.transport;
        let serving =
            transport.add_routes(routes).serve_with_incoming_shutdown(incoming, draining.clone().cancelled_owned());
        let mut serving = pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = stop.cancelled() => {
                health.set_service_status("", ServingStatus::NotServing).await;
                health.set_not_serving::<WorkflowAgentServer<Conversations>>().await;
                draining.cancel();
                // A client that keeps a connection open must not keep the process alive.
                tokio::time::timeout(self.grace + CLOSING_TIME, serving).await.unwrap_or(Ok(()))
            }
        };
        cut.cancel();
        tasks.shutdown(CLOSING_TIME).await;
        ended.map_err(ServeError::Transport)
    }
}

fn transport() -> Transport {
    Transport::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(MAX_CALLS_PER_CONNECTION)
}

/// All services. Health is open; the others need admission.
fn routes(
    agent: WorkflowAgentServer<Conversations>,
    health: HealthServer<impl tonic_health::pb::health_server::Health>,
    admission: Arc<dyn Admission>,
) -> Result<Routes, ServeError> {
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let routes = Routes::new(agent)
        .add_service(health)
        .add_service(described().build_v1().map_err(ServeError::Reflection)?)
        .add_service(described().build_v1alpha().map_err(ServeError::Reflection)?);
    Ok(routes.into_axum_router().layer(from_fn_with_state(admission, admission::guard)).into())
}
