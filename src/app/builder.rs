//! Collects the settings, functions, models, agents and workflows of an engine.

use super::backend::{self, Opened};
use super::{Engine, EngineError};
use base::clock;
use base::config::{Environment, Settings};
use base::tasks::Tasks;
use definitions::agent::AgentRecord;
use definitions::agent::load::{self, AgentError};
use definitions::knowledge::files;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::read::{self, WorkflowError};
use embedded::store::{EmbeddedFile, SharedDefinitions};
use engine::action::function::IntoTool;
use engine::action::stand_in::StandIn;
use engine::action::tool::Tools;
use engine::budget::DayMeter;
use engine::model::Model;
use engine::workflow::{Flows, IntoFlow};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// How long [`Engine::ask`] waits by default.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// Builds an [`Engine`]. [`Engine::in_memory`], [`Engine::embedded`], [`Engine::cluster`] and [`Engine::builder`]
/// create one.
pub struct EngineBuilder {
    pub(super) settings: Settings,
    pub(super) env: Environment,
    pub(super) tools: Tools,
    pub(super) flows: Flows,
    pub(super) models: Vec<(String, Arc<dyn Model>)>,
    pub(super) patience: Duration,
    pub(super) python_runner: Option<PathBuf>,
    /// Answers all calls of a rehearsal.
    pub(super) stand_in: Option<Arc<StandIn>>,
    /// Whether the engine holds a draft, so that no metric of the process counts its turns.
    pub(super) rehearses: bool,
    /// Definitions of another engine that the store in memory has without a copy.
    pub(super) shared: SharedDefinitions,
    /// Counts what models are asked.
    pub(super) meter: Option<Arc<DayMeter>>,
    in_memory: bool,
    /// Agents of files have a path, others do not.
    agents: Vec<(Option<PathBuf>, Result<AgentRecord, AgentError>)>,
    workflows: Vec<Result<WorkflowRecord, WorkflowError>>,
}

impl EngineBuilder {
    pub(super) fn new(settings: Settings, in_memory: bool) -> Self {
        Self {
            settings,
            env: Environment::from_process(),
            tools: Tools::default(),
            flows: Flows::builtin(),
            models: Vec::new(),
            patience: ASK_TIMEOUT,
            python_runner: None,
            stand_in: None,
            rehearses: false,
            shared: SharedDefinitions::default(),
            meter: None,
            in_memory,
            agents: Vec::new(),
            workflows: Vec::new(),
        }
    }

    /// Changes settings, for example `|settings| settings.worker.concurrency = 16`.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Takes secrets and API keys of models from `env` instead of the process's environment.
    #[must_use]
    pub fn environment(mut self, env: Environment) -> Self {
        self.env = env;
        self
    }

    /// Registers a function as the tool `id`, for agents that declare the tool without `http`. [`IntoTool`] lists the
    /// accepted kinds of functions.
    #[must_use]
    pub fn tool<Shape>(mut self, id: impl Into<String>, function: impl IntoTool<Shape>) -> Self {
        self.tools = self.tools.with(id, function);
        self
    }

    /// Registers a function as the skill `id`, for agents that declare the skill without `http`. Skills and tools share
    /// one namespace of ids.
    #[must_use]
    pub fn skill<Shape>(self, id: impl Into<String>, function: impl IntoTool<Shape>) -> Self {
        self.tool(id, function)
    }

    /// Registers a function as the FLOW `id`. [`IntoFlow`] lists the accepted kinds of functions.
    #[must_use]
    pub fn flow<Shape>(mut self, id: impl Into<String>, function: impl IntoFlow<Shape>) -> Self {
        self.flows = self.flows.with(id, function);
        self
    }

    /// Adds a model that agents may name. It replaces a model of the settings with the same name.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        let name = name.into();
        self.models.retain(|(known, _)| *known != name);
        self.models.push((name, Arc::new(model)));
        self
    }

    /// Applies the agents of a file or folder, with their knowledge files, when the engine opens.
    #[must_use]
    pub fn agents(mut self, path: impl AsRef<Path>) -> Self {
        let in_file = |(file, agent): load::LoadedAgent| {
            let path = file.clone();
            (Some(path), agent.map_err(|problem| AgentError::File { file, problem: Box::new(problem) }))
        };
        self.agents.extend(load::read_path(path.as_ref()).into_iter().map(in_file));
        self
    }

    /// Applies an agent written as YAML or JSON, when the engine opens.
    #[must_use]
    pub fn agent(mut self, yaml: &str) -> Self {
        self.agents.push((None, load::text(Path::new("agent.yaml"), yaml)));
        self
    }

    /// Applies an agent given as a JSON document, when the engine opens.
    #[must_use]
    pub fn agent_document(mut self, document: Value) -> Self {
        self.agents.push((None, AgentRecord::from_document(document, clock::now())));
        self
    }

    /// Registers a workflow, written as YAML or JSON or given as a [`WorkflowRecord`], when the engine opens.
    #[must_use]
    pub fn workflow(mut self, workflow: impl IntoWorkflow) -> Self {
        self.workflows.push(workflow.into_workflow());
        self
    }

    /// Registers the workflows of a file or folder, when the engine opens.
    #[must_use]
    pub fn workflows(mut self, path: impl AsRef<Path>) -> Self {
        let in_file = |(file, workflow): read::LoadedWorkflow| {
            workflow.map_err(|problem| WorkflowError::File { file, problem: Box::new(problem) })
        };
        self.workflows.extend(read::read_paths(&[path.as_ref().to_owned()]).into_iter().map(in_file));
        self
    }

    /// The program that runs the scripts of PYTHON nodes when it is called with `python-runner`, such as the path of
    /// `turnwheel`. Unless given, the running program itself, if its `main` calls
    /// [`serve_if_asked`](crate::sandbox::serve_if_asked) first.
    #[must_use]
    pub fn python_runner(mut self, program: impl Into<PathBuf>) -> Self {
        self.python_runner = Some(program.into());
        self
    }

    /// How long [`Engine::ask`] and [`Engine::run_ended`] wait; 60 s by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Opens the queue and the store, waits until a cluster's servers are reachable, and applies agents and workflows.
    ///
    /// It starts no role: start those of this process with [`Engine::start_worker`], [`Engine::start_scheduler`] and
    /// [`Engine::start_gateway`]. Cancel safe: dropping the future stops the tasks that it has started.
    pub async fn open(mut self) -> Result<Engine, EngineError> {
        self.check()?;
        let tasks = Tasks::new();
        // A caller that drops this future stops the backend's tasks.
        let abandoned = tasks.stop_token().drop_guard();
        let opened = self.backend(&tasks).await?;
        let in_file = |(path, agent): (_, Result<_, _>)| agent.map(|agent| (path, agent));
        let agents: Result<Vec<_>, AgentError> = std::mem::take(&mut self.agents).into_iter().map(in_file).collect();
        let workflows: Result<Vec<_>, _> = std::mem::take(&mut self.workflows).into_iter().collect();
        let engine = Engine::new(self, opened, tasks);
        // Workflows refer to task agents, and chat agents refer to workflows.
        let (tasks, chats) = agents?.into_iter().partition(|(_, agent)| agent.config.is_task_agent());
        apply(&engine, tasks).await?;
        register(&engine, workflows?).await?;
        apply(&engine, chats).await?;
        abandoned.disarm();
        Ok(engine)
    }

    /// Opens the engine and starts a worker and a scheduler in this process, which is all that conversations need.
    pub async fn start(self) -> Result<Engine, EngineError> {
        // Boxed: the builder is large, and the caller's future would hold it twice.
        let engine = Box::pin(self.open()).await?;
        engine.start_scheduler();
        engine.start_worker()?;
        Ok(engine)
    }

    async fn backend(&self, tasks: &Tasks) -> Result<Opened, EngineError> {
        match self.in_memory {
            true => backend::on_file(EmbeddedFile::in_memory()?, &self.settings, tasks, self.shared.clone()).await,
            false => backend::open(&self.settings, tasks).await,
        }
    }

    /// Refuses functions whose params are not an object: no model could ever call them.
    fn check(&self) -> Result<(), EngineError> {
        let tools = self.tools.ids().into_iter().filter_map(|id| Some((self.tools.params(&id)?.clone(), id)));
        let flows = self.flows.ids().into_iter().filter_map(|id| Some((self.flows.params(&id)?.clone(), id)));
        for (schema, id) in tools.chain(flows) {
            match schema["type"].as_str() {
                None | Some("object") => {}
                Some(kind) => return Err(EngineError::Params { id, kind: kind.to_owned() }),
            }
        }
        Ok(())
    }

    /// `prompts_dir` if it is a folder, otherwise `None` for the compiled-in prompts.
    pub(super) fn prompts_dir(settings: &Settings) -> Option<PathBuf> {
        Some(settings.prompts_dir.clone()).filter(|dir| dir.is_dir())
    }
}

/// Applies agents, and the knowledge files of agents that come from files.
async fn apply(engine: &Engine, agents: Vec<(Option<PathBuf>, AgentRecord)>) -> Result<(), EngineError> {
    for (path, agent) in agents {
        let id = agent.id().to_owned();
        let known = path.map(|path| files::read(&path, &agent)).transpose()?;
        let mut warnings = engine.apply(agent).await?.warnings;
        if let Some((texts, more)) = known {
            warnings.extend(more);
            engine.apply_knowledge(&id, texts).await?;
        }
        for warning in warnings {
            warn!(agent_id = id, "{warning}");
        }
    }
    Ok(())
}

async fn register(engine: &Engine, workflows: Vec<WorkflowRecord>) -> Result<(), EngineError> {
    if workflows.is_empty() {
        return Ok(());
    }
    for warning in engine.register_all(workflows).await?.into_iter().flat_map(|applied| applied.warnings) {
        warn!("{warning}");
    }
    Ok(())
}

/// A value that can be registered as a workflow: YAML or JSON text, or a [`WorkflowRecord`].
pub trait IntoWorkflow {
    /// Parses the value into a workflow.
    fn into_workflow(self) -> Result<WorkflowRecord, WorkflowError>;
}

impl IntoWorkflow for &str {
    fn into_workflow(self) -> Result<WorkflowRecord, WorkflowError> {
        read::text(Path::new("workflow.yaml"), self)
    }
}

impl IntoWorkflow for WorkflowRecord {
    fn into_workflow(self) -> Result<WorkflowRecord, WorkflowError> {
        Ok(self)
    }
}
