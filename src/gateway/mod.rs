//! The HTTP gateway (CONTRACT.md, "HTTP").
//!
//! A request's way: [`trace`] gives it an id, `auth` asks for its token, `input` reads path, query and body, then the
//! handler: `messages` and `control` publish by [`intake`], `sessions`, `agents` and `health` ask the store, `events`
//! follows the out stream. Every refusal is a [`Reject`].

mod agents;
mod auth;
mod control;
mod events;
mod health;
mod input;
pub mod intake;
mod messages;
pub mod reject;
mod sessions;
mod trace;

pub use agents::AgentSummary;
pub use reject::Reject;
pub use sessions::SessionSummary;

use crate::config::Settings;
use crate::model::registry::ModelInfo;
use crate::queue::Queue;
use crate::store::Store;
use crate::workflow::Flows;
use auth::Tokens;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The largest body: 1 MiB of text, and 64 KiB for what is around it.
pub const MAX_BODY: usize = 1024 * 1024 + 64 * 1024;
/// How long open requests may take after the stop.
const GRACE: Duration = Duration::from_secs(5);

/// What the handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct GatewayState {
    /// Takes jobs, has the events.
    pub queue: Arc<dyn Queue>,
    /// Has sessions, turns and agents.
    pub store: Arc<dyn Store>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// The flows that agents may name.
    flows: Arc<[String]>,
    models: Option<Arc<dyn Fn() -> Vec<ModelInfo> + Send + Sync>>,
    tokens: Tokens,
    stop: CancellationToken,
}

impl GatewayState {
    /// The state of a gateway on `queue` and `store`.
    pub fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, settings: Arc<Settings>) -> Self {
        let tokens = Tokens::new(&settings.gateway.tokens);
        let flows = Flows::builtin().ids().into();
        Self { queue, store, settings, flows, models: None, tokens, stop: CancellationToken::new() }
    }

    /// The same, for a program with flows of its own.
    pub fn with_flows(self, flows: &Flows) -> Self {
        Self { flows: flows.ids().into(), ..self }
    }

    /// The same, with a listing of models in place of the settings' own, for models that were added from Rust.
    pub fn with_models(self, listing: impl Fn() -> Vec<ModelInfo> + Send + Sync + 'static) -> Self {
        Self { models: Some(Arc::new(listing)), ..self }
    }
}

/// All routes.
pub fn router(state: GatewayState) -> Router {
    let api = Router::new()
        .route("/api/v1/messages", post(messages::post_message))
        .route("/api/v1/sessions", get(sessions::list))
        .route("/api/v1/sessions/{session_id}", get(sessions::show))
        .route("/api/v1/sessions/{session_id}/turns", get(sessions::turns))
        .route("/api/v1/sessions/{session_id}/turns/{turn_id}", get(sessions::turn))
        .route("/api/v1/sessions/{session_id}/events", get(events::follow))
        .route("/api/v1/sessions/{session_id}/cancel", post(control::cancel))
        .route("/api/v1/sessions/{session_id}/release", post(control::release))
        .route("/api/v1/sessions/{session_id}/close", post(control::close))
        .route("/api/v1/sessions/{session_id}/reply", post(control::reply))
        .route("/api/v1/agents", get(agents::list))
        .route("/api/v1/agents/{agent_id}", get(agents::show).put(agents::apply))
        .route("/api/v1/models", get(agents::models))
        .fallback(async || Reject::unknown_path())
        .method_not_allowed_fallback(async || Reject::wrong_method())
        .layer(from_fn_with_state(state.clone(), auth::require));
    let health = Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .method_not_allowed_fallback(async || Reject::wrong_method());
    api.merge(health).layer(DefaultBodyLimit::max(MAX_BODY)).layer(from_fn(trace::request_id)).with_state(state)
}

/// Serves until `stop`: event streams end then, other open requests are finished, within a few seconds. Without
/// `gateway.tokens` it refuses any listener but a loopback one.
pub async fn serve(listener: TcpListener, state: GatewayState, stop: CancellationToken) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    if !address.ip().to_canonical().is_loopback() && state.tokens.is_empty() {
        return Err(std::io::Error::other(format!(
            "gateway.tokens: none is set, so gateway.listen = {address} would be open to everybody; set tokens, or \
             listen on 127.0.0.1"
        )));
    }
    let state = GatewayState { stop: stop.clone(), ..state };
    let served = axum::serve(listener, router(state)).with_graceful_shutdown(stop.clone().cancelled_owned());
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = served.into_future() => ended,
        // A client that does not read its answer must not hold the process.
        () = overdue => Ok(()),
    }
}

#[cfg(test)]
mod tests;
