//! The ground of the interpreter's tests: a real store, definitions, and functions as stages.

use super::event::{QueuedDecision, QueuedEvent, RunEvent};
use super::pauses::Pauses;
use super::resolved::{Definitions, ResolveError, ResolvedDefinitions};
use super::run::{EventSink, RunEnd, RunEnvironment, RunError, RunServices, RunStart, SinkError, execute};
use super::usage::Limits;
use crate::action::http::{HttpCaller, SecretFill};
use crate::action::tool::Tools;
use crate::journal::{Guard, Journal, LeasedTurn};
use crate::model::Models;
use crate::prompt::Prompts;
use crate::workflow::{FlowContext, FlowError, Flows};
use async_trait::async_trait;
use base::clock::Clock;
use base::config::Settings;
use definitions::agent::AgentRecord;
use definitions::coordinator::DecisionLimits;
use definitions::workflow::definition::WorkflowRecord;
use definitions::workflow::read;
use embedded::store::{EmbeddedFile, EmbeddedStore};
use sandbox::Sandbox;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::store::Store;

#[derive(Default)]
pub(super) struct Files(BTreeMap<String, Arc<WorkflowRecord>>, BTreeMap<String, Arc<AgentRecord>>);

#[async_trait]
impl Definitions for Files {
    async fn workflow(&self, id: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError> {
        Ok(self.0.get(id).cloned())
    }
    async fn workflow_version(&self, id: &str, _: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError> {
        Ok(self.0.get(id).cloned())
    }
    async fn agent(&self, id: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError> {
        Ok(self.1.get(id).cloned())
    }
    async fn agent_version(&self, id: &str, _: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError> {
        Ok(self.1.get(id).cloned())
    }
}

#[derive(Default)]
pub(super) struct Heard(pub(super) Mutex<Vec<RunEvent>>, Mutex<Vec<QueuedDecision>>);

#[async_trait]
impl EventSink for Heard {
    async fn publish(&self, events: Vec<QueuedEvent>) -> Result<(), SinkError> {
        for event in events {
            match event {
                QueuedEvent::Run(event) => self.0.lock().unwrap().push(event),
                QueuedEvent::Decision(event) => self.1.lock().unwrap().push(event),
            }
        }
        Ok(())
    }
}

/// A store, definitions and functions with which tests execute and repeat runs.
pub(super) struct Ground {
    pub(super) store: Arc<dyn Store>,
    pub(super) files: Files,
    pub(super) flows: Flows,
    pub(super) models: Models,
    pub(super) calls: Arc<Mutex<Vec<String>>>,
    pub(super) limits: Limits,
    pub(super) heard: Arc<Heard>,
}

/// Returns its input in brackets, and records the call.
async fn echo(context: FlowContext, calls: Arc<Mutex<Vec<String>>>) -> Result<String, FlowError> {
    let input = context.input.clone();
    let said = context
        .step("say", &input, async |_| {
            calls.lock().unwrap().push(input.clone());
            match input.as_str() {
                "fail" => Err("it was told to fail".to_owned()),
                _ => Ok(format!("<{input}>")),
            }
        })
        .await?;
    Ok(said)
}

/// Returns its input after 100 ms, and records the call.
async fn slow_step(context: FlowContext, calls: Arc<Mutex<Vec<String>>>) -> Result<String, FlowError> {
    let input = context.input.clone();
    let say = async |_| {
        tokio::time::sleep(Duration::from_millis(100)).await;
        calls.lock().unwrap().push(input.clone());
        Ok::<_, String>(input.clone())
    };
    context.step("say", &input, say).await
}

impl Ground {
    pub(super) fn new(files: &[&str]) -> Self {
        let file = EmbeddedFile::in_memory().unwrap();
        let store = EmbeddedStore::new(file, &Settings::default()).unwrap();
        let read = |text: &&str| {
            let record = read::text(Path::new("w.yaml"), text).unwrap();
            (record.id().to_owned(), Arc::new(record))
        };
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let (called, slowly) = (Arc::clone(&calls), Arc::clone(&calls));
        let flows = Flows::default()
            .with("echo", move |context: FlowContext| echo(context, Arc::clone(&called)))
            .with("slow_step", move |context: FlowContext| slow_step(context, Arc::clone(&slowly)))
            .with("slow", async |context: FlowContext| {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Ok::<_, FlowError>(context.input)
            });
        let limits = Limits { timeout: Duration::from_secs(20), max_parallel: 64, ..Limits::UNLIMITED };
        let heard = Arc::default();
        let (files, models) = (Files(files.iter().map(read).collect(), BTreeMap::new()), Models::offline());
        Self { store, files, flows, models, calls, limits, heard }
    }

    /// Adds an agent.
    pub(super) fn with_agent(mut self, agent: serde_json::Value) -> Self {
        let agent = AgentRecord::from_document(agent, base::clock::now()).unwrap();
        self.files.1.insert(agent.id().to_owned(), Arc::new(agent));
        self
    }

    pub(super) async fn resolved(&self, id: &str) -> ResolvedDefinitions {
        ResolvedDefinitions::resolve(&self.files, &self.flows, id).await.unwrap()
    }

    pub(super) fn services() -> RunServices {
        let nothing = |text: &str| text.to_owned();
        let secrets = SecretFill::new(Arc::new(|text: &str, _: &str| Ok(text.to_owned())), Arc::new(nothing));
        RunServices {
            models: Models::offline(),
            http: HttpCaller::new(secrets, &[]).unwrap(),
            tools: Tools::default(),
            sandbox: Arc::new(Sandbox::off()),
            prompts: Prompts::new(None).into(),
            decisions: DecisionLimits::new(&Settings::default(), &[]).into(),
            connectors: Arc::default(),
        }
    }

    pub(super) fn environment(&self) -> RunEnvironment {
        let sink = Arc::clone(&self.heard) as Arc<dyn EventSink>;
        let services = RunServices { models: self.models.clone(), ..Self::services() };
        RunEnvironment { services, sink, limits: self.limits }
    }

    pub(super) async fn journal(&self) -> Journal {
        self.guarded_journal(Guard::always()).await
    }

    pub(super) async fn guarded_journal(&self, guard: Guard) -> Journal {
        let (store, clock) = (Arc::clone(&self.store), Clock::system());
        let turn = LeasedTurn { store, clock, session_id: "r1", turn_id: "t1", epoch: 1, guard, prompt_mask: None };
        Journal::open(turn, true).await.unwrap()
    }

    /// Executes the run `r1`, or repeats it.
    pub(super) async fn run(&self, id: &str, input: &str) -> Result<RunEnd, RunError> {
        let start = RunStart::new("r1", self.resolved(id).await, input, self.journal().await, self.environment());
        execute(start).await
    }

    /// Executes the run `r1` in a lane of its own, or repeats it.
    pub(super) async fn run_in_lane(&self, id: &str, pauses: &Arc<Pauses>) -> Result<RunEnd, RunError> {
        let start = RunStart::new("r1", self.resolved(id).await, "", self.journal().await, self.environment());
        let ended = execute(start.with_pauses(Arc::clone(pauses)));
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the turn ends")
    }

    pub(super) async fn output(&self, id: &str, input: &str) -> String {
        self.run(id, input).await.unwrap().outcome.unwrap()
    }

    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Takes the events of decisions so far.
    pub(super) fn decisions(&self) -> Vec<QueuedDecision> {
        std::mem::take(&mut self.heard.1.lock().unwrap())
    }

    /// Returns the events so far, one line each.
    pub(super) fn told(&self) -> Vec<String> {
        self.heard.0.lock().unwrap().iter().map(line).collect()
    }
}

fn line(event: &RunEvent) -> String {
    let tag = |tag: &Option<String>| tag.clone().unwrap_or_else(|| "-".into());
    let iteration = event.iteration.map_or_else(|| "-".into(), |iteration| iteration.to_string());
    format!("{} {} {} {} {iteration}", event.depth, event.kind.as_str(), tag(&event.stage_id), tag(&event.branch_id))
}
