//! What an engine is made of.

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
use embedded::store::EmbeddedFile;
use engine::action::function::IntoTool;
use engine::action::tool::Tools;
use engine::model::Model;
use engine::workflow::{Flows, IntoFlow};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// How long [`Engine::ask`] waits unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes an [`Engine`]: see there.
pub struct EngineBuilder {
    pub(super) settings: Settings,
    pub(super) env: Environment,
    pub(super) tools: Tools,
    pub(super) flows: Flows,
    pub(super) models: Vec<(String, Arc<dyn Model>)>,
    pub(super) patience: Duration,
    in_memory: bool,
    /// Those of files with their paths.
    agents: Vec<(Option<PathBuf>, Result<AgentRecord, AgentError>)>,
    workflows: Vec<Result<WorkflowRecord, WorkflowError>>,
}

impl EngineBuilder {
    pub(super) fn new(settings: Settings, in_memory: bool) -> Self {
        Self {
            settings,
            env: Environment::of_process(),
            tools: Tools::default(),
            flows: Flows::builtin(),
            models: Vec::new(),
            patience: PATIENCE,
            in_memory,
            agents: Vec::new(),
            workflows: Vec::new(),
        }
    }

    /// Changes settings, such as `|settings| settings.worker.concurrency = 16`.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Takes secrets and models' keys from `env` in place of the process's environment.
    #[must_use]
    pub fn environment(mut self, env: Environment) -> Self {
        self.env = env;
        self
    }

    /// Registers a function for the tool `id` of agents that give it no `http`: see [`IntoTool`] for what it can be.
    #[must_use]
    pub fn tool<Shape>(mut self, id: impl Into<String>, function: impl IntoTool<Shape>) -> Self {
        self.tools = self.tools.with(id, function);
        self
    }

    /// Registers a function for the skill `id` of agents that give it no `http`. Skills and tools share their ids.
    #[must_use]
    pub fn skill<Shape>(self, id: impl Into<String>, function: impl IntoTool<Shape>) -> Self {
        self.tool(id, function)
    }

    /// Registers a function that agents may route to as FLOW `id`: see [`IntoFlow`] for what it can be.
    #[must_use]
    pub fn flow<Shape>(mut self, id: impl Into<String>, function: impl IntoFlow<Shape>) -> Self {
        self.flows = self.flows.with(id, function);
        self
    }

    /// Adds a model that agents may name, in place of one of the settings that has the name.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        let name = name.into();
        self.models.retain(|(known, _)| *known != name);
        self.models.push((name, Arc::new(model)));
        self
    }

    /// Applies the agents of a file or a folder, with the files that they answer from, once the engine is open.
    #[must_use]
    pub fn agents(mut self, path: impl AsRef<Path>) -> Self {
        let in_file = |(file, agent): load::Loaded| {
            let path = file.clone();
            (Some(path), agent.map_err(|problem| AgentError::File { file, problem: Box::new(problem) }))
        };
        self.agents.extend(load::read_path(path.as_ref()).into_iter().map(in_file));
        self
    }

    /// Applies an agent written as YAML, or JSON, once the engine is open.
    #[must_use]
    pub fn agent(mut self, yaml: &str) -> Self {
        self.agents.push((None, load::text(Path::new("agent.yaml"), yaml)));
        self
    }

    /// Applies an agent given as a document once the engine is open.
    #[must_use]
    pub fn agent_document(mut self, document: Value) -> Self {
        self.agents.push((None, AgentRecord::from_document(document, clock::now())));
        self
    }

    /// Registers a workflow once the engine is open: written as YAML or JSON, or a [`WorkflowRecord`].
    #[must_use]
    pub fn workflow(mut self, workflow: impl IntoWorkflow) -> Self {
        self.workflows.push(workflow.into_workflow());
        self
    }

    /// Registers the workflows of a file or a folder once the engine is open.
    #[must_use]
    pub fn workflows(mut self, path: impl AsRef<Path>) -> Self {
        let in_file = |(file, workflow): read::Loaded| {
            workflow.map_err(|problem| WorkflowError::File { file, problem: Box::new(problem) })
        };
        self.workflows.extend(read::read_paths(&[path.as_ref().to_owned()]).into_iter().map(in_file));
        self
    }

    /// How long [`Engine::ask`] and [`Engine::run_ended`] wait for an end; a minute unless given.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Opens queue and store, waiting for the servers of a cluster, and applies the agents. Nothing runs yet: start what
    /// this process is to do with [`Engine::start_worker`], [`Engine::start_scheduler`] and [`Engine::start_gateway`].
    pub async fn open(mut self) -> Result<Engine, EngineError> {
        self.check()?;
        let tasks = Tasks::new();
        // Whoever gives up waiting leaves nothing behind.
        let abandoned = tasks.stop_token().drop_guard();
        let opened = self.backend(&tasks).await?;
        let in_file = |(path, agent): (_, Result<_, _>)| agent.map(|agent| (path, agent));
        let agents: Result<Vec<_>, AgentError> = std::mem::take(&mut self.agents).into_iter().map(in_file).collect();
        let workflows: Result<Vec<_>, _> = std::mem::take(&mut self.workflows).into_iter().collect();
        let engine = Engine::new(self, opened, tasks);
        // Workflows name task agents, and agents that take chats name workflows.
        let (tasks, chats) = agents?.into_iter().partition(|(_, agent)| agent.config.is_task_agent());
        apply(&engine, tasks).await?;
        register(&engine, workflows?).await?;
        apply(&engine, chats).await?;
        abandoned.disarm();
        Ok(engine)
    }

    /// Opens the engine and starts a worker and a scheduler in this process: all that conversations need.
    pub async fn start(self) -> Result<Engine, EngineError> {
        // The builder is large, and whoever waits for it would hold it twice.
        let engine = Box::pin(self.open()).await?;
        engine.start_scheduler();
        engine.start_worker()?;
        Ok(engine)
    }

    async fn backend(&self, tasks: &Tasks) -> Result<Opened, EngineError> {
        match self.in_memory {
            true => backend::on_file(EmbeddedFile::in_memory()?, &self.settings, tasks).await,
            false => backend::open(&self.settings, tasks).await,
        }
    }

    /// Params that are no object can never be given: better told here than to a model.
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

    /// The compiled-in prompts, or the files of `prompts_dir` where it is a folder.
    pub(super) fn prompts_dir(settings: &Settings) -> Option<PathBuf> {
        Some(settings.prompts_dir.clone()).filter(|dir| dir.is_dir())
    }
}

/// Applies agents, those of files with the texts that they answer from.
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

/// What can be registered as a workflow.
pub trait IntoWorkflow {
    /// As a workflow.
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
