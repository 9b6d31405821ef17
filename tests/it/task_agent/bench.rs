//! A workflow with one stage, `work`, that runs a task agent with a real store, a model server and an API.

use crate::support::api::Api;
use crate::support::backend::embedded;
use crate::support::engine::Backend;
use crate::support::model_server::ModelServer;
use async_trait::async_trait;
use base::clock::{self, Clock};
use base::config::{self, Provider, Settings};
use definitions::agent::AgentRecord;
use definitions::coordinator::DecisionLimits;
use definitions::workflow::definition::{
    LimitsConfig, Retry, Shape, StageDefinition, Target, Workflow, WorkflowRecord,
};
use definitions::workflow::template::InputMapping;
use engine::action::http::{HttpCaller, SecretFill};
use engine::action::tool::Tools;
use engine::journal::{Guard, Journal, LeasedTurn};
use engine::model::Models;
use engine::prompt::Prompts;
use engine::workflow::Flows;
use engine::workflow::orchestration::event::{QueuedEvent, RunEvent, RunEventType, Snapshot};
use engine::workflow::orchestration::resolved::{Definitions, ResolveError, ResolvedDefinitions};
use engine::workflow::orchestration::{
    EventSink, Limits, RunEnd, RunEnvironment, RunError, RunServices, RunStart, SinkError, execute,
};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::store::Store;
use storage::store::records::{Acquire, Acquired, NewSession};
use types::duration::Text;
use types::step::StepRecord;

/// The workflow and its environment.
pub struct Bench {
    pub store: Arc<dyn Store>,
    pub models: Models,
    pub server: ModelServer,
    pub api: Api,
    pub tools: Tools,
    pub limits: LimitsConfig,
    agent: Arc<AgentRecord>,
    epoch: u64,
    events: Arc<RunEvents>,
}

/// Events of a run.
#[derive(Default)]
struct RunEvents(Mutex<Vec<RunEvent>>);

#[async_trait]
impl EventSink for RunEvents {
    async fn publish(&self, events: Vec<QueuedEvent>) -> Result<(), SinkError> {
        self.0.lock().unwrap().extend(events.into_iter().filter_map(|event| match event {
            QueuedEvent::Run(event) => Some(event),
            QueuedEvent::Decision(_) => None,
        }));
        Ok(())
    }
}

impl Bench {
    pub async fn of(backend: Backend, agent: Value) -> Self {
        let (server, api) = (ModelServer::start().await, Api::start().await);
        let text = agent.to_string().replace("{api}", &api.base_url);
        let agent = AgentRecord::from_document(serde_json::from_str(&text).unwrap(), clock::now()).unwrap();
        let model = config::Model {
            provider: Provider::Openai,
            base_url: server.base_url(),
            api_key_env: None,
            model: "m".into(),
            timeout: Text(Duration::from_secs(20)),
            idle_timeout: Text(Duration::from_secs(20)),
            max_retries: 1,
            temperature: None,
            max_tokens: None,
            max_completion_tokens: None,
            extra: serde_json::Map::new(),
            api_key_header: None,
            vision: false,
        };
        let settings = Settings { models: [("default".to_owned(), model)].into(), ..Settings::default() };
        let take = Acquire {
            session_id: "r1".into(),
            seq: 1,
            stream: backend.queue.stream().await.unwrap().created_at,
            rewind: None,
            job_id: "m-1".into(),
            owner: "w1".into(),
            token: "w1".into(),
            lease: Duration::from_secs(60),
            new_session: NewSession::default(),
            pin: None,
        };
        let Acquired::Granted(grant) = backend.store.acquire(take).await.unwrap() else { panic!("the lane is free") };
        Self {
            models: Models::from_settings(&settings, |_| None).unwrap(),
            store: backend.store,
            server,
            api,
            tools: Tools::default(),
            limits: LimitsConfig::default(),
            agent: Arc::new(agent),
            epoch: grant.session.epoch,
            events: Arc::default(),
        }
    }

    pub async fn embedded(agent: Value) -> Self {
        Self::of(embedded().await, agent).await
    }

    /// Runs the workflow with the current journal. Returns its end and its events.
    pub async fn run(&self, input: &str) -> (RunEnd, Vec<RunEvent>) {
        let end = self.running(input).await.unwrap();
        let mut events = std::mem::take(&mut *self.events.0.lock().unwrap());
        events.push(end.event.clone());
        (end, events)
    }

    /// Runs the workflow until `broken`, like a worker that is killed then.
    pub async fn run_until(&self, input: &str, broken: impl Future<Output = ()>) {
        tokio::select! {
            ended = self.running(input) => panic!("the run ended too early: {ended:?}"),
            () = broken => {}
        }
    }

    /// Events of the run so far.
    pub fn told(&self) -> Vec<RunEvent> {
        self.events.0.lock().unwrap().clone()
    }

    async fn running(&self, input: &str) -> Result<RunEnd, RunError> {
        let (store, clock, guard) = (Arc::clone(&self.store), Clock::system(), Guard::always());
        let turn =
            LeasedTurn { store, clock, session_id: "r1", turn_id: "r1", epoch: self.epoch, guard, prompt_mask: None };
        let journal = Journal::open(turn, true).await?;
        let resolved = ResolvedDefinitions::resolve(self, &Flows::builtin(), "case").await.unwrap();
        let services = RunServices {
            sandbox: std::sync::Arc::new(sandbox::Sandbox::off()),
            connectors: std::sync::Arc::default(),
            models: self.models.clone(),
            http: HttpCaller::new(SecretFill::none(), &["*".to_owned()]).unwrap(),
            tools: self.tools.clone(),
            prompts: Prompts::new(None).into(),
            decisions: DecisionLimits::new(&Settings::default(), &[]).into(),
        };
        let limits = Limits::resolve(&Settings::default().workflow, &self.limits);
        let environment = RunEnvironment { services, sink: Arc::clone(&self.events) as Arc<dyn EventSink>, limits };
        Box::pin(execute(RunStart::new("r1", resolved, input, journal, environment))).await
    }

    /// The agent's steps by key, those of one iteration in order.
    pub async fn steps(&self) -> Vec<StepRecord> {
        let mut steps = self.store.steps("r1", "r1").await.unwrap();
        steps.sort_by(|a, b| a.key.cmp(&b.key));
        steps
    }
}

#[async_trait]
impl Definitions for Bench {
    async fn workflow(&self, id: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError> {
        let stage = StageDefinition {
            id: "work".into(),
            runnable: Target::Reference(self.agent.id().to_owned()),
            input: InputMapping::passthrough("query"),
            condition: None,
            retry: Retry::default(),
            model: None,
            timeout: None,
        };
        let shape = Shape::Pipeline { stages: vec![stage], output: None, inherit_keys: Vec::new() };
        let limits = LimitsConfig::default();
        let workflow = Arc::new(Workflow { id: "case".into(), description: String::new(), shape, limits });
        let (document, hash) = (json!({}), "h1".to_owned());
        let record =
            WorkflowRecord { workflow, document, hash, updated_at: clock::now(), source: None, owner_session: None };
        Ok((id == "case").then(|| Arc::new(record)))
    }

    async fn workflow_version(&self, id: &str, _: &str) -> Result<Option<Arc<WorkflowRecord>>, ResolveError> {
        self.workflow(id).await
    }

    async fn agent(&self, id: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError> {
        Ok((id == self.agent.id()).then(|| Arc::clone(&self.agent)))
    }

    async fn agent_version(&self, id: &str, _: &str) -> Result<Option<Arc<AgentRecord>>, ResolveError> {
        self.agent(id).await
    }
}

/// The agent's own events, without the deltas of its responses.
pub fn of_agent(events: &[RunEvent]) -> Vec<&RunEvent> {
    events.iter().filter(|event| event.depth == 1 && event.kind != RunEventType::StepDelta).collect()
}

/// Role and text of each published message.
pub fn messages(events: &[RunEvent]) -> Vec<(&str, &str)> {
    let told = events.iter().filter_map(|event| event.snapshot.as_ref());
    told.map(|Snapshot { role, content, .. }| (role.as_str(), content.as_str())).collect()
}

/// The published texts by stream.
pub fn streams(events: &[RunEvent]) -> Vec<(String, String)> {
    let mut streams: Vec<(String, String)> = Vec::new();
    for delta in events.iter().filter_map(|event| event.delta.as_ref()) {
        match streams.last_mut().filter(|(id, _)| *id == delta.stream_id) {
            Some((_, text)) => text.push_str(&delta.content),
            None => {
                assert_eq!(delta.seq, 0, "a stream starts at 0");
                streams.push((delta.stream_id.clone(), delta.content.clone()));
            }
        }
    }
    streams
}
