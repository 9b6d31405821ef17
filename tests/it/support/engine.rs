//! A whole engine in the test's process, on either backend, with a scripted model and API.

use super::api::Api;
use super::script::ScriptedModel;
use super::{background, eventually, within};
use crate::conformance::kit;
use base::clock;
use base::config::{self, Settings};
use base::tasks::Tasks;
use definitions::agent::AgentRecord;
use definitions::coordinator::DecisionLimits;
use engine::action::http::{HttpCaller, SecretFill};
use engine::action::tool::Tools;
use engine::authoring::Workbench;
use engine::budget::Budgets;
use engine::execution::Services;
use engine::execution::prompt_view::PlanTextCache;
use engine::execution::stored::StoredDefinitions;
use engine::knowledge::Library;
use engine::model::Models;
use engine::prompt::Prompts;
use engine::rehearsal::Rehearse;
use engine::timer::scheduler::Scheduler;
use engine::worker::Worker;
use engine::workflow::Flows;
use futures::StreamExt;
use grpc::Author;
use lab::invariants;
use sandbox::Sandbox;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{From, Publish, Queue};
use storage::store::Store;
use storage::store::records::{Acquire, Acquired};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use types::cause::Cause;
use types::duration::Text;
use types::event::{Event, Reply, ReplyKind};
use types::session::{Session, Status};
use types::turn::TurnRecord;

/// Time limit for everything that a test waits for.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Queue, store and settings of one test.
pub struct Backend {
    pub queue: Arc<dyn Queue>,
    pub store: Arc<dyn Store>,
    pub settings: Settings,
}

/// A running engine.
pub struct Engine {
    pub queue: Arc<dyn Queue>,
    pub store: Arc<dyn Store>,
    pub settings: Settings,
    pub model: ScriptedModel,
    pub api: Api,
    /// Functions for workers that are started from now on.
    pub tools: Tools,
    pub flows: Flows,
    /// Rehearses the drafts of authoring dialogues, in workers that are started from now on.
    pub rehearsal: Option<Arc<dyn Rehearse>>,
    /// The authoring agent on another server, for workers that are started from now on.
    pub author: Option<Arc<dyn Author>>,
    stop: CancellationToken,
    scheduler: std::sync::Mutex<CancellationToken>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Settings that most tests share: short leases, and the scripted model as `default`.
pub fn quick(mut settings: Settings) -> Settings {
    settings.worker.ack_wait = Text(Duration::from_secs(2));
    settings.http.allow_private = vec!["*".into()];
    settings
}

/// Adds the scripted model to the settings.
pub fn with_model(mut settings: Settings, model: &ScriptedModel) -> Settings {
    settings.models.insert("default".to_owned(), scripted(model));
    settings
}

/// The settings of a scripted model.
pub fn scripted(model: &ScriptedModel) -> config::Model {
    config::Model {
        provider: config::Provider::Openai,
        base_url: model.base_url(),
        api_key_env: None,
        model: "scripted-1".into(),
        timeout: Text(Duration::from_secs(30)),
        idle_timeout: Text(Duration::from_secs(30)),
        max_retries: 1,
        temperature: None,
        max_tokens: None,
        max_completion_tokens: None,
        extra: serde_json::Map::new(),
        api_key_header: None,
        vision: false,
    }
}

/// A sandbox that runs scripts with the built program: the test's own executable serves none.
pub fn sandbox(settings: &Settings) -> Sandbox {
    let env = config::Environment::from_process();
    Sandbox::new(&settings.python, Some(env!("CARGO_BIN_EXE_turnwheel").into()), &env, Tasks::new())
}

impl Engine {
    /// Starts neither workers nor a scheduler: the test starts them itself, or other processes do the work.
    pub async fn watching(backend: Backend, model: ScriptedModel) -> Self {
        let Backend { queue, store, settings } = backend;
        let settings = with_model(settings, &model);
        Self {
            queue,
            store,
            settings,
            model,
            api: Api::start().await,
            tools: Tools::default(),
            flows: Flows::builtin(),
            rehearsal: None,
            author: None,
            stop: CancellationToken::new(),
            scheduler: std::sync::Mutex::new(CancellationToken::new()),
        }
    }

    /// Starts `workers` workers and a scheduler.
    pub async fn start(backend: Backend, model: ScriptedModel, workers: usize) -> Self {
        let engine = Self::watching(backend, model).await;
        for _ in 0..workers {
            engine.start_worker();
        }
        engine.start_scheduler();
        engine
    }

    fn workbench(&self) -> Workbench {
        let (store, clock) = (Arc::clone(&self.store), clock::Clock::system());
        let bench = Workbench::of_settings(store, &self.settings, self.flows.ids(), clock);
        let bench = match &self.rehearsal {
            Some(rehearsal) => bench.with_rehearsal(Arc::clone(rehearsal)),
            None => bench,
        };
        match &self.author {
            Some(author) => bench.with_author(Arc::clone(author)),
            None => bench,
        }
    }

    pub fn services(&self) -> Services {
        Services {
            queue: Arc::clone(&self.queue),
            store: Arc::clone(&self.store),
            models: Models::from_settings(&self.settings, |_| None).unwrap(),
            prompts: Prompts::new(None).into(),
            plan_texts: PlanTextCache::default(),
            http: HttpCaller::new(SecretFill::none(), &self.settings.http.allow_private).unwrap(),
            tools: self.tools.clone(),
            flows: self.flows.clone(),
            knowledge: Library::new(Arc::clone(&self.store)),
            definitions: Arc::new(StoredDefinitions::new(Arc::clone(&self.store))),
            limits: self.settings.workflow.clone(),
            budgets: Budgets::new(Arc::clone(&self.store), &self.settings.budget),
            keep_turns: self.settings.retention.turns.0,
            keeps_prompts: self.settings.journal.keeps_prompts(),
            decisions: DecisionLimits::new(&self.settings, &[]).into(),
            rehearses: false,
            sandbox: Arc::new(sandbox(&self.settings)),
            connectors: Arc::default(),
            workbench: Arc::new(self.workbench()),
            clock: clock::Clock::system(),
        }
    }

    pub fn start_worker(&self) -> CancellationToken {
        self.start_worker_with(self.services())
    }

    pub fn start_worker_with(&self, services: Services) -> CancellationToken {
        let stop = self.stop.child_token();
        let (worker, settings, token) = (Worker::new(services, &self.settings), self.settings.clone(), stop.clone());
        background(async move { worker.run(&settings, token).await });
        stop
    }

    pub fn start_scheduler(&self) {
        let token = self.stop.child_token();
        *self.scheduler.lock().unwrap() = token.clone();
        let scheduler =
            Scheduler::new(Arc::clone(&self.queue), Arc::clone(&self.store), clock::Clock::system(), &self.settings);
        background(scheduler.run(token));
    }

    pub fn stop_scheduler(&self) {
        self.scheduler.lock().unwrap().cancel();
    }

    /// Applies an agent file, with `{api}` replaced by the API's address.
    pub async fn apply(&self, agent: Value) {
        let text = agent.to_string().replace("{api}", &self.api.base_url);
        let record = AgentRecord::from_document(serde_json::from_str(&text).unwrap(), clock::now()).unwrap();
        self.store.put_agent(record).await.unwrap();
    }

    /// Publishes a user message and waits for the end of its turn.
    pub async fn say(&self, session_id: &str, job_id: &str, text: &str) -> TurnRecord {
        self.publish(session_id, job_id, text).await;
        self.turn(session_id, job_id).await
    }

    pub async fn publish(&self, session_id: &str, job_id: &str, text: &str) {
        self.publish_job(
            session_id,
            json!({"type": "user_message", "session_id": session_id, "agent_id": "sales", "job_id": job_id, "text": text,
                   "user_id": "u1", "channel": "web"}),
        )
        .await;
    }

    pub async fn publish_job(&self, session_id: &str, job: Value) {
        let payload = serde_json::to_vec(&job).unwrap().into();
        self.queue.publish(Publish { session_id: session_id.into(), msg_id: None, payload }).await.unwrap();
    }

    /// A worker takes the next job, which is the session's, acquires its lane and dies.
    pub async fn attempt_dies(&self, session_id: &str) {
        let taken = self.queue.pull(1, DEADLINE).await.unwrap().remove(0);
        let wish = kit::acquire(session_id, taken.message.seq, "dead");
        let begun = Acquire { lease: Duration::ZERO, stream: taken.message.stream, ..wish };
        assert!(matches!(self.store.acquire(begun).await.unwrap(), Acquired::Granted(_)));
        self.queue.nak(&taken.token, Duration::ZERO).await.unwrap();
    }

    /// Waits for the event that ends the turn, and returns the turn's record.
    pub async fn turn(&self, session_id: &str, turn_id: &str) -> TurnRecord {
        let ended = timeout(DEADLINE, within(DEADLINE, || self.reads_end(session_id, turn_id))).await;
        assert!(matches!(ended, Ok(Some(()))), "not within {DEADLINE:?}: turn {session_id}/{turn_id} ends");
        // The worker counts the turn after it has published the event, and then acknowledges the message.
        eventually(DEADLINE, &format!("the message of turn {session_id}/{turn_id} has left the lane"), || async {
            let turn = self.store.turn(session_id, turn_id).await.ok()??;
            let session = self.store.session(session_id).await.ok()??;
            let next = self.queue.next_in_lane(session_id, 0, 0).await.ok()?;
            next.is_none_or(|next| next.seq > session.last_seq).then_some(turn)
        })
        .await
    }

    /// Reads the session's events up to the end of the turn. False if the queue is unreachable.
    async fn reads_end(&self, session_id: &str, turn_id: &str) -> bool {
        let Ok(mut events) = self.queue.events(session_id, From::After(0)).await else { return false };
        while let Some(Ok(event)) = events.next().await {
            let event = Event::decode(event.event_type, &event.payload);
            if event.is_ok_and(|event| event.end().is_some_and(|(ended, _)| ended == turn_id)) {
                return true;
            }
        }
        false
    }

    pub async fn session(&self, session_id: &str) -> Session {
        self.store.session(session_id).await.unwrap().expect("the session exists")
    }

    /// All events that were published for a session so far, without the begins of steps: a busy machine has more of
    /// them.
    pub async fn events(&self, session_id: &str) -> Vec<Event> {
        let mut events = invariants::events(self.queue.as_ref(), session_id).await.unwrap();
        events.retain(|event| !matches!(event, Event::Step(step) if !step.has_ended()));
        events
    }

    /// Cause and job id of every dead letter.
    pub async fn dead_letters(&self) -> Vec<(Cause, Option<String>)> {
        let kept = self.queue.dead_letters(0, 1_000).await.unwrap();
        kept.into_iter().map(|kept| (kept.letter.cause, kept.letter.job_id)).collect()
    }

    pub async fn replies(&self, session_id: &str) -> Vec<Reply> {
        let events = self.events(session_id).await;
        events
            .into_iter()
            .filter_map(|event| if let Event::Reply(reply) = event { Some(reply) } else { None })
            .collect()
    }

    /// Kind and text of all replies so far.
    pub async fn said(&self, session_id: &str) -> Vec<(ReplyKind, String)> {
        self.replies(session_id).await.into_iter().map(|reply| (reply.kind, reply.text)).collect()
    }
}

/// The statuses of a turn, in order.
pub fn statuses(turn: &TurnRecord) -> Vec<Status> {
    turn.statuses.iter().map(|status| status.status).collect()
}
