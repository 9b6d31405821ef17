//! Tests of agents, with their tools and flows: the real engine, in memory, and a model that answers as the test says.
//!
//! ```
//! use serde_json::json;
//! use turnwheel::testing::{self, Script, act, say};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let model = Script::answers([act("TOOL", "eta", json!({"order_id": "A1"})), say("It arrives in 2 days.")]);
//! let mut engine = testing::Engine::builder()
//!     .agent("{id: shop, greeting: Hello, sop: Say when orders arrive., tools: [{id: eta}]}")
//!     .tool("eta", |order: serde_json::Map<String, serde_json::Value>| async move {
//!         assert_eq!(order["order_id"], "A1");
//!         Ok::<_, String>(json!({"days": 2}))
//!     })
//!     .model(&model)
//!     .start()
//!     .await;
//! assert_eq!(engine.say("s1", "When does A1 arrive?").await.texts(), ["Hello", "It arrives in 2 days."]);
//! assert!(model.asked()[1].prompt.contains(r#""days":2"#), "the model has seen what the tool answered");
//! # });
//! ```
//!
//! A flow that asks its user goes on with what is said next:
//!
//! ```
//! use turnwheel::{FlowContext, FlowError};
//! use turnwheel::testing::{self, Script, act};
//! use serde_json::json;
//!
//! async fn rename(flow: FlowContext) -> Result<String, FlowError> {
//!     let name = flow.ask("What shall I call you?").await?;
//!     Ok(format!("Hello, {name}."))
//! }
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let model = Script::answers([act("FLOW", "rename", json!({}))]);
//! let agent = "{id: desk, sop: Be kind., flows: [rename]}";
//! let mut engine = testing::Engine::builder().agent(agent).flow("rename", rename).model(&model).start().await;
//! assert_eq!(engine.say("s1", "I have a new name").await.question(), Some("What shall I call you?"));
//! assert_eq!(engine.session("s1").await.waiting.unwrap().flow, "rename");
//! assert_eq!(engine.say("s1", "Robin").await.text(), "Hello, Robin.");
//! # });
//! ```
//!
//! What does not happen fails the test: every call here panics with what it waited for, and with what the model was asked
//! when its script was at its end. [`script`] is the model, [`builder`] what an engine is made of.

mod builder;
mod script;

pub use builder::EngineBuilder;
pub use script::{Asked, Reaction, Script, act, call, end, hand_off, plain, say, stream, unavailable};

use crate::app::{self, Answer};
use commands::messages::NewMessage;
use std::collections::BTreeSet;
use std::time::Duration;
use types::job::{Job, JobBody};
use types::session::Session;
use types::step::StepRecord;

/// How far back a timer is looked for that has fired.
const TURNS: usize = 100;

/// An engine in memory for one test. It ends when it is dropped.
pub struct Engine {
    engine: app::Engine,
    /// The agent that users talk to.
    agent_id: String,
    script: Option<Script>,
    patience: Duration,
    /// Turns of timers that were answered already.
    fired: BTreeSet<(String, String)>,
}

impl Engine {
    /// What the engine is to be made of.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// Says something in a session, and answers the turn once it has ended.
    ///
    /// # Panics
    /// When the turn does not end in time, or the model's script had no answer for it.
    pub async fn say(&mut self, session_id: &str, text: &str) -> Answer {
        let agent_id = self.agent_id.clone();
        self.send(NewMessage::new(session_id, agent_id, text)).await
    }

    /// The same, for a message with an agent, attachments or an id of its own.
    ///
    /// # Panics
    /// As [`Engine::say`].
    pub async fn send(&mut self, message: NewMessage) -> Answer {
        let what = format!("\"{}\" in session `{}`", message.text, message.session_id);
        let answered = self.engine.ask(message).await;
        self.ended(&what, answered)
    }

    /// Waits until the timer `name` of a session has fired, and answers its turn; the last one, when it has fired before it is
    /// waited for. Timers run in real time: see [`EngineBuilder::timers_after`] for agents whose timers are long.
    ///
    /// # Panics
    /// When no such timer is armed, when it is due later than the engine waits, or as [`Engine::say`].
    pub async fn timer(&mut self, session_id: &str, name: &str) -> Answer {
        let job_id = self.timer_job(session_id, name).await;
        self.fired.insert((session_id.to_owned(), job_id.clone()));
        let answered = self.engine.answer(session_id, &job_id).await;
        self.ended(&format!("timer `{name}` of session `{session_id}`"), answered)
    }

    /// The job of the timer that is armed, or has fired and is not answered yet.
    async fn timer_job(&self, session_id: &str, name: &str) -> String {
        let session = self.session(session_id).await;
        let Some(timer) = session.timers.iter().find(|timer| timer.name == name) else {
            let turns = self.engine.store().turns(session_id, TURNS).await.unwrap_or_default();
            let fires = |job: &Job| matches!(&job.body, JobBody::Timer { name: fired, .. } if fired == name);
            let is_new = |turn_id: &str| !self.fired.contains(&(session_id.to_owned(), turn_id.to_owned()));
            if let Some(turn) = turns.into_iter().find(|turn| fires(&turn.job) && is_new(&turn.turn_id)) {
                return turn.turn_id;
            }
            let armed: Vec<_> = session.timers.iter().map(|timer| timer.name.as_str()).collect();
            panic!("session `{session_id}` has no timer `{name}`; armed are {armed:?}");
        };
        let left = base::clock::now().until(timer.due_at);
        assert!(
            left < self.patience,
            "timer `{name}` of session `{session_id}` is due in {left:?}, and the test waits {:?}; shorten it with \
             `timers_after`, or wait longer with `patience`",
            self.patience
        );
        format!("{}-{}", timer.timer_id, timer.generation)
    }

    /// A session as it stands: its status, history, profile and timers.
    ///
    /// # Panics
    /// When there is no such session.
    pub async fn session(&self, session_id: &str) -> Session {
        match self.engine.session(session_id).await {
            Ok(Some(session)) => session,
            Ok(None) => panic!("there is no session `{session_id}`; it begins with its first message"),
            Err(error) => panic!("session `{session_id}` cannot be read: {error}"),
        }
    }

    /// The steps of a turn: what was asked, called and answered, in order.
    ///
    /// # Panics
    /// When they cannot be read.
    pub async fn steps(&self, answer: &Answer) -> Vec<StepRecord> {
        let turn = &answer.turn;
        let read = self.engine.store().steps(&turn.session_id, &turn.turn_id).await;
        let mut steps =
            read.unwrap_or_else(|error| panic!("the steps of turn `{}` cannot be read: {error}", turn.turn_id));
        steps.sort_by_key(|step| step.at);
        steps
    }

    /// The engine itself.
    pub fn engine(&self) -> &app::Engine {
        &self.engine
    }

    fn ended(&self, what: &str, answered: Result<Answer, crate::EngineError>) -> Answer {
        if let Some(problem) = self.script.as_ref().and_then(Script::problem) {
            panic!("{what}: {problem}");
        }
        let answer = answered.unwrap_or_else(|error| panic!("{what}: {error}"));
        // An assertion within a function or a script.
        if let Some(reason) = answer.turn.reason.as_deref().filter(|reason| reason.starts_with("panic")) {
            panic!("{what}: a function of this test has panicked: {reason}");
        }
        answer
    }
}
