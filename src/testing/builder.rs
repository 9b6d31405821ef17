//! Builds an engine for tests.

use super::{Script, TestEngine};
use crate::app;
use base::clock;
use base::config::{Environment, Settings};
use definitions::agent::AgentRecord;
use definitions::agent::load::{self, AgentError};
use engine::action::function::IntoTool;
use engine::workflow::IntoFlow;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use types::duration;

/// How long a test waits for the end of a turn by default.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);

/// Builds a [`TestEngine`].
pub struct TestEngineBuilder {
    engine: app::EngineBuilder,
    agents: Vec<Value>,
    functions: BTreeSet<String>,
    script: Option<Script>,
    timers_after: Option<Duration>,
    patience: Duration,
}

impl TestEngineBuilder {
    pub(super) fn new() -> Self {
        Self {
            // The test's own servers listen on this machine.
            engine: app::Engine::in_memory().environment(Environment::default()).configure(|settings| {
                settings.http.allow_private = ["127.0.0.1", "localhost", "::1"].map(str::to_owned).to_vec();
            }),
            agents: Vec::new(),
            functions: BTreeSet::new(),
            script: None,
            timers_after: None,
            patience: TURN_TIMEOUT,
        }
    }

    /// Adds an agent from its file. Users talk to the first agent that is added.
    ///
    /// Its `knowledge` files are not loaded, because a script would need one more answer whenever a search finds
    /// something. Use [`add_knowledge`](app::Engine::add_knowledge) instead.
    ///
    /// # Panics
    /// If the file cannot be read.
    #[must_use]
    pub fn agent_file(self, path: impl AsRef<Path>) -> Self {
        self.record(load::file(path.as_ref()))
    }

    /// Adds an agent written as YAML.
    ///
    /// # Panics
    /// If it cannot be parsed.
    #[must_use]
    pub fn agent(self, yaml: &str) -> Self {
        self.record(load::text(Path::new("agent.yaml"), yaml))
    }

    /// Adds an agent given as a JSON document.
    #[must_use]
    pub fn agent_document(mut self, document: Value) -> Self {
        self.agents.push(document);
        self
    }

    fn record(self, agent: Result<AgentRecord, AgentError>) -> Self {
        match agent {
            Ok(agent) => self.agent_document(agent.document),
            Err(error) => panic!("{error}"),
        }
    }

    /// Registers a function as the tool `id`. It replaces the tool's `http`, so that the test needs no server.
    #[must_use]
    pub fn tool<Shape>(mut self, id: &str, function: impl IntoTool<Shape>) -> Self {
        self.functions.insert(id.to_owned());
        self.engine = self.engine.tool(id, function);
        self
    }

    /// Registers a function as the skill `id`. It replaces the skill's `http`.
    #[must_use]
    pub fn skill<Shape>(self, id: &str, function: impl IntoTool<Shape>) -> Self {
        self.tool(id, function)
    }

    /// Registers a function as the FLOW `id`.
    #[must_use]
    pub fn flow<Shape>(mut self, id: &str, function: impl IntoFlow<Shape>) -> Self {
        self.engine = self.engine.flow(id, function);
        self
    }

    /// Sets the model of all agents. Without it, agents use the offline model, which follows the `rules` in their
    /// files.
    #[must_use]
    pub fn model(mut self, script: &Script) -> Self {
        self.script = Some(script.clone());
        self
    }

    /// Sets the delay of every timer in the agent files.
    #[must_use]
    pub fn timers_after(mut self, delay: Duration) -> Self {
        self.timers_after = Some(delay);
        self
    }

    /// Sets values for `${NAME}` in agent files, and allows these names for all hosts.
    #[must_use]
    pub fn secrets<const N: usize>(mut self, values: [(&str, &str); N]) -> Self {
        let names: Vec<String> = values.iter().map(|(name, _)| (*name).to_owned()).collect();
        let allow = |settings: &mut Settings| (settings.secrets.allow, settings.secrets.unbound) = (names, true);
        self.engine = self.engine.environment(values.into_iter().collect()).configure(allow);
        self
    }

    /// Changes settings, for example `|settings| settings.worker.concurrency = 1`.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        self.engine = self.engine.configure(change);
        self
    }

    /// How long the test waits for the end of a turn; 20 s by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Opens the engine in memory and starts a worker and a scheduler.
    ///
    /// # Panics
    /// If an agent is invalid, or none was added.
    pub async fn start(self) -> TestEngine {
        let Self { mut engine, agents, functions, script, timers_after, patience } = self;
        let mut agent_id = None;
        for mut document in agents {
            stand_in(&mut document, &functions);
            shorten(&mut document, timers_after);
            let agent = AgentRecord::from_document(document, clock::now()).unwrap_or_else(|error| panic!("{error}"));
            agent_id.get_or_insert_with(|| agent.id().to_owned());
            if let Some(script) = &script {
                let names = agent.config.model.iter();
                engine = names.fold(engine, |engine, name| engine.model(name, script.clone()));
            }
            engine = engine.agent_document(agent.document);
        }
        let agent_id = agent_id.unwrap_or_else(|| panic!("no agent was added; add one with `agent_file` or `agent`"));
        let started = Box::pin(engine.patience(patience).start()).await;
        let engine = started.unwrap_or_else(|error| panic!("cannot start the engine: {error}"));
        TestEngine { engine, agent_id, script, patience, fired: BTreeSet::new() }
    }
}

/// Removes `http` and `builtin` from skills and tools for which the test registers a function.
fn stand_in(document: &mut Value, functions: &BTreeSet<String>) {
    for list in ["skills", "tools"] {
        for entry in document.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let registered = entry["id"].as_str().is_some_and(|id| functions.contains(id));
            if let Some(entry) = entry.as_object_mut().filter(|_| registered) {
                entry.remove("http");
                entry.remove("builtin");
            }
        }
    }
}

fn shorten(document: &mut Value, delay: Option<Duration>) {
    let Some(delay) = delay else { return };
    for timer in document.get_mut("timers").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(timer) = timer.as_object_mut() {
            timer.insert("delay".into(), json!(duration::format(delay)));
        }
    }
}
