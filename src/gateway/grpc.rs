//! gRPC, in addition to HTTP: the authoring agent, for callers with a token of the same settings.

use super::caller::Caller;
use super::roles::AUTHORS;
use super::serve::Intake;
use super::{GatewayState, Reject, auth};
use ::grpc::{Accepted, Admission, Admitted, Author, Call, Purpose, Refusal, ServeError, Server, ServerCertificate};
use async_trait::async_trait;
use axum::http::StatusCode;
use base::config::Gateway;
use futures::stream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::access::Role;

/// Why gRPC cannot be served.
#[derive(Debug, Error)]
pub enum GrpcError {
    /// gRPC would have no tokens on an address that is not loopback, so everyone could call it.
    #[error(
        "gateway.tokens: neither these nor gateway.access are set, so gateway.grpc_listen = {0} would be open to \
         everyone; set tokens, or listen on 127.0.0.1"
    )]
    Open(std::net::SocketAddr),
    /// The listener has no local address.
    #[error("the listener of gateway.grpc_listen failed")]
    Listener(#[source] std::io::Error),
    /// A file of the certificate cannot be read.
    #[error("{setting}: the file `{}` cannot be read; check the path and its rights", path.display())]
    Unreadable {
        /// The setting that names the file.
        setting: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The server failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// A gRPC server before it starts to serve.
pub struct GrpcServer {
    listener: TcpListener,
    state: GatewayState,
    server: Server,
}

impl GrpcServer {
    /// Reads the certificate of the settings. Fails if it is unusable, or if the settings have no tokens and the
    /// listener's address is not a loopback address.
    pub fn new(listener: TcpListener, state: GatewayState, author: Arc<dyn Author>) -> Result<Self, GrpcError> {
        let address = listener.local_addr().map_err(GrpcError::Listener)?;
        if !address.ip().to_canonical().is_loopback() && state.tokens.is_empty() {
            return Err(GrpcError::Open(address));
        }
        let certificate = certificate(&state.settings.gateway)?;
        let server = Server::new(author, Arc::new(Gate(state.clone()))).with_certificate(certificate)?;
        Ok(Self { listener, state, server })
    }

    /// Serves until `stop`. After it, health reports `NOT_SERVING`, and open streams have 5 s to end.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), GrpcError> {
        let intake = Intake::new(self.listener, self.state.limits, stop.clone());
        let connections = stream::unfold(intake, async |mut intake| {
            let (stream, peer, slots) = intake.next().await?;
            Some((Accepted { stream, peer, held: Box::new(slots) }, intake))
        });
        Ok(self.server.serve(connections, stop).await?)
    }
}

/// The certificate of the settings; `None` if gRPC is served without TLS.
fn certificate(settings: &Gateway) -> Result<Option<ServerCertificate>, GrpcError> {
    let (Some(chain), Some(key)) = (&settings.grpc_cert, &settings.grpc_key) else { return Ok(None) };
    let read = |setting, path: &Path| {
        std::fs::read(path).map_err(|source| GrpcError::Unreadable { setting, path: path.to_owned(), source })
    };
    let (chain, key) = (read("gateway.grpc_cert", chain)?, read("gateway.grpc_key", key)?);
    Ok(Some(ServerCertificate { chain, key }))
}

/// Admits callers by the gateway's tokens.
struct Gate(GatewayState);

#[async_trait]
impl Admission for Gate {
    async fn admit(&self, call: Call<'_>) -> Result<Admitted, Refusal> {
        let caller = auth::caller(&self.0, call.headers, call.peer).await.map_err(refusal)?;
        let place = caller.quota().enter().map_err(refusal)?;
        may_author(&caller).map_err(refusal)?;
        let stream = match call.purpose {
            Purpose::Converse => Some(self.0.streams.take().map_err(refusal)?),
            Purpose::Describe => None,
        };
        let only_user = (caller.role() == Role::Author).then(|| caller.name().to_owned());
        Ok(Admitted { only_user, held: Arc::new((place, stream)) })
    }
}

/// Fails unless the role of the caller may author for all sessions.
fn may_author(caller: &Caller) -> Result<(), Reject> {
    if !AUTHORS.contains(&caller.role()) {
        return Err(caller.lacks(AUTHORS));
    }
    if caller.role() != Role::Author && !caller.scope().is_everything() {
        return Err(caller.is_limited("a call of gRPC has any session"));
    }
    Ok(())
}

fn refusal(reject: Reject) -> Refusal {
    let Reject { status, code, message, hint, .. } = reject;
    let text = format!("{message}; {hint}");
    match status {
        StatusCode::UNAUTHORIZED => Refusal::Unauthenticated(text),
        StatusCode::FORBIDDEN => Refusal::Forbidden(text),
        StatusCode::TOO_MANY_REQUESTS => Refusal::Exhausted(text),
        _ if code == "too_many_streams" => Refusal::Exhausted(text),
        _ => Refusal::Unavailable(text),
    }
}
