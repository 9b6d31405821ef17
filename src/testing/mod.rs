//! Tests for agents, tools and flows: the real engine in memory, with a scripted model.
//!
//! ```
//! use serde_json::json;
//! use turnwheel::testing::{self, Script, act, say};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let model = Script::answers([act("TOOL", "eta", json!({"order_id": "A1"})), say("It arrives in 2 days.")]);
//! let mut engine = testing::TestEngine::builder()
//!     .agent("{id: shop, greeting: Hello, sop: Say when orders arrive., tools: [{id: eta}]}")
//!     .tool("eta", |order: serde_json::Map<String, serde_json::Value>| async move {
//!         assert_eq!(order["order_id"], "A1");
//!         Ok::<_, String>(json!({"days": 2}))
//!     })
//!     .model(&model)
//!     .start()
//!     .await;
//! assert_eq!(engine.say("s1", "When does A1 arrive?").await.texts(), ["Hello", "It arrives in 2 days."]);
//! assert!(model.asked()[1].prompt.contains(r#""days":2"#), "the model sees the tool's result");
//! # });
//! ```
//!
//! A flow that asks its user continues with the user's next message:
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
//! let mut engine = testing::TestEngine::builder().agent(agent).flow("rename", rename).model(&model).start().await;
//! assert_eq!(engine.say("s1", "I have a new name").await.question(), Some("What shall I call you?"));
//! assert_eq!(engine.session("s1").await.waiting.unwrap().flow, "rename");
//! assert_eq!(engine.say("s1", "Robin").await.text(), "Hello, Robin.");
//! # });
//! ```
//!
//! Every call panics if the expected event does not happen, so a test needs no error handling. The message says what
//! the test waited for, and quotes a model request that its script did not answer.
//!
//! `script` has the scripted model, `builder` builds the engine.

mod builder;
mod script;

pub use builder::TestEngineBuilder;
pub use script::{Asked, Reaction, Script, act, call, end, hand_off, plain, say, stream, unavailable};

use crate::app::{self, Answer};
use commands::messages::NewMessage;
use std::collections::BTreeSet;
use std::time::Duration;
use types::job::{Job, JobBody};
use types::session::Session;
use types::step::StepRecord;

/// How many of the latest turns to search for a timer that has fired.
const MAX_TURNS: usize = 100;

/// An engine in memory for one test. It stops when it is dropped.
pub struct TestEngine {
    engine: app::Engine,
    /// The agent that receives the test's messages.
    agent_id: String,
    script: Option<Script>,
    patience: Duration,
    /// Sessions and turns of timers that the test has already waited for.
    fired: BTreeSet<(String, String)>,
}

impl TestEngine {
    /// Starts building an engine.
    pub fn builder() -> TestEngineBuilder {
        TestEngineBuilder::new()
    }

    /// Sends a user's message and returns its turn after it has ended.
    ///
    /// # Panics
    /// If the turn does not end within the builder's `patience`, or if the model's script has no answer for it.
    pub async fn say(&mut self, session_id: &str, text: &str) -> Answer {
        let agent_id = self.agent_id.clone();
        self.send(NewMessage::new(session_id, agent_id, text)).await
    }

    /// Like [`TestEngine::say`], for a message with its own agent, attachments or id.
    ///
    /// # Panics
    /// Like [`TestEngine::say`].
    pub async fn send(&mut self, message: NewMessage) -> Answer {
        let what = format!("\"{}\" in session `{}`", message.text, message.session_id);
        let answered = self.engine.ask(message).await;
        self.ended(&what, answered)
    }

    /// Waits until the timer `name` of a session has fired, and returns its turn. If it has fired before this call,
    /// returns the latest of its turns that the test has not received yet.
    ///
    /// Timers run in real time; [`TestEngineBuilder::timers_after`] shortens them.
    ///
    /// # Panics
    /// If no such timer is armed, if it is due later than the builder's `patience`, or like [`TestEngine::say`].
    pub async fn timer(&mut self, session_id: &str, name: &str) -> Answer {
        let job_id = self.timer_job(session_id, name).await;
        self.fired.insert((session_id.to_owned(), job_id.clone()));
        let answered = self.engine.answer(session_id, &job_id).await;
        self.ended(&format!("timer `{name}` of session `{session_id}`"), answered)
    }

    /// The job of the armed timer, or of one that has fired and that the test has not received yet.
    async fn timer_job(&self, session_id: &str, name: &str) -> String {
        let session = self.session(session_id).await;
        let Some(timer) = session.timers.iter().find(|timer| timer.name == name) else {
            let turns = self.engine.store().turns(session_id, MAX_TURNS).await.unwrap_or_default();
            let fires = |job: &Job| matches!(&job.body, JobBody::Timer { name: fired, .. } if fired == name);
            let is_new = |turn_id: &str| !self.fired.contains(&(session_id.to_owned(), turn_id.to_owned()));
            if let Some(turn) = turns.into_iter().find(|turn| fires(&turn.job) && is_new(&turn.turn_id)) {
                return turn.turn_id;
            }
            let armed: Vec<_> = session.timers.iter().map(|timer| timer.name.as_str()).collect();
            panic!("session `{session_id}` has no timer `{name}`; armed timers: {armed:?}");
        };
        let left = base::clock::now().until(timer.due_at);
        assert!(
            left < self.patience,
            "timer `{name}` of session `{session_id}` is due in {left:?}, but the test waits only {:?}; shorten it with \
             `timers_after`, or raise `patience`",
            self.patience
        );
        format!("{}-{}", timer.timer_id, timer.generation)
    }

    /// Reads a session: its status, history, profile and timers.
    ///
    /// # Panics
    /// If the session does not exist.
    pub async fn session(&self, session_id: &str) -> Session {
        match self.engine.session(session_id).await {
            Ok(Some(session)) => session,
            Ok(None) => panic!("there is no session `{session_id}`; a session begins with its first message"),
            Err(error) => panic!("session `{session_id}` cannot be read: {error}"),
        }
    }

    /// Reads the recorded steps of a turn, in order: model calls, actions and replies.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub async fn steps(&self, answer: &Answer) -> Vec<StepRecord> {
        let turn = &answer.turn;
        let read = self.engine.store().steps(&turn.session_id, &turn.turn_id).await;
        let mut steps =
            read.unwrap_or_else(|error| panic!("the steps of turn `{}` cannot be read: {error}", turn.turn_id));
        steps.sort_by_key(|step| step.at);
        steps
    }

    /// The engine under test.
    pub fn engine(&self) -> &app::Engine {
        &self.engine
    }

    fn ended(&self, what: &str, answered: Result<Answer, crate::EngineError>) -> Answer {
        if let Some(problem) = self.script.as_ref().and_then(Script::problem) {
            panic!("{what}: {problem}");
        }
        let answer = answered.unwrap_or_else(|error| panic!("{what}: {error}"));
        // An assertion in a function or script of the test failed.
        if let Some(reason) = answer.turn.reason.as_deref().filter(|reason| reason.starts_with("panic")) {
            panic!("{what}: a function of this test panicked: {reason}");
        }
        answer
    }
}
