//! The HTTP gateway; `docs/contract/http.md` describes its endpoints.
//!
//! A request passes these files:
//!
//! 1. `serve` accepts the connection within the `limits`.
//! 2. `trace` assigns the request id and counts the request; `cors` responds to browsers' preflight requests.
//! 3. `auth` checks the bearer token.
//! 4. `input` reads path, query and body.
//! 5. The handler calls the crate `commands` and turns the result into JSON. `messages`, `control` and `run_stream`
//!    publish jobs. `sessions`, `timers`, `agents`, `models`, `knowledge`, `workflows`, `runs`,
//!    `dead_letters` and `processes` read and write the store. `health`, `doctor` and `metrics` report how the
//!    deployment works.
//! 6. `events` and `run_stream` respond with server-sent events: `event_stream` resumes after losses of the queue,
//!    `run_events` selects the events of one run.
//!
//! Every error response is a [`Reject`], and every route is described in `openapi`.

mod agents;
mod auth;
mod control;
mod cors;
mod dead_letters;
mod doctor;
mod event_stream;
mod events;
mod exposition;
mod health;
mod input;
mod knowledge;
mod limits;
mod messages;
mod metrics;
mod models;
mod openapi;
mod processes;
mod reject;
mod run_events;
mod run_stream;
mod runs;
mod serve;
mod sessions;
mod timers;
mod trace;
mod workflows;

pub use limits::Limits;
pub use reject::Reject;
pub use serve::{serve, serve_watch};

use auth::BearerTokens;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Router};
use base::config::Settings;
use cors::Origins;
use definitions::agent::validate::KnownNames;
use engine::knowledge::Library;
use engine::model::registry::ModelInfo;
use engine::workflow::Flows;
use limits::StreamSlots;
use openapi::{Document, Routes};
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;
use tokio_util::sync::CancellationToken;

/// The largest request body in bytes: a text of 1 MiB, of which JSON may escape every character, and 64 KiB for the other
/// fields.
pub const MAX_BODY: usize = 2 * 1024 * 1024 + 64 * 1024;

/// The dependencies of the handlers. Cheap to clone.
#[derive(Clone)]
pub struct GatewayState {
    /// Holds jobs, events and dead letters.
    pub queue: Arc<dyn Queue>,
    /// Holds sessions, turns, agents and workflows.
    pub store: Arc<dyn Store>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// The names that an agent may use: models, flows, functions, secrets.
    known: Arc<KnownNames>,
    /// The flows that workflows may name, besides agents and other workflows.
    flows: Flows,
    models: Option<Arc<dyn Fn() -> Vec<ModelInfo> + Send + Sync>>,
    tokens: BearerTokens,
    cors: Origins,
    knowledge: Library,
    limits: Limits,
    streams: StreamSlots,
    stop: CancellationToken,
    /// Whether sessions are shown with their lease and open turn, and lanes of runs are shown as sessions.
    internals: bool,
}

impl GatewayState {
    /// The state of a gateway on `queue` and `store`.
    pub fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, settings: Arc<Settings>) -> Self {
        let tokens = BearerTokens::new(&settings.gateway.tokens);
        let known = Arc::new(KnownNames::new(&settings, Flows::builtin().ids()));
        let cors = Origins::new(&settings.gateway.cors);
        let limits = Limits::new(&settings);
        let (streams, stop) = (StreamSlots::new(&limits), CancellationToken::new());
        let (flows, knowledge) = (Flows::builtin(), Library::new(Arc::clone(&store)));
        Self {
            queue,
            store,
            settings,
            known,
            flows,
            models: None,
            tokens,
            cors,
            knowledge,
            limits,
            streams,
            stop,
            internals: false,
        }
    }

    /// Replaces the limits that come from the settings.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, streams: StreamSlots::new(&limits), ..self }
    }

    /// Replaces the names that agents may use, for a program with its own flows, functions or models.
    pub fn with_known(self, known: KnownNames) -> Self {
        Self { known: Arc::new(known), ..self }
    }

    /// Shares the knowledge indexes of this process's worker, so that a refresh reaches both.
    pub fn with_knowledge(self, knowledge: Library) -> Self {
        Self { knowledge, ..self }
    }

    /// Replaces the flows that workflows may name, for a program with its own flows.
    pub fn with_flows(self, flows: Flows) -> Self {
        Self { flows, ..self }
    }

    /// Shows sessions with their lease and their open turn, and the lanes of runs as sessions. For operators.
    pub fn with_internals(self) -> Self {
        Self { internals: true, ..self }
    }

    /// Ends open event streams when `stop` is cancelled. [`serve()`] sets this itself.
    pub fn until(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Replaces the list of models that comes from the settings, for a program that adds models in Rust.
    pub fn with_models(self, listing: impl Fn() -> Vec<ModelInfo> + Send + Sync + 'static) -> Self {
        Self { models: Some(Arc::new(listing)), ..self }
    }
}

/// Builds the router with all routes of a gateway.
pub fn router(state: GatewayState) -> Router {
    let tokens = !state.tokens.is_empty();
    let (api, described) = api_routes().parts(tokens);
    let (health, open) = health_routes().parts(false);
    let api = api
        .fallback(async || Reject::unknown_path("all endpoints are in /openapi.json; messages go to /api/v1/messages"))
        .method_not_allowed_fallback(async || Reject::wrong_method())
        .layer(from_fn_with_state(state.clone(), auth::require))
        .layer(Extension(Document::new([described, open])));
    let health = health.method_not_allowed_fallback(async || Reject::wrong_method());
    around(api.merge(health), state)
}

/// The routes of a process without a gateway.
fn watch_router(state: GatewayState) -> Router {
    let (routes, _) = health_routes().add::<metrics::__path_show>(get(metrics::show)).parts(false);
    let hint = "this process is not a gateway; it serves only /healthz, /readyz and /metrics";
    let routes = routes
        .fallback(async move || Reject::unknown_path(hint))
        .method_not_allowed_fallback(async || Reject::wrong_method());
    around(routes, state)
}

/// What holds for every request.
fn around(routes: Router<GatewayState>, state: GatewayState) -> Router {
    let cors = state.cors.layer();
    let bounded =
        routes.layer(from_fn_with_state(state.limits, limits::body_in_time)).layer(DefaultBodyLimit::max(MAX_BODY));
    let open = match cors {
        Some(cors) => bounded.layer(cors),
        None => bounded,
    };
    open.layer(from_fn(trace::request_id)).with_state(state)
}

fn health_routes() -> Routes {
    Routes::new().add::<health::__path_alive>(get(health::alive)).add::<health::__path_ready>(get(health::ready))
}

fn api_routes() -> Routes {
    Routes::new()
        .add::<messages::__path_post_message>(post(messages::post_message))
        .add::<sessions::__path_list>(get(sessions::list))
        .add::<sessions::__path_show>(get(sessions::show))
        .add::<sessions::__path_turns>(get(sessions::turns))
        .add::<sessions::__path_turn>(get(sessions::turn))
        .add::<events::__path_follow>(get(events::follow))
        .add::<control::__path_cancel>(post(control::cancel))
        .add::<control::__path_release>(post(control::release))
        .add::<control::__path_close>(post(control::close))
        .add::<control::__path_reply>(post(control::reply))
        .add::<control::__path_cancel_timers>(post(control::cancel_timers))
        .add::<timers::__path_list>(get(timers::list))
        .add::<dead_letters::__path_get_all>(get(dead_letters::get_all))
        .add::<dead_letters::__path_get_one>(get(dead_letters::get_one))
        .add::<dead_letters::__path_post_replay>(post(dead_letters::post_replay))
        .add::<doctor::__path_examine>(get(doctor::examine))
        .add::<processes::__path_list>(get(processes::list))
        .add::<agents::__path_list>(get(agents::list))
        .add::<agents::__path_show>(get(agents::show))
        .add::<agents::__path_apply>(put(agents::apply))
        .add::<models::__path_show>(get(models::show))
        .add::<knowledge::__path_list>(get(knowledge::list))
        .add::<knowledge::__path_find>(get(knowledge::find))
        .add::<knowledge::__path_store>(put(knowledge::store))
        .add::<knowledge::__path_delete>(delete(knowledge::delete))
        .add::<workflows::__path_list>(get(workflows::list))
        .add::<workflows::__path_show>(get(workflows::show))
        .add::<workflows::__path_put>(put(workflows::put))
        .add_everywhere::<workflows::__path_structure>(&get(workflows::structure))
        .add_everywhere::<run_stream::__path_post_run>(&post(run_stream::post_run))
        .add_everywhere::<run_stream::__path_get_run>(&get(run_stream::get_run))
        .add::<run_stream::__path_post_start>(post(run_stream::post_start))
        .add::<run_stream::__path_follow>(get(run_stream::follow))
        .add::<runs::__path_list>(get(runs::list))
        .add::<runs::__path_show>(get(runs::show))
        .add::<runs::__path_cancel>(post(runs::cancel))
        .add::<runs::__path_resume>(post(runs::resume))
        .add::<runs::__path_restart>(post(runs::restart))
        .add::<metrics::__path_show>(get(metrics::show))
        .add::<openapi::__path_show>(get(openapi::show))
}

#[cfg(test)]
mod tests;
