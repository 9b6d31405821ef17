//! Rehearsals of drafts in engines in memory: real models, prompts and workflows, but a stand-in answers every call.

use super::builder::EngineBuilder;
use super::{Engine, EngineError, NewMessage, NewRun};
use async_trait::async_trait;
use base::config::{Backend, Environment, Settings};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use engine::action::stand_in::StandIn;
use engine::model::Model;
use engine::rehearsal::{
    Draft, RehearsalTest, Rehearse, Rehearsed, RehearsedTest, TestError, TestResult, TurnSeen, run_deviation,
};
use engine::workflow::Flows;
use futures::{FutureExt, StreamExt, stream};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use storage::store::{Store, StoreError};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::debug;
use types::plan::Plan;
use types::run::RunStatus;

/// How many tests run concurrently.
const CONCURRENT_TESTS: usize = 4;
/// How many rehearsals of authoring dialogues run concurrently in one engine. Each has engines of its own.
const CONCURRENT_REHEARSALS: usize = 4;
/// The session of a test.
const SESSION: &str = "rehearsal";

/// Rehearses drafts with the settings and models of an engine.
pub struct Rehearsal {
    settings: Settings,
    env: Environment,
    models: Vec<(String, Arc<dyn Model>)>,
    flows: Flows,
    agents: Vec<AgentRecord>,
    workflows: Vec<WorkflowRecord>,
}

impl Rehearsal {
    /// With the models of the settings.
    pub fn new(settings: &Settings, env: &Environment) -> Self {
        let settings = Settings { backend: Backend::Embedded, ..settings.clone() };
        let (models, agents, workflows) = (Vec::new(), Vec::new(), Vec::new());
        Self { settings, env: env.clone(), models, flows: Flows::builtin(), agents, workflows }
    }

    /// With the models and the registered flows of an engine, and the agents and workflows in its store.
    pub async fn of(engine: &Engine) -> Result<Self, StoreError> {
        LiveRehearsal::of(engine).now().await
    }

    /// With the models of the settings and these, and these flows.
    fn among(settings: &Settings, env: &Environment, models: Vec<(String, Arc<dyn Model>)>, flows: Flows) -> Self {
        Self { models, flows, ..Self::new(settings, env) }
    }

    /// Adds the agents and workflows to which a draft may refer. They are not checked.
    #[must_use]
    pub fn with(
        mut self,
        agents: impl IntoIterator<Item = AgentRecord>,
        workflows: impl IntoIterator<Item = WorkflowRecord>,
    ) -> Self {
        self.agents.extend(agents);
        self.workflows.extend(workflows);
        self
    }

    /// Starts an engine in memory that has the draft.
    async fn start(
        &self,
        draft: &Draft,
        plan: Option<&Plan>,
        stand_in: &Arc<StandIn>,
        patience: Duration,
    ) -> Result<Engine, EngineError> {
        let mut builder = EngineBuilder::new(self.settings.clone(), true).environment(self.env.clone());
        builder.models.clone_from(&self.models);
        builder.flows = self.flows.clone();
        builder.stand_in = Some(Arc::clone(stand_in));
        let engine = Box::pin(builder.patience(patience).open()).await?;
        let store = engine.store();
        for agent in &self.agents {
            store.put_agent(agent.clone()).await?;
        }
        for workflow in &self.workflows {
            store.put_workflow(workflow.clone()).await?;
        }
        match draft {
            Draft::Agent(agent, texts) => {
                store.put_agent(agent.clone()).await?;
                engine.apply_knowledge(agent.id(), texts.clone()).await?;
            }
            Draft::Workflow(workflow) => drop(store.put_workflow(workflow.clone()).await?),
        }
        if let Some(plan) = plan {
            store.put_plan(plan.clone()).await?;
        }
        // No scheduler: no follow-up timer of a draft fires.
        engine.start_worker()?;
        Ok(engine)
    }

    /// Runs one test. Returns the plan of the agent as well, which the next test need not make again.
    async fn test(
        &self,
        draft: &Draft,
        plan: Option<&Plan>,
        test: &RehearsalTest,
        until: Instant,
    ) -> (RehearsedTest, Option<Plan>) {
        let (result, plan) = match timeout_at(until, Box::pin(self.tried(draft, plan, test, until))).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => (TestResult::NotRun { reason: error.to_string() }, None),
            Err(_) => (TestResult::NotRun { reason: "the time of the rehearsal is over".to_owned() }, None),
        };
        debug!(name = test.name, ?result, "rehearsed");
        (RehearsedTest { name: test.name.clone(), result }, plan)
    }

    async fn tried(
        &self,
        draft: &Draft,
        plan: Option<&Plan>,
        test: &RehearsalTest,
        until: Instant,
    ) -> Result<(TestResult, Option<Plan>), EngineError> {
        let stand_in = Arc::new(StandIn::given(test.answers.clone()));
        let patience = until.saturating_duration_since(Instant::now());
        let engine = self.start(draft, plan, &stand_in, patience).await?;
        let result = match draft {
            Draft::Agent(agent, _) => converse(&engine, agent, test, &stand_in).await?,
            Draft::Workflow(workflow) => run(&engine, workflow, test, &stand_in).await?,
        };
        let plan = match draft {
            Draft::Agent(agent, _) => engine.store().plan(agent.id(), &agent.hash).await?,
            Draft::Workflow(_) => None,
        };
        engine.stop().await;
        Ok((result, plan.map(|plan| Plan::clone(&plan))))
    }
}

/// Rehearses drafts beside the agents and workflows that are stored at that time.
pub(super) struct LiveRehearsal {
    store: Arc<dyn Store>,
    settings: Arc<Settings>,
    env: Environment,
    models: Vec<(String, Arc<dyn Model>)>,
    flows: Flows,
    running: Semaphore,
}

impl LiveRehearsal {
    /// With the models and the registered flows of an engine.
    pub(super) fn of(engine: &Engine) -> Self {
        Self {
            store: Arc::clone(&engine.store),
            settings: Arc::clone(&engine.settings),
            env: engine.env.clone(),
            models: engine.models.clone(),
            flows: engine.flows.clone(),
            running: Semaphore::new(CONCURRENT_REHEARSALS),
        }
    }

    async fn now(&self) -> Result<Rehearsal, StoreError> {
        let (agents, workflows) = futures::try_join!(self.store.agents(), self.store.workflows())?;
        let rehearsal = Rehearsal::among(&self.settings, &self.env, self.models.clone(), self.flows.clone());
        Ok(rehearsal.with(
            agents.good.iter().map(|agent| AgentRecord::clone(agent)),
            workflows.good.iter().map(|workflow| WorkflowRecord::clone(workflow)),
        ))
    }
}

#[async_trait]
impl Rehearse for LiveRehearsal {
    async fn rehearse(&self, draft: &Draft, tests: &[RehearsalTest], limit: Duration) -> Result<Rehearsed, TestError> {
        let until = Instant::now() + limit;
        let not_run = |reason: String| {
            let result = TestResult::NotRun { reason };
            let not_run = |test: &RehearsalTest| RehearsedTest { name: test.name.clone(), result: result.clone() };
            Rehearsed::new(tests.iter().map(not_run).collect(), None)
        };
        let Ok(Ok(_running)) = timeout_at(until, self.running.acquire()).await else {
            return Ok(not_run(format!("{CONCURRENT_REHEARSALS} other rehearsals took all the time")));
        };
        match self.now().await {
            Ok(rehearsal) => rehearsal.rehearse(draft, tests, until.saturating_duration_since(Instant::now())).await,
            Err(error) => Ok(not_run(error.to_string())),
        }
    }
}

#[async_trait]
impl Rehearse for Rehearsal {
    async fn rehearse(&self, draft: &Draft, tests: &[RehearsalTest], limit: Duration) -> Result<Rehearsed, TestError> {
        draft.check(tests)?;
        let until = Instant::now() + limit;
        let Some((first, others)) = tests.split_first() else { return Err(TestError::None) };
        // The first test makes the plan. The others use it, as sessions of one agent do.
        let (first, plan) = self.test(draft, None, first, until).await;
        let others: Vec<_> = others.iter().map(|test| self.test(draft, plan.as_ref(), test, until).boxed()).collect();
        let others: Vec<_> = stream::iter(others).buffered(CONCURRENT_TESTS).collect().await;
        let others = others.into_iter().map(|(test, _)| test);
        Ok(Rehearsed::new(std::iter::once(first).chain(others).collect(), plan))
    }
}

/// Sends the messages of a test, up to the first deviation.
async fn converse(
    engine: &Engine,
    agent: &AgentRecord,
    test: &RehearsalTest,
    stand_in: &StandIn,
) -> Result<TestResult, EngineError> {
    for (nth, turn) in test.turns.iter().enumerate() {
        let message =
            NewMessage { user_id: Some(SESSION.to_owned()), ..NewMessage::new(SESSION, agent.id(), &turn.say) };
        let answer = engine.ask(message).await?;
        let seen = TurnSeen {
            status: answer.turn.statuses.last().map(|last| last.status).unwrap_or_default(),
            reason: answer.turn.reason.clone(),
            actions: answer.turn.actions.clone(),
            replies: answer.texts().into_iter().map(str::to_owned).collect(),
            unanswered: stand_in.missing(),
        };
        if let Some(deviation) = seen.deviation(nth + 1, &turn.expect) {
            return Ok(TestResult::Failed(deviation));
        }
    }
    Ok(TestResult::Passed)
}

async fn run(
    engine: &Engine,
    workflow: &WorkflowRecord,
    test: &RehearsalTest,
    stand_in: &StandIn,
) -> Result<TestResult, EngineError> {
    let (query, input) = match test.input.clone() {
        None | Some(Value::Null) => (String::new(), None),
        Some(Value::Object(inputs)) => (String::new(), Some(inputs)),
        Some(Value::String(query)) => (query, None),
        Some(other) => (other.to_string(), None),
    };
    let started = engine.start_run(NewRun { input, ..NewRun::new(workflow.id(), query) }).await?;
    let ended = engine.run_ended(&started.run_id).await?;
    let output = match (ended.status, &ended.error) {
        (RunStatus::Completed, _) => Ok(ended.output.as_deref().unwrap_or_default()),
        (_, Some(failure)) => Err(failure.to_string()),
        (status, None) => Err(format!("the run is {}", status.as_str())),
    };
    let deviation = run_deviation(output, test.expect.as_ref(), &stand_in.missing());
    Ok(deviation.map_or(TestResult::Passed, TestResult::Failed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Script, act, say};
    use serde_json::json;
    use std::net::TcpListener;
    use types::timestamp::Timestamp;

    /// A socket that no rehearsal may connect to.
    struct Outside(TcpListener);

    impl Outside {
        fn listen() -> Self {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            Self(socket)
        }

        fn url(&self) -> String {
            format!("http://{}/x", self.0.local_addr().unwrap())
        }

        fn saw_nothing(&self) {
            let error = self.0.accept().map(|(_, from)| from).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        }
    }

    fn rehearsal(model: Option<&Script>) -> Rehearsal {
        let mut settings = Settings::default();
        settings.http.allow_private = vec!["*".into()];
        let mut rehearsal = Rehearsal::new(&settings, &Environment::default());
        rehearsal.models.extend(model.map(|model| ("default".to_owned(), Arc::new(model.clone()) as Arc<dyn Model>)));
        rehearsal
    }

    fn agent(outside: &Outside) -> Draft {
        let document = json!({
            "id": "shop", "greeting": "您好", "sop": "查询订单", "handoff": {"http": {"method": "POST", "url": outside.url()}},
            "skills": [{"id": "order", "http": {"method": "GET", "url": outside.url()}}],
            "tools": [{"id": "eta", "http": {"method": "POST", "url": outside.url()}}, {"id": "now", "builtin": "now"}],
            "timers": [{"name": "later", "delay": "1s", "message": "还在吗？"}],
        });
        Draft::Agent(AgentRecord::from_document(document, Timestamp::from_millis(0)).unwrap(), Vec::new())
    }

    async fn results(draft: &Draft, model: Option<&Script>, document: Value) -> Rehearsed {
        let tests = engine::rehearsal::tests(&document).unwrap();
        rehearsal(model).rehearse(draft, &tests, Duration::from_secs(60)).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_agent_is_rehearsed_with_the_answers_of_its_tests_and_nothing_leaves_the_process() {
        let outside = Outside::listen();
        let model = Script::by(|asked| match (asked.message.as_str(), &asked.last_action) {
            ("订单？", None) => act("SKILL", "order", json!({})),
            ("Where?", None) => act("TOOL", "eta", json!({})),
            ("human", _) => crate::testing::hand_off("稍等"),
            (_, Some((_, result))) => say(result.to_string()),
            _ => say("?"),
        });
        let turn = |text: &str, expect: Value| json!([{"say": text, "expect": expect}]);
        let report = results(
            &agent(&outside),
            Some(&model),
            json!([
                {"name": "answered", "answers": {"order": {"state": "已发货"}},
                 "turns": turn("订单？", json!({"status": "ready", "calls": ["order"], "reply_contains": ["您好", "已发货"]}))},
                {"name": "deviates", "answers": {"eta": {"days": 3}},
                 "turns": [{"say": "hi"}, {"say": "Where?", "expect": {"calls": ["eta"], "reply_contains": "4"}}]},
                {"name": "unanswered", "turns": turn("Where?", json!({"not_contains": "no answer is given for `eta`"}))},
                {"name": "handoff without an answer", "turns": turn("human", json!({"status": "transferred"}))},
                {"name": "handoff", "answers": {"handoff": {}}, "turns": turn("human", json!({"status": "transferred"}))},
            ]),
        )
        .await;
        outside.saw_nothing();
        assert_eq!((report.passed, report.failed, report.not_run), (2, 3, 0), "{report:#?}");
        let TestResult::Failed(deviates) = &report.tests[1].result else { panic!("{report:?}") };
        assert_eq!((deviates.turn, deviates.what.as_str(), &deviates.expected), (2, "reply_contains", &json!("4")));
        let TestResult::Failed(unanswered) = &report.tests[2].result else { panic!("{report:?}") };
        assert!(unanswered.unanswered[0].contains("no answer is given for `eta`"), "{unanswered:?}");
        assert!(!report.is_ok());
        let plans = model.asked().iter().filter(|asked| asked.schema == "plan_and_decision").count();
        assert_eq!((plans, report.plan.is_some()), (1, true), "the plan is made once");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nodes_that_reach_outside_are_answered_or_fail_and_nothing_leaves_the_process() {
        let outside = Outside::listen();
        let document = json!({
            "type": "graph", "id": "w", "name": "x", "description": "x",
            "nodes": [
                {"node_id": "fetch", "name": "取", "type": "HTTP", "config": {"url": outside.url(), "method": "GET"}},
                {"node_id": "end", "name": "止", "type": "END", "config": {"output": "got ${fetch.output.data}"}},
            ],
            "edges": [{"source": "fetch", "target": "end"}],
        });
        let record = definitions::workflow::read::text("w.json".as_ref(), &document.to_string());
        let draft = Draft::Workflow(record.unwrap_or_else(|error| panic!("{error}")));
        let report = results(
            &draft,
            None,
            json!([
                {"name": "answered", "input": {}, "answers": {"fetch": {"status": 200, "data": "好"}},
                 "expect": {"output_contains": "got 好"}},
                {"name": "unanswered", "input": {}},
            ]),
        )
        .await;
        outside.saw_nothing();
        assert_eq!((report.passed, report.failed), (1, 1), "{report:#?}");
        let TestResult::Failed(failed) = &report.tests[1].result else { panic!("{report:?}") };
        assert_eq!(failed.what, "end");
        assert!(failed.got.to_string().contains("NO_ANSWER"), "{failed:?}");
    }

    #[tokio::test]
    async fn tests_of_the_other_kind_are_refused() {
        let draft = agent(&Outside::listen());
        let tests = engine::rehearsal::tests(&json!([{"name": "x", "input": "a"}])).unwrap();
        let refused = rehearsal(None).rehearse(&draft, &tests, Duration::from_secs(9)).await.unwrap_err();
        assert!(refused.to_string().contains("`x` has no `turns`"), "{refused}");
    }
}
