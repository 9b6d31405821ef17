//! Serves the authoring agent over gRPC, in addition to the gateway's HTTP.

use super::author::OwnAuthor;
use super::{Engine, EngineError};
use ::grpc::{Author, RemoteAuthor};
use base::tasks::OnPanic;
use gateway::GrpcServer;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tracing::info;

impl Engine {
    /// Serves the authoring agent over gRPC on `gateway.grpc_listen` until [`Engine::stop`]. Returns the address, which
    /// has the real port if the setting's port is 0; `None` if the settings have no address.
    pub async fn start_grpc(&self) -> Result<Option<SocketAddr>, EngineError> {
        let Some(address) = self.settings.gateway.grpc_listen else { return Ok(None) };
        self.serve_author(self.author()?, address).await.map(Some)
    }

    /// Serves this authoring agent over gRPC on `address` until [`Engine::stop`], for callers with the gateway's
    /// tokens. Returns the address, which has the real port if the port was 0.
    pub async fn serve_author(&self, author: Arc<dyn Author>, address: SocketAddr) -> Result<SocketAddr, EngineError> {
        let failed = |source| EngineError::Listen { setting: "gateway.grpc_listen", address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let server = GrpcServer::new(listener, self.gateway(), author)?;
        info!("gRPC on {address}");
        let (stop, failing) = (self.roles.stop_token(), self.roles.clone());
        self.roles.spawn("grpc", OnPanic::Shutdown, async move {
            if let Err(error) = server.serve(stop).await {
                failing.fail(format!("gRPC on {address} failed: {error}"));
            }
        });
        Ok(address)
    }

    /// The authoring agent: the one of `authoring.endpoint`, else one in this process, which writes nothing.
    pub fn author(&self) -> Result<Arc<dyn Author>, EngineError> {
        match self.remote_author()? {
            Some(remote) => Ok(Arc::new(remote)),
            None => Ok(Arc::new(OwnAuthor::new(self.services()?))),
        }
    }

    /// The authoring agent of `authoring.endpoint`, whose connection all roles of this process share.
    pub(super) fn remote_author(&self) -> Result<Option<RemoteAuthor>, EngineError> {
        if let Some(remote) = self.remote_author.get() {
            return Ok(Some(remote.clone()));
        }
        let remote = RemoteAuthor::from_settings(&self.settings.authoring, self.clock.clone())?;
        Ok(remote.map(|remote| self.remote_author.get_or_init(|| remote).clone()))
    }
}
