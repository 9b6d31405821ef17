//! HTTP: the gateway, and the endpoints for monitoring of processes without one.

use super::rehearsal::LiveRehearsal;
use super::trial::TrialRoom;
use super::{Engine, EngineError};
use base::tasks::OnPanic;
use engine::definition_files::DefinitionFiles;
use engine::model::Models;
use engine::model::registry::ModelInfo;
use gateway::GatewayState;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tracing::info;

impl Engine {
    /// Serves HTTP on `gateway.listen` until [`Engine::stop`]. Returns the address, which has the real port if the
    /// setting's port is 0.
    pub async fn start_gateway(&self) -> Result<SocketAddr, EngineError> {
        let address = self.settings.gateway.listen;
        let failed = |source| EngineError::Listen { setting: "gateway.listen", address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (state, stop, failing) = (self.gateway(), self.roles.stop_token(), self.roles.clone());
        info!("gateway on http://{address}");
        self.roles.spawn("gateway", OnPanic::Shutdown, async move {
            if let Err(error) = gateway::serve(listener, state, stop).await {
                failing.fail(format!("the gateway on http://{address} failed: {error}"));
            }
        });
        self.announce("gateway");
        Ok(address)
    }

    /// Makes gateways that start later write applied agents and workflows into the files of `agents_dir` and
    /// `workflows_dir`, if these folders exist. For a process that applies these files whenever they change; it has to
    /// hold the result while it does.
    pub fn write_files(&self) -> Arc<DefinitionFiles> {
        Arc::clone(self.files.get_or_init(|| Arc::new(DefinitionFiles::new(&self.settings))))
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on `address` until [`Engine::stop`], without a token: for processes
    /// without a gateway. Returns the address, which has the real port if the port was 0.
    pub async fn start_watch(&self, address: SocketAddr) -> Result<SocketAddr, EngineError> {
        let failed = |source| EngineError::Listen { setting: "metrics.listen", address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        info!("metrics on http://{address}/metrics");
        let served = gateway::serve_watch(listener, self.gateway(), self.roles.stop_token());
        self.roles.spawn("metrics", OnPanic::Log, served);
        Ok(address)
    }

    /// Returns the gateway's routes, to merge them into a program's own router. Event streams end with
    /// [`Engine::stop`].
    pub fn router(&self) -> axum::Router {
        gateway::router(self.gateway().until(self.roles.stop_token()))
    }

    pub(super) fn gateway(&self) -> GatewayState {
        let (asked, named) = (Arc::clone(&self.asked), self.model_infos());
        let state = GatewayState::new(Arc::clone(&self.queue), Arc::clone(&self.store), Arc::clone(&self.settings));
        let state = match self.files.get() {
            Some(files) => state.with_definition_files(Arc::clone(files)),
            None => state,
        };
        state
            .with_known(self.known())
            .with_flows(self.flows.clone())
            .with_knowledge(self.knowledge.clone())
            .with_sandbox(Arc::clone(&self.sandbox))
            .with_connectors(Arc::clone(&self.connectors))
            .with_trials(Arc::new(TrialRoom::of(self)))
            .with_replays(Arc::new(LiveRehearsal::of(self)))
            .with_models(move || asked.get().map_or_else(|| named.clone(), Models::names))
    }

    pub(super) fn model_infos(&self) -> Vec<ModelInfo> {
        let added = |name: &str| self.models.iter().any(|(added, _)| added == name);
        let mut infos = ModelInfo::from_settings(&self.settings);
        infos.retain(|info| !added(&info.name));
        infos.extend(self.models.iter().map(|(name, _)| ModelInfo::from_rust(name)));
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }
}
