//! Rehearsals of drafts in engines in memory. Models, prompts and workflows are real; a stand-in answers every call.

use super::builder::EngineBuilder;
use super::{Engine, EngineError, NewMessage, NewRun, replay};
use async_trait::async_trait;
use base::clock::Clock;
use base::config::{Backend, Environment, Settings};
use definitions::agent::AgentRecord;
use definitions::knowledge::files::NamedText;
use definitions::knowledge::source::Source;
use definitions::workflow::definition::WorkflowRecord;
use embedded::store::SharedDefinitions;
use engine::action::stand_in::StandIn;
use engine::authoring::{AGENT_ID, day_meter};
use engine::budget::DayMeter;
use engine::model::Model;
use engine::rehearsal::{
    Draft, RehearsalTest, Rehearse, Rehearsed, RehearsedTest, TestError, TestResult, TurnSeen, run_deviation,
};
use engine::replay::{RecordedTurn, Replay, Replayed, all_failed};
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
pub(super) const CONCURRENT_TESTS: usize = 4;
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
    /// The agents and workflows to which a draft may refer.
    shared: SharedDefinitions,
    /// Stored knowledge of the draft's agent, in addition to the texts that come with the draft.
    knowledge: Vec<Source>,
    /// The budget that model calls count in.
    meter: Option<Arc<DayMeter>>,
}

impl Rehearsal {
    /// Creates a rehearsal with the models of the settings.
    pub fn new(settings: &Settings, env: &Environment) -> Self {
        let settings = Settings { backend: Backend::Embedded, ..settings.clone() };
        let (models, shared, knowledge) = (Vec::new(), SharedDefinitions::default(), Vec::new());
        let (env, flows, meter) = (env.clone(), Flows::builtin(), None);
        Self { settings, env, models, flows, shared, knowledge, meter }
    }

    /// With the models and the registered flows of an engine, and the agents and workflows in its store. Model calls
    /// count in no budget.
    pub async fn of(engine: &Engine) -> Result<Self, StoreError> {
        Ok(Self { meter: None, ..LiveRehearsal::of(engine).now(None).await? })
    }

    /// Creates a rehearsal with the models of the settings, these models, and these flows.
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
        self.shared.extend(agents.into_iter().map(Arc::new), workflows.into_iter().map(Arc::new));
        self
    }

    /// Starts an engine in memory that contains the draft.
    pub(super) async fn start(
        &self,
        draft: &Draft,
        plan: Option<&Plan>,
        stand_in: &Arc<StandIn>,
        patience: Duration,
    ) -> Result<Engine, EngineError> {
        let mut builder = self.builder();
        builder.stand_in = Some(Arc::clone(stand_in));
        let engine = Box::pin(builder.patience(patience).open()).await?;
        self.fill(&engine, draft).await?;
        if let Some(plan) = plan {
            engine.store().put_plan(plan.clone()).await?;
        }
        // No scheduler: no follow-up timer of a draft fires.
        engine.start_worker()?;
        Ok(engine)
    }

    /// Returns the builder of an engine in memory with the models and flows, and with the agents and workflows to which
    /// a draft may refer.
    pub(super) fn builder(&self) -> EngineBuilder {
        let mut builder = EngineBuilder::new(self.settings.clone(), true).environment(self.env.clone());
        builder.models.clone_from(&self.models);
        builder.flows = self.flows.clone();
        builder.rehearses = true;
        builder.shared = self.shared.clone();
        builder.meter.clone_from(&self.meter);
        builder
    }

    /// Puts the draft into an engine, with the knowledge to which it may refer.
    pub(super) async fn fill(&self, engine: &Engine, draft: &Draft) -> Result<(), EngineError> {
        let store = engine.store();
        match draft {
            Draft::Agent(agent, knowledge) => {
                store.put_agent(agent.clone()).await?;
                engine.apply_knowledge(agent.id(), knowledge.texts.clone()).await?;
                for source in self.knowledge.iter().filter(|source| source.entry.agent_id == agent.id()) {
                    store.put_knowledge(source.clone()).await?;
                }
                engine.knowledge.refresh(agent.id()).await?;
            }
            Draft::Workflow(workflow) => drop(store.put_workflow(workflow.clone()).await?),
        }
        Ok(())
    }

    /// True if a model was not asked, because the budget was spent.
    fn is_spent(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.has_refused())
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
        // A worker that stops waits up to a second for its last pull. This engine is not kept, so nothing waits for it.
        engine.abandon();
        Ok((result, plan.map(|plan| Plan::clone(&plan))))
    }
}

/// Rehearses drafts together with the agents and workflows that are stored at the start of each rehearsal.
pub(super) struct LiveRehearsal {
    store: Arc<dyn Store>,
    settings: Arc<Settings>,
    env: Environment,
    models: Vec<(String, Arc<dyn Model>)>,
    flows: Flows,
    clock: Clock,
    running: Semaphore,
}

impl LiveRehearsal {
    /// Uses the models and the registered flows of an engine.
    pub(super) fn of(engine: &Engine) -> Self {
        Self {
            store: Arc::clone(&engine.store),
            settings: Arc::clone(&engine.settings),
            env: engine.env.clone(),
            models: engine.models.clone(),
            flows: engine.flows.clone(),
            clock: engine.clock.clone(),
            running: Semaphore::new(CONCURRENT_REHEARSALS),
        }
    }

    /// Returns a rehearsal with the agents and workflows stored now, and the knowledge of this agent.
    pub(super) async fn now(&self, agent_id: Option<&str>) -> Result<Rehearsal, StoreError> {
        let (agents, workflows) = futures::try_join!(self.store.agents(), self.store.workflows())?;
        let knowledge = match agent_id {
            Some(agent_id) => self.store.knowledge(agent_id).await?,
            None => Vec::new(),
        };
        let mut rehearsal = Rehearsal::among(&self.settings, &self.env, self.models.clone(), self.flows.clone());
        rehearsal.shared.extend(agents.good, workflows.good);
        let meter = day_meter(&self.store, &self.settings.budget, self.clock.clone()).await?;
        Ok(Rehearsal { knowledge, meter, ..rehearsal })
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
            return Ok(not_run(format!("{CONCURRENT_REHEARSALS} other rehearsals used up the time")));
        };
        match self.now(draft.reads_texts_of()).await {
            Ok(rehearsal) => {
                let left = until.saturating_duration_since(Instant::now());
                let rehearsed = rehearsal.rehearse(draft, tests, left).await?;
                Ok(if rehearsal.is_spent() { undecided(rehearsed) } else { rehearsed })
            }
            Err(error) => Ok(not_run(error.to_string())),
        }
    }
}

#[async_trait]
impl Replay for LiveRehearsal {
    async fn replay(
        &self,
        agent: &AgentRecord,
        texts: &[NamedText],
        turns: &[RecordedTurn],
        limit: Duration,
    ) -> Replayed {
        let until = Instant::now() + limit;
        let Ok(Ok(_running)) = timeout_at(until, self.running.acquire()).await else {
            return all_failed(turns, &format!("{CONCURRENT_REHEARSALS} rehearsals took all the time"));
        };
        match self.now(Some(agent.id())).await {
            Ok(rehearsal) => {
                rehearsal.replay(agent, texts, turns, until.saturating_duration_since(Instant::now())).await
            }
            Err(error) => all_failed(turns, &error.to_string()),
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

#[async_trait]
impl Replay for Rehearsal {
    async fn replay(
        &self,
        agent: &AgentRecord,
        texts: &[NamedText],
        turns: &[RecordedTurn],
        limit: Duration,
    ) -> Replayed {
        replay::replay(self, agent, texts, turns, Instant::now() + limit).await
    }
}

/// A rehearsal whose budget was spent before its end: a test that failed may have failed for that reason.
fn undecided(rehearsed: Rehearsed) -> Rehearsed {
    let reason = format!("the daily token budget of the agent `{AGENT_ID}` is spent");
    let test = |test: RehearsedTest| match test.result {
        TestResult::Failed(_) => RehearsedTest { result: TestResult::NotRun { reason: reason.clone() }, ..test },
        TestResult::Passed | TestResult::NotRun { .. } => test,
    };
    Rehearsed::new(rehearsed.tests.into_iter().map(test).collect(), rehearsed.plan)
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

/// A run with the input of a test.
pub(super) fn new_run(workflow: &WorkflowRecord, input: Option<Value>) -> NewRun {
    let (query, input) = match input {
        None | Some(Value::Null) => (String::new(), None),
        Some(Value::Object(inputs)) => (String::new(), Some(inputs)),
        Some(Value::String(query)) => (query, None),
        Some(other) => (other.to_string(), None),
    };
    NewRun { input, ..NewRun::new(workflow.id(), query) }
}

async fn run(
    engine: &Engine,
    workflow: &WorkflowRecord,
    test: &RehearsalTest,
    stand_in: &StandIn,
) -> Result<TestResult, EngineError> {
    let started = engine.start_run(new_run(workflow, test.input.clone())).await?;
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
mod tests;
