//! The engine in a program of its own: build it, register functions, start what the process is to do, talk to it.
//!
//! ```
//! use turnwheel::{Engine, NewMessage};
//!
//! /// Where an order is.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Order {
//!     /// Such as A1001.
//!     order_id: String,
//! }
//!
//! async fn order(order: Order) -> Result<String, String> {
//!     Ok(format!("{} is on its way", order.order_id))
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let engine = Engine::in_memory()
//!     .tool("order", order)
//!     .agent(
//!         "id: shop
//! sop: Say where orders are.
//! tools: [{id: order}]
//! rules:
//!   - when: {result_of: order}
//!     decide: {next_status: typing, response: '{result}'}
//!   - when: {matches: '(?<id>A\\d+)'}
//!     decide: {next_status: processing, action: {type: TOOL, target: order, params: {order_id: '{id}'}}}",
//!     )
//!     .start()
//!     .await?;
//! let answer = engine.ask(NewMessage::new("s1", "shop", "Where is A1001?")).await?;
//! assert_eq!(answer.text(), "A1001 is on its way");
//! engine.stop().await;
//! # Ok::<_, turnwheel::EngineError>(())
//! # }).unwrap();
//! ```
//!
//! [`builder`] gathers what it is made of, [`backend`] opens queue and store, [`answer`] waits for the end of a turn,
//! [`workflows`] starts runs and waits for theirs.
//! [`crate::testing`] has one for tests of agents.

mod answer;
mod backend;
mod builder;
mod error;
mod presence;
mod workflows;

pub use answer::Answer;
pub use backend::{Opened, open};
pub use builder::{EngineBuilder, IntoWorkflow};
pub use commands::enqueue::Accepted;
pub use commands::messages::NewMessage;
pub use commands::runs::{NewRun, StartedRun};
pub use engine::action::function::{IntoTool, NoParams, ToolCall};
pub use engine::workflow::{FlowContext, FlowError, IntoFlow, Question};
pub use error::EngineError;

use answer::Awaited;
use base::clock::Clock;
use base::config::{Backend, Environment, SecretValues, Settings};
use base::tasks::{OnPanic, Tasks};
use commands::error::CommandError;
use definitions::agent::AgentRecord;
use definitions::agent::validate::Known;
use definitions::document::Finding;
use definitions::knowledge::files::NamedText;
use definitions::knowledge::source::{Origin, Source};
use engine::action::http::{HttpCaller, SecretFill};
use engine::action::tool::Tools;
use engine::budget::Budgets;
use engine::execution::Services;
use engine::execution::shown::ShownPlans;
use engine::execution::stored::StoredDefinitions;
use engine::knowledge::{Library, sync};
use engine::model::registry::ModelInfo;
use engine::model::{Model, Models};
use engine::prompt::Prompts;
use engine::run;
use engine::timer::scheduler::Scheduler;
use engine::worker::Worker;
use engine::workflow::Flows;
use gateway;
use gateway::GatewayState;
use presence::Presence;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use storage::queue::{From, Queue};
use storage::store::Store;
use tokio::net::TcpListener;
use tracing::{info, warn};
use types::event::Reply;
use types::job::Command;
use types::session::Session;
use types::texts::Shown;

/// What a graceful stop may take beyond `worker.drain_timeout`.
const MARGIN: Duration = Duration::from_secs(10);
/// How long the backend's own tasks may take to end.
const BACKEND_END: Duration = Duration::from_secs(5);

/// What became of an agent that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// It differs from what was applied before.
    pub changed: bool,
    /// What is probably a mistake in it.
    pub warnings: Vec<Finding>,
}

/// An engine on one backend: see the module. Put it into an `Arc` to share it. What it runs ends when it is dropped, in the
/// midst of things; [`Engine::stop`] lets turns come to their end.
pub struct Engine {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    clock: Clock,
    settings: Arc<Settings>,
    env: Environment,
    tools: Tools,
    flows: Flows,
    models: Vec<(String, Arc<dyn Model>)>,
    /// Made when the first worker starts.
    asked: Arc<OnceLock<Models>>,
    knowledge: Library,
    /// Ids of the workflows that were registered here.
    registered: Mutex<BTreeSet<String>>,
    presence: Arc<Presence>,
    patience: Duration,
    backend: Tasks,
    roles: Tasks,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.roles.stop();
        self.backend.stop();
    }
}

impl Engine {
    /// An engine as the settings describe it: see [`Settings::load`] for reading them from `turnwheel.toml`.
    pub fn builder(settings: Settings) -> EngineBuilder {
        EngineBuilder::new(settings, false)
    }

    /// On NATS JetStream and MongoDB, with as many processes as you like.
    pub fn cluster(nats_url: impl Into<String>, mongodb_uri: impl Into<String>) -> EngineBuilder {
        let mut settings = Settings { backend: Backend::Cluster, ..Settings::default() };
        settings.nats.url = nats_url.into();
        settings.mongodb.uri = mongodb_uri.into();
        EngineBuilder::new(settings, false)
    }

    /// On one file in `data_dir`, which this process has for itself.
    pub fn embedded(data_dir: impl AsRef<Path>) -> EngineBuilder {
        let data_dir = data_dir.as_ref().to_owned();
        EngineBuilder::new(Settings { backend: Backend::Embedded, data_dir, ..Settings::default() }, false)
    }

    /// In memory, for trying things out: all is gone with the process.
    pub fn in_memory() -> EngineBuilder {
        EngineBuilder::new(Settings { backend: Backend::Embedded, ..Settings::default() }, true)
    }

    fn new(builder: EngineBuilder, (queue, store): Opened, backend: Tasks) -> Self {
        let EngineBuilder { settings, env, tools, flows, models, patience, .. } = builder;
        let (settings, knowledge) = (Arc::new(settings), Library::new(Arc::clone(&store)));
        let (asked, registered, roles, presence) = (Arc::default(), Mutex::default(), Tasks::new(), Arc::default());
        Self {
            queue,
            store,
            clock: Clock::system(),
            settings,
            env,
            tools,
            flows,
            models,
            asked,
            knowledge,
            registered,
            presence,
            patience,
            backend,
            roles,
        }
    }

    /// The queue.
    pub fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The settings.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// What agents are checked against here: the settings, and what is registered.
    pub fn known(&self) -> Known {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Known::new(&self.settings, self.flows.ids())
            .with_flows(run::known_ids(&self.settings).into_iter().chain(registered))
            .with_models(self.models.iter().map(|(name, _)| name.clone()))
            .with_functions(self.tools.ids())
    }

    /// Checks an agent and stores it. Every turn that starts on any process afterwards uses it.
    pub async fn apply(&self, agent: AgentRecord) -> Result<Applied, EngineError> {
        let (agent, warnings) = self.known().check(agent)?;
        let changed = self.store.put_agent(agent).await?;
        Ok(Applied { changed, warnings })
    }

    /// Makes these texts all that the agent's file gives it to answer from, in place of the last ones; what was added by other
    /// ways stays. True when that changed something.
    pub async fn apply_knowledge(&self, agent_id: &str, texts: Vec<NamedText>) -> Result<bool, EngineError> {
        let changed = sync::store(self.store.as_ref(), agent_id, texts).await?;
        self.knowledge.refresh(agent_id).await?;
        Ok(changed)
    }

    /// Gives an agent a text to answer from, under a name such as `kb/returns.md`: Markdown by that ending, else plain text.
    /// True when that changed something.
    pub async fn add_knowledge(&self, agent_id: &str, name: &str, text: &str) -> Result<bool, EngineError> {
        let source = Source::new(agent_id, (name, text), Origin::Added, self.clock.now())
            .map_err(|error| EngineError::from(CommandError::from(error)))?;
        let changed = self.store.put_knowledge(source).await?;
        self.knowledge.refresh(agent_id).await?;
        Ok(changed)
    }

    /// Runs turns in this process until [`Engine::stop`]. A model or tool of the settings that cannot work is an error.
    pub fn start_worker(&self) -> Result<(), EngineError> {
        let worker = Worker::new(self.services()?, &self.settings);
        let (settings, stop) = (Arc::clone(&self.settings), self.roles.stop_token());
        self.roles.spawn("worker", OnPanic::Shutdown, async move { worker.run(&settings, stop).await });
        self.announce("worker");
        Ok(())
    }

    /// Fires timers from this process until [`Engine::stop`], or stands by while another process does.
    pub fn start_scheduler(&self) {
        let scheduler =
            Scheduler::new(Arc::clone(&self.queue), Arc::clone(&self.store), self.clock.clone(), &self.settings);
        self.roles.spawn("scheduler", OnPanic::Shutdown, scheduler.run(self.roles.stop_token()));
        self.announce("scheduler");
    }

    /// Serves HTTP on `gateway.listen` until [`Engine::stop`]; answers where, which is of use with port 0.
    pub async fn start_gateway(&self) -> Result<SocketAddr, EngineError> {
        let address = self.settings.gateway.listen;
        let failed = |problem| EngineError::Listen { setting: "gateway.listen", address, problem };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (state, stop, failing) = (self.gateway(), self.roles.stop_token(), self.roles.clone());
        info!("gateway on http://{address}");
        if let Some(address) = self.settings.gateway.grpc_listen {
            warn!(%address, "gateway.grpc_listen is set, and this version serves no gRPC: nothing listens there");
        }
        self.roles.spawn("gateway", OnPanic::Shutdown, async move {
            if let Err(error) = gateway::serve(listener, state, stop).await {
                failing.fail(format!("the gateway on http://{address} has ended: {error}"));
            }
        });
        self.announce("gateway");
        Ok(address)
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` there until [`Engine::stop`], without a token; answers where. For processes
    /// without a gateway.
    pub async fn start_watch(&self, address: SocketAddr) -> Result<SocketAddr, EngineError> {
        let failed = |problem| EngineError::Listen { setting: "metrics.listen", address, problem };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        info!("metrics on http://{address}/metrics");
        let served = gateway::serve_watch(listener, self.gateway(), self.roles.stop_token());
        self.roles.spawn("metrics", OnPanic::Log, served);
        Ok(address)
    }

    /// The gateway's routes, to be merged into a program's own. Its event streams end with [`Engine::stop`].
    pub fn router(&self) -> axum::Router {
        gateway::router(self.gateway().until(self.roles.stop_token()))
    }

    fn gateway(&self) -> GatewayState {
        let (asked, named) = (Arc::clone(&self.asked), self.model_infos());
        GatewayState::new(Arc::clone(&self.queue), Arc::clone(&self.store), Arc::clone(&self.settings))
            .with_known(self.known())
            .with_flows(self.flows.clone())
            .with_knowledge(self.knowledge.clone())
            .with_models(move || asked.get().map_or_else(|| named.clone(), Models::names))
    }

    fn model_infos(&self) -> Vec<ModelInfo> {
        let added = |name: &str| self.models.iter().any(|(added, _)| added == name);
        let mut infos = ModelInfo::of_settings(&self.settings);
        infos.retain(|info| !added(&info.name));
        infos.extend(self.models.iter().map(|(name, _)| ModelInfo::of_rust(name)));
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    /// The models that turns of this process ask, with their circuits: the same for all of its workers.
    fn asked_models(&self, secrets: &SecretValues) -> Result<Models, EngineError> {
        if let Some(models) = self.asked.get() {
            return Ok(models.clone());
        }
        let models = Models::from_settings(&self.settings, |name| secrets.api_key(name))?;
        let models = self.models.iter().fold(models, |models, (name, model)| models.with(name, Arc::clone(model)));
        Ok(self.asked.get_or_init(|| models).clone())
    }

    /// What turns work with.
    fn services(&self) -> Result<Services, EngineError> {
        let secrets = Arc::new(SecretValues::new(&self.settings, &self.env));
        let (fill, mask) = (Arc::clone(&secrets), Arc::clone(&secrets));
        let secret_fill = SecretFill::new(
            Arc::new(move |text: &str| fill.fill(text).map_err(|error| error.to_string())),
            Arc::new(move |text: &str| mask.mask(text)),
        );
        Ok(Services {
            queue: Arc::clone(&self.queue),
            store: Arc::clone(&self.store),
            models: self.asked_models(&secrets)?,
            prompts: Prompts::new(EngineBuilder::prompts_dir(&self.settings)),
            shown: ShownPlans::default(),
            http: HttpCaller::new(secret_fill, &self.settings.http.allow_private)?,
            tools: self.tools.clone(),
            flows: self.flows.clone(),
            knowledge: self.knowledge.clone(),
            definitions: Arc::new(StoredDefinitions::new(Arc::clone(&self.store))),
            limits: self.settings.workflow.clone(),
            budgets: Budgets::new(Arc::clone(&self.store), &self.settings.budget),
            keep_turns: self.settings.retention.turns.0,
            clock: self.clock.clone(),
        })
    }

    /// Puts a user's message onto its session's lane. Durable on return; a worker of any process answers it.
    pub async fn send(&self, message: NewMessage) -> Result<Accepted, EngineError> {
        Ok(commands::messages::submit(self.queue.as_ref(), self.store.as_ref(), message).await?)
    }

    /// Sends a user's message and waits for the end of its turn.
    pub async fn ask(&self, message: NewMessage) -> Result<Answer, EngineError> {
        self.ask_listening(message, |_, _| ()).await
    }

    /// The same, and hands each reply on as it comes, with what a reader does with it: texts can be shown while they are made.
    pub async fn ask_listening(
        &self,
        message: NewMessage,
        heard: impl FnMut(&Reply, Shown) + Send,
    ) -> Result<Answer, EngineError> {
        // What is answered from now on is enough, unless the id says that the message may have been sent before.
        let from = if message.job_id.is_none() { From::Now } else { From::After(0) };
        types::ids::check("session_id", &message.session_id).map_err(CommandError::from)?;
        let events = self.queue.events(&message.session_id, from).await?;
        let Accepted { session_id, job_id } = self.send(message).await?;
        Awaited::new(self, &session_id, &job_id).end(events, self.patience, heard).await
    }

    /// Waits for the end of the turn of a message that was sent, or of a timer (`<timer_id>-<generation>`), also when it
    /// ended long ago.
    pub async fn answer(&self, session_id: &str, job_id: &str) -> Result<Answer, EngineError> {
        let events = self.queue.events(session_id, From::After(0)).await?;
        Awaited::new(self, session_id, job_id).end(events, self.patience, |_, _| ()).await
    }

    /// Puts an operator's command onto a session's lane: cancel, release, close.
    pub async fn control(&self, session_id: &str, command: Command) -> Result<Accepted, EngineError> {
        let (queue, store) = (self.queue.as_ref(), self.store.as_ref());
        let order = commands::operator::Order { command, name: None, reason: None, by: None };
        Ok(commands::operator::command(queue, store, session_id, order).await?)
    }

    /// A session as it stands.
    pub async fn session(&self, session_id: &str) -> Result<Option<Session>, EngineError> {
        Ok(self.store.session(session_id).await?)
    }

    /// Returns when the engine stops: by [`Engine::stop`], or because a part of it has failed.
    pub async fn stopping(&self) {
        let (roles, backend) = (self.roles.stop_token(), self.backend.stop_token());
        tokio::select! {
            () = roles.cancelled() => {}
            () = backend.cancelled() => {}
        }
    }

    /// True when queue or store have failed for good: turns in flight cannot commit.
    pub fn is_broken(&self) -> bool {
        self.backend.failure().is_some()
    }

    /// The failure that stops the engine: see [`Engine::stopping`]. `None` after an ordinary stop.
    pub fn failure(&self) -> Option<String> {
        self.backend.failure().or_else(|| self.roles.failure())
    }

    /// Takes no new turns, finishes those in hand within `worker.drain_timeout`, and gives the rest back to the queue.
    /// True when all parts ended in time.
    pub async fn stop(&self) -> bool {
        let ended = self.roles.shutdown(self.settings.worker.drain_timeout.0 + MARGIN).await;
        self.backend.shutdown(BACKEND_END).await;
        ended
    }
}
