//! The HTTP gateway (CONTRACT.md, "HTTP").
//!
//! A request's way: `serve` takes its connection within the `limits`, [`trace`] gives it an id, `auth` asks for its token,
//! `input` reads path, query and body, then the
//! handler: `messages` and `control` publish by [`intake`], `sessions`, `agents` and `health` ask the store, `events`
//! follows the out stream. Every refusal is a [`Reject`].

mod agents;
mod auth;
mod control;
mod events;
mod health;
mod input;
pub mod intake;
mod limits;
mod messages;
pub mod reject;
mod serve;
mod sessions;
mod trace;

pub use agents::AgentSummary;
pub use limits::Limits;
pub use reject::Reject;
pub use serve::serve;
pub use sessions::SessionSummary;

use crate::agent::validate::Known;
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
use limits::Streams;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The largest body: 1 MiB of text, and 64 KiB for what is around it.
pub const MAX_BODY: usize = 1024 * 1024 + 64 * 1024;

/// What the handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct GatewayState {
    /// Takes jobs, has the events.
    pub queue: Arc<dyn Queue>,
    /// Has sessions, turns and agents.
    pub store: Arc<dyn Store>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// What agents are checked against.
    known: Arc<Known>,
    models: Option<Arc<dyn Fn() -> Vec<ModelInfo> + Send + Sync>>,
    tokens: Tokens,
    limits: Limits,
    streams: Streams,
    stop: CancellationToken,
}

impl GatewayState {
    /// The state of a gateway on `queue` and `store`.
    pub fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, settings: Arc<Settings>) -> Self {
        let tokens = Tokens::new(&settings.gateway.tokens);
        let known = Arc::new(Known::new(&settings, Flows::builtin().ids()));
        let limits = Limits::new(&settings);
        let (streams, stop) = (Streams::new(&limits), CancellationToken::new());
        Self { queue, store, settings, known, models: None, tokens, limits, streams, stop }
    }

    /// The same within other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, streams: Streams::new(&limits), ..self }
    }

    /// The same, for a program with flows, functions or models of its own, which agents may name.
    pub fn with_known(self, known: Known) -> Self {
        Self { known: Arc::new(known), ..self }
    }

    /// The same, with event streams that end at `stop`. [`serve()`] has its own.
    pub fn until(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
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
    api.merge(health)
        .layer(from_fn_with_state(state.limits, limits::body_in_time))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(trace::request_id))
        .with_state(state)
}

#[cfg(test)]
mod tests;
