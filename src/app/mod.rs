//! The engine within a program: build it, register functions, start its roles, send messages.
//!
//! ```
//! use turnwheel::{Engine, NewMessage};
//!
//! /// Looks up where an order is.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Order {
//!     /// The order's number, such as A1001.
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
//! [`builder`] collects settings, agents and functions, [`backend`] opens the queue and the store, [`answer`] waits for
//! the end of a turn, `services` builds the dependencies of turns, [`workflows`] starts runs and waits for their end,
//! `http` and `grpc` serve the gateway, [`presence`] announces the process in the store, [`rehearsal`] tests drafts in
//! an engine in memory, `trial` lets a person try them, and `replay` replays recorded turns there. [`crate::testing`]
//! has an engine for tests of agents.

mod answer;
mod author;
mod backend;
mod builder;
mod error;
mod grpc;
mod http;
mod presence;
mod rehearsal;
mod replay;
mod services;
mod trial;
mod workflows;

pub use answer::Answer;
pub use backend::{Opened, open};
pub use builder::{EngineBuilder, IntoWorkflow};
pub use commands::enqueue::Accepted;
pub use commands::messages::NewMessage;
pub use commands::run_answers::{AnsweredRun, NewAnswer};
pub use commands::runs::{NewRun, StartedRun};
pub use engine::action::function::{IntoTool, NoParams, ToolCall};
pub use engine::workflow::{FlowContext, FlowError, IntoFlow, Question};
pub use error::EngineError;
pub use rehearsal::Rehearsal;

use ::grpc::RemoteAuthor;
use answer::Awaited;
use base::clock::Clock;
use base::config::{Backend, Environment, Settings};
use base::tasks::{OnPanic, Tasks};
use commands::error::CommandError;
use connectors::Connectors;
use definitions::agent::AgentRecord;
use definitions::agent::validate::KnownNames;
use definitions::document::Finding;
use definitions::knowledge::files::NamedText;
use definitions::knowledge::source::{Origin, Source};
use engine::action::stand_in::StandIn;
use engine::action::tool::Tools;
use engine::budget::DayMeter;
use engine::definition_files::DefinitionFiles;
use engine::knowledge::{Library, sync};
use engine::model::{Model, Models};
use engine::run;
use engine::timer::scheduler::Scheduler;
use engine::worker::Worker;
use engine::workflow::Flows;
use presence::Presence;
use sandbox::Sandbox;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use storage::queue::{From, Queue};
use storage::store::Store;
use types::event::Reply;
use types::job::Command;
use types::session::Session;
use types::texts::Shown;

/// How long a graceful stop may take beyond `worker.drain_timeout`.
const STOP_MARGIN: Duration = Duration::from_secs(10);
/// How long the backend's tasks may take to end.
const BACKEND_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of applying an agent or registering a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// False if the same configuration was stored already.
    pub changed: bool,
    /// Probable mistakes in it; they do not prevent that it is stored.
    pub warnings: Vec<Finding>,
}

/// A durable workflow engine on one backend. Put it into an `Arc` to share it.
///
/// Create it with [`Engine::builder`], [`Engine::cluster`], [`Engine::embedded`] or [`Engine::in_memory`]; the
/// [crate documentation](crate) describes how it works. Dropping it aborts running turns; another start continues them
/// from their journals. Use [`Engine::stop`] to finish them first.
///
/// ```
/// use turnwheel::{Engine, NewMessage};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let agent = "
/// id: shop
/// sop: Greet the user.
/// rules: [{when: {always: true}, decide: {next_status: typing, response: Hello}}]";
/// let engine = Engine::in_memory().agent(agent).start().await?;
/// let answer = engine.ask(NewMessage::new("s1", "shop", "Hi")).await?;
/// assert_eq!(answer.text(), "Hello");
/// engine.stop().await;
/// # Ok::<_, turnwheel::EngineError>(())
/// # }).unwrap();
/// ```
pub struct Engine {
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    clock: Clock,
    settings: Arc<Settings>,
    env: Environment,
    tools: Tools,
    flows: Flows,
    models: Vec<(String, Arc<dyn Model>)>,
    /// The models that turns use, with their circuits. Created when the first worker starts.
    asked: Arc<OnceLock<Models>>,
    /// The authoring agent on another server. Its connection is made when it is first called.
    remote_author: OnceLock<RemoteAuthor>,
    knowledge: Library,
    sandbox: Arc<Sandbox>,
    connectors: Arc<Connectors>,
    /// Ids of the workflows that this engine has registered.
    registered: Mutex<BTreeSet<String>>,
    /// Answers all calls of a rehearsal.
    stand_in: Option<Arc<StandIn>>,
    /// Whether it holds a draft.
    rehearses: bool,
    /// Counts what the draft's models are asked.
    meter: Option<Arc<DayMeter>>,
    presence: Arc<Presence>,
    patience: Duration,
    /// The files that follow applied agents and workflows.
    files: OnceLock<Arc<DefinitionFiles>>,
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
    /// An engine with these settings; [`Settings::load`] reads them from `turnwheel.toml` and the environment.
    pub fn builder(settings: Settings) -> EngineBuilder {
        EngineBuilder::new(settings, false)
    }

    /// An engine on NATS JetStream and MongoDB, which any number of processes may share.
    pub fn cluster(nats_url: impl Into<String>, mongodb_uri: impl Into<String>) -> EngineBuilder {
        let mut settings = Settings { backend: Backend::Cluster, ..Settings::default() };
        settings.nats.url = nats_url.into();
        settings.mongodb.uri = mongodb_uri.into();
        EngineBuilder::new(settings, false)
    }

    /// An engine on one file in `data_dir`. One process at a time can use the file.
    pub fn embedded(data_dir: impl AsRef<Path>) -> EngineBuilder {
        let data_dir = data_dir.as_ref().to_owned();
        EngineBuilder::new(Settings { backend: Backend::Embedded, data_dir, ..Settings::default() }, false)
    }

    /// An engine in memory, for experiments and tests. Its data ends with the process.
    pub fn in_memory() -> EngineBuilder {
        EngineBuilder::new(Settings { backend: Backend::Embedded, ..Settings::default() }, true)
    }

    fn new(builder: EngineBuilder, (queue, store): Opened, backend: Tasks) -> Self {
        let EngineBuilder { settings, env, tools, flows, models, patience, python_runner, .. } = builder;
        let EngineBuilder { stand_in, rehearses, meter, .. } = builder;
        let (settings, knowledge) = (Arc::new(settings), Library::new(Arc::clone(&store)));
        let knowledge = if rehearses { knowledge.uncounted() } else { knowledge };
        let (asked, registered, roles, presence) = (Arc::default(), Mutex::default(), Tasks::new(), Arc::default());
        // A rehearsal opens no database and starts no script, whatever a node asks for.
        let (sandbox, connectors) = match stand_in {
            Some(_) => (Sandbox::off(), Connectors::default()),
            None => (
                Sandbox::new(&settings.python, python_runner, &env, roles.clone()),
                Connectors::new(&settings.connectors, &env, &roles),
            ),
        };
        let (sandbox, connectors) = (Arc::new(sandbox), Arc::new(connectors));
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
            remote_author: OnceLock::new(),
            knowledge,
            sandbox,
            connectors,
            registered,
            stand_in,
            rehearses,
            meter,
            presence,
            patience,
            files: OnceLock::new(),
            backend,
            roles,
        }
    }

    /// The queue that this engine uses.
    pub fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    /// The store that this engine uses.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The settings that this engine was built with.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// The names that agents may use on this engine: those of the settings, and the registered functions, models and
    /// flows.
    pub fn known(&self) -> KnownNames {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        KnownNames::new(&self.settings, self.flows.ids())
            .with_flows(run::known_ids(&self.settings).into_iter().chain(registered))
            .with_models(self.models.iter().map(|(name, _)| name.clone()))
            .with_functions(self.tools.ids())
    }

    /// Checks an agent and stores it. Every turn that starts afterwards, on any process, uses it.
    pub async fn apply(&self, agent: AgentRecord) -> Result<Applied, EngineError> {
        let (agent, warnings) = self.known().check(agent)?;
        let changed = self.store.put_agent(agent).await?;
        Ok(Applied { changed, warnings })
    }

    /// Replaces the texts that an agent has from its file. Texts that were added otherwise stay. Returns true if a text
    /// has changed.
    pub async fn apply_knowledge(&self, agent_id: &str, texts: Vec<NamedText>) -> Result<bool, EngineError> {
        let changed = sync::store(self.store.as_ref(), agent_id, texts).await?;
        self.knowledge.refresh(agent_id).await?;
        Ok(changed)
    }

    /// Adds a text to an agent's knowledge, under a name such as `kb/returns.md`; replaces the text of the same name. A
    /// name that ends in `.md` means Markdown, any other plain text. Returns true if the text has changed.
    pub async fn add_knowledge(&self, agent_id: &str, name: &str, text: &str) -> Result<bool, EngineError> {
        let source = Source::new(agent_id, name, text, Origin::Added, self.clock.now())
            .map_err(|error| EngineError::from(CommandError::from(error)))?;
        let changed = self.store.put_knowledge(source).await?;
        self.knowledge.refresh(agent_id).await?;
        Ok(changed)
    }

    /// Runs turns in this process until [`Engine::stop`]. Returns an error if a model in the settings cannot work.
    pub fn start_worker(&self) -> Result<(), EngineError> {
        let worker = Worker::new(self.services()?, &self.settings);
        let (settings, stop) = (Arc::clone(&self.settings), self.roles.stop_token());
        self.roles.spawn("worker", OnPanic::Shutdown, async move { worker.run(&settings, stop).await });
        self.announce("worker");
        Ok(())
    }

    /// Publishes due timers from this process until [`Engine::stop`], or stands by while another process does.
    pub fn start_scheduler(&self) {
        let scheduler =
            Scheduler::new(Arc::clone(&self.queue), Arc::clone(&self.store), self.clock.clone(), &self.settings);
        self.roles.spawn("scheduler", OnPanic::Shutdown, scheduler.run(self.roles.stop_token()));
        self.announce("scheduler");
    }

    /// Publishes a user's message on its session's lane. The message is durable on return; a worker of any process
    /// handles it.
    pub async fn send(&self, message: NewMessage) -> Result<Accepted, EngineError> {
        Ok(commands::messages::submit(self.queue.as_ref(), self.store.as_ref(), message).await?)
    }

    /// Sends a user's message and waits for the end of its turn.
    ///
    /// Fails with [`EngineError::Overdue`] after [`EngineBuilder::patience`]; the message stays queued. To repeat such
    /// a request, set the message's `job_id`: the same id is the same turn.
    pub async fn ask(&self, message: NewMessage) -> Result<Answer, EngineError> {
        self.ask_listening(message, |_, _| ()).await
    }

    /// Like [`Engine::ask`], and calls `heard` with each reply as it arrives, so that a program can show a text while
    /// the model writes it. [`Shown`] describes how the reply changes the shown text.
    pub async fn ask_listening(
        &self,
        message: NewMessage,
        heard: impl FnMut(&Reply, Shown) + Send,
    ) -> Result<Answer, EngineError> {
        // Events from now on suffice, unless the message may have been sent before under the same id.
        let from = if message.job_id.is_none() { From::Now } else { From::After(0) };
        types::ids::check("session_id", &message.session_id).map_err(CommandError::from)?;
        let events = self.queue.events(&message.session_id, from).await?;
        let Accepted { session_id, job_id } = self.send(message).await?;
        Awaited::new(self, &session_id, &job_id).end(events, self.patience, heard).await
    }

    /// Waits for the end of the turn of a message that was sent, or of a timer (`<timer_id>-<generation>`). The turn
    /// may have ended already.
    pub async fn answer(&self, session_id: &str, job_id: &str) -> Result<Answer, EngineError> {
        let events = self.queue.events(session_id, From::After(0)).await?;
        Awaited::new(self, session_id, job_id).end(events, self.patience, |_, _| ()).await
    }

    /// Publishes an operator's command on a session's lane: cancel, release, close or cancel its timers. Durable on
    /// return.
    pub async fn control(&self, session_id: &str, command: Command) -> Result<Accepted, EngineError> {
        let (queue, store) = (self.queue.as_ref(), self.store.as_ref());
        let order = commands::operator::OperatorCommand { command, name: None, reason: None, by: None };
        Ok(commands::operator::command(queue, store, session_id, order).await?)
    }

    /// Reads a session from the store; `None` if it does not exist.
    pub async fn session(&self, session_id: &str) -> Result<Option<Session>, EngineError> {
        Ok(self.store.session(session_id).await?)
    }

    /// Waits until the engine stops: by [`Engine::stop`], or because one of its parts failed.
    pub async fn stopping(&self) {
        let (roles, backend) = (self.roles.stop_token(), self.backend.stop_token());
        tokio::select! {
            () = roles.cancelled() => {}
            () = backend.cancelled() => {}
        }
    }

    /// True if the queue or the store has failed permanently, so that running turns cannot commit.
    pub fn is_broken(&self) -> bool {
        self.backend.failure().is_some()
    }

    /// The failure that stopped the engine (see [`Engine::stopping`]); `None` after an ordinary stop.
    pub fn failure(&self) -> Option<String> {
        self.backend.failure().or_else(|| self.roles.failure())
    }

    /// Asks all parts to stop, and does not wait for them. For an engine in memory that has finished its work.
    fn abandon(&self) {
        self.roles.stop();
        self.backend.stop();
    }

    /// Stops gracefully: starts no new turns, finishes running ones within `worker.drain_timeout`, and releases the
    /// others to the queue. Returns true if all parts ended within that time.
    pub async fn stop(&self) -> bool {
        let ended = self.roles.shutdown(self.settings.worker.drain_timeout.0 + STOP_MARGIN).await;
        self.backend.shutdown(BACKEND_STOP_TIMEOUT).await;
        ended
    }
}
