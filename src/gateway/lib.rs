//! The HTTP gateway; `docs/contract/http.md` describes its endpoints.
//!
//! A request passes these files:
//!
//! 1. `serve` accepts the connection within the `limits`, and within those of its address (`addresses`).
//! 2. `trace` assigns the request id and counts the request; `cors` responds to browsers' preflight requests.
//! 3. `auth` finds the caller by its bearer token (`tokens`, `caller`) or by the `cookie` of a `login`, and counts
//!    `failures`.
//! 4. `access` checks the caller's role (`roles`), scope and `quota`, and `audit` stores an entry for each action.
//! 5. `input` reads path, query and body.
//! 6. The handler calls the crate `commands` and turns the result into JSON. `messages`, `control` and `run_stream`
//!    publish jobs. `claims` and `handoffs` are for the people who have a conversation; `front_ends` says what of it is
//!    not for the user. `sessions`, `timers`, `agents`, `models`, `knowledge`, `workflows` (both with `documents`),
//!    `runs`, `dead_letters` and `processes` read and write the store. `decisions` judges decisions. `health`, `doctor`
//!    and `metrics` report how the deployment works.
//! 7. `events` and `run_stream` respond with server-sent events: `event_stream` resumes after losses of the queue,
//!    `run_events` selects the events of one run. `all_events` has those of all sessions: `hub` reads them once for all
//!    readers, `sights` decides what each of them sees, and `event_frames` has the format.
//!
//! `console` serves web pages that call these endpoints.
//!
//! `grpc` serves the authoring agent over gRPC, with the same limits, tokens and roles.
//!
//! Every error response is a [`Reject`]. `routes` lists all routes with the errors that they may respond with.
//! `openapi` describes them by the `operation` above each handler, `schemas`, `error_codes` and `examples`.

mod access;
mod addresses;
mod agents;
mod all_events;
mod audit;
mod auth;
mod authoring;
mod backup;
mod caller;
mod claims;
mod console;
mod control;
mod cookie;
mod cors;
mod dead_letters;
mod decisions;
mod deletion;
mod doctor;
mod documents;
mod error_codes;
mod event_frames;
mod event_stream;
mod events;
mod examples;
mod exposition;
mod failures;
mod front_ends;
mod grpc;
mod handoffs;
mod health;
mod hub;
mod input;
mod knowledge;
mod limits;
mod login;
mod messages;
mod metrics;
mod models;
mod openapi;
mod operation;
mod processes;
mod quota;
mod reject;
mod roles;
mod routes;
mod run_events;
mod run_stream;
mod runs;
mod schemas;
mod serve;
mod sessions;
mod sights;
mod timers;
mod tokens;
mod trace;
mod workflows;

pub use self::grpc::{GrpcError, GrpcServer};
pub use limits::Limits;
pub use reject::Reject;
pub use serve::{serve, serve_watch};

use authoring::replays::Replays;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use base::clock::Clock;
use base::config::{Environment, Settings};
use base::tasks::Tasks;
use commands::documents::Desk;
use connectors::Connectors;
use console::Files;
use cookie::Cookies;
use cors::Origins;
use definitions::agent::validate::KnownNames;
use engine::authoring::Workbench;
use engine::definition_files::DefinitionFiles;
use engine::knowledge::Library;
use engine::model::registry::ModelInfo;
use engine::rehearsal::trial::Try;
use engine::replay::Replay;
use engine::workflow::Flows;
use failures::Failures;
use health::Readiness;
use hub::Hub;
use limits::StreamSlots;
use openapi::{Access, Document};
use quota::AgentRates;
use sandbox::Sandbox;
use sights::Addresses;
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;
use tokens::Tokens;
use tokio_util::sync::CancellationToken;

/// The largest request body in bytes: a text of 1 MiB, of which JSON may escape every character, and 64 KiB for the
/// other fields.
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
    tokens: Tokens,
    failures: Failures,
    cors: Origins,
    knowledge: Library,
    /// Compiles the scripts of decisions.
    sandbox: Arc<Sandbox>,
    /// The databases that the doctor examines.
    connectors: Arc<Connectors>,
    limits: Limits,
    streams: StreamSlots,
    /// Trials of drafts; `None` if this process cannot build an engine.
    trials: Option<Arc<dyn Try>>,
    /// Replays recorded turns against drafts.
    replayer: Option<Arc<dyn Replay>>,
    replays: Replays,
    /// The files of agents and workflows that follow the store; `None` except in `dev`.
    definition_files: Option<Arc<DefinitionFiles>>,
    /// The files of the console.
    console: Files,
    /// The events of all sessions.
    hub: Hub,
    /// The channels and agents of sessions.
    addresses: Addresses,
    /// The keys of logins.
    cookies: Cookies,
    agent_rates: Arc<AgentRates>,
    /// The result of the last examination for `/readyz`.
    readiness: Readiness,
    stop: CancellationToken,
    /// Whether sessions are shown with their lease and open turn, and lanes of runs are shown as sessions.
    internals: bool,
}

impl GatewayState {
    /// The state of a gateway on `queue` and `store`.
    pub fn new(queue: Arc<dyn Queue>, store: Arc<dyn Store>, settings: Arc<Settings>) -> Self {
        let known = Arc::new(KnownNames::new(&settings, Flows::builtin().ids()));
        let cors = Origins::new(&settings.gateway.cors);
        let limits = Limits::new(&settings);
        let agent_rates = Arc::new(AgentRates::new(settings.gateway.agent_messages_per_minute));
        let (streams, stop) = (StreamSlots::new(&limits), CancellationToken::new());
        let (flows, knowledge) = (Flows::builtin(), Library::new(Arc::clone(&store)));
        let env = Environment::from_process();
        let hub = Hub::new(Arc::clone(&queue));
        let cookies = Cookies::new(Arc::clone(&store));
        let console = Files::new(settings.console.dir.as_deref());
        let gateway_tokens = Tokens::new(&settings.gateway, &env, None);
        let sandbox = Arc::new(Sandbox::new(&settings.python, None, &env, Tasks::new()));
        let connectors = Arc::new(Connectors::new(&settings.connectors, &env, &Tasks::new()));
        Self {
            queue,
            store,
            settings,
            known,
            flows,
            models: None,
            tokens: gateway_tokens,
            failures: Failures::default(),
            cors,
            knowledge,
            sandbox,
            connectors,
            limits,
            streams,
            trials: None,
            replayer: None,
            replays: Replays::default(),
            definition_files: None,
            console,
            cookies,
            hub,
            addresses: Addresses::new(),
            agent_rates,
            readiness: Readiness::default(),
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

    /// Shares the sandbox of this process's worker.
    pub fn with_sandbox(self, sandbox: Arc<Sandbox>) -> Self {
        Self { sandbox, ..self }
    }

    /// Shares the connectors of this process's worker.
    pub fn with_connectors(self, connectors: Arc<Connectors>) -> Self {
        Self { connectors, ..self }
    }

    /// Adds the trials of drafts in this process.
    pub fn with_trials(self, trials: Arc<dyn Try>) -> Self {
        Self { trials: Some(trials), ..self }
    }

    /// Writes applied agents and workflows into their files.
    pub fn with_definition_files(self, files: Arc<DefinitionFiles>) -> Self {
        Self { definition_files: Some(files), ..self }
    }

    /// Adds the replays of recorded turns in this process.
    pub fn with_replays(self, replayer: Arc<dyn Replay>) -> Self {
        Self { replayer: Some(replayer), ..self }
    }

    /// Replaces the flows that workflows may name, for a program with its own flows.
    pub fn with_flows(self, flows: Flows) -> Self {
        Self { flows, ..self }
    }

    /// Makes it the gateway of a command: it shows sessions with their lease and their open turn, and the lanes of runs
    /// as sessions; the caller is `cli`.
    pub fn for_command_line(self) -> Self {
        let tokens = Tokens::new(&self.settings.gateway, &Environment::default(), Some("cli"));
        Self { internals: true, tokens, ..self }
    }

    /// Returns the parts of this process that the commands on agents and workflows use.
    fn desk(&self) -> Desk<'_> {
        let (store, known, quotas) = (self.store.as_ref(), self.known.as_ref(), &self.settings.quotas);
        Desk { store, known, flows: self.flows.ids(), quotas, files: self.definition_files.as_deref() }
    }

    /// Returns the parts of this process that authoring uses. A gateway does not rehearse.
    fn workbench(&self) -> Workbench {
        let (settings, known) = (&self.settings, KnownNames::clone(&self.known));
        Workbench::new(Arc::clone(&self.store), settings, known, self.flows.ids(), Clock::system())
            .with_files(self.definition_files.clone())
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
    let access = if state.tokens.is_empty() { Access::ThisMachine } else { Access::Token };
    let (api, described) = routes::api(access, &state).parts();
    let (health, open) = routes::health().parts();
    let (logins, described_logins) = routes::logins().parts();
    let api = api
        .fallback(async || Reject::unknown_path("all endpoints are in /openapi.json; messages go to /api/v1/messages"))
        .method_not_allowed_fallback(async || Reject::wrong_method())
        .layer(from_fn_with_state(state.clone(), auth::require))
        .layer(Extension(Document::new(described.into_iter().chain(described_logins).chain(open))));
    let health = health.method_not_allowed_fallback(async || Reject::wrong_method());
    let logins = logins.method_not_allowed_fallback(async || Reject::wrong_method());
    around(api.merge(health).merge(logins).merge(console::routes()), state)
}

/// The routes of a process without a gateway.
fn watch_router(state: GatewayState) -> Router {
    let (routes, _) = routes::health().add(metrics::SHOW, metrics::show, &[]).parts();
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

#[cfg(test)]
mod tests;
