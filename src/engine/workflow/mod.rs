//! What a FLOW action can run. A [`Flow`] takes its turn over: what it returns is the final text for the user.
//!
//! [`Flows`] finds the one that an action names, [`function`] makes flows of async functions; what is none of them may be a
//! workflow of [`orchestration`], of which some come with the program; its `dynamic` type plans for itself.
//! [`asking`] is how a flow asks its user.

pub mod asking;
pub mod function;
pub mod orchestration;

pub use asking::Question;
pub use function::IntoFlow;

use crate::action::params;
use crate::journal::{Done, Durability, Journal, JournalError, Label, StepError};
use crate::model::delta::{Deltas, deltas};
use crate::model::{Facts, Model, ModelError, ModelRequest, PromptMessage, PromptRole, recorded};
use asking::Asking;
use async_trait::async_trait;
use definitions::agent::AgentRecord;
use orchestration::failure::Failure;
use orchestration::function::RETURNED;
use orchestration::part::Part;
use orchestration::stage::FAILED;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use thiserror::Error;

/// Why a flow has no result.
#[derive(Debug, Error)]
pub enum FlowError {
    /// The journal's fault: the turn ends or is repeated.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A model did not answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It asks the user, and runs where there is none: as a part of a workflow that was not begun by a conversation.
    #[error("it asks its user, and nobody is there to answer; run it from a conversation, as a FLOW of an agent")]
    Nobody,
    /// The run that it is a stage of has used up one of its limits.
    #[error("{0}")]
    Limit(String),
    /// The flow's own.
    #[error("{0}")]
    Failed(String),
}

impl FlowError {
    /// The flow's own failure, with its causes where the error has them; the model reads it.
    pub fn failed(problem: impl Display) -> Self {
        Self::Failed(format!("{problem:#}"))
    }
}

impl From<String> for FlowError {
    fn from(problem: String) -> Self {
        Self::Failed(problem)
    }
}

impl From<&str> for FlowError {
    fn from(problem: &str) -> Self {
        Self::Failed(problem.to_owned())
    }
}

/// Where the words of a flow go while they are made.
#[async_trait]
pub(crate) trait Listener: Send + Sync {
    /// Takes the pieces of the answer that the step `step` asks for, up to its end.
    async fn hear(&self, step: &str, pieces: Deltas);
}

/// What a flow is given.
pub struct FlowContext {
    /// `params.input` if that is a text, else the user's message.
    pub input: String,
    /// The action's params.
    pub params: Map<String, Value>,
    /// The session that it runs for.
    pub session_id: String,
    /// The agent that routed to it.
    pub agent: Arc<AgentRecord>,
    /// The agent's model.
    pub model: Arc<dyn Model>,
    /// The flow's part of the turn's journal: its one way to the outside.
    pub journal: Journal,
    /// Who hears what it says.
    pub(crate) listener: Arc<dyn Listener>,
    /// Where its questions go.
    pub(crate) asker: Asker,
}

/// Where a flow's questions go.
#[derive(Clone)]
pub(crate) enum Asker {
    /// To the user of its turn.
    Turn(Arc<Asking>),
    /// Through the run that it is a stage of.
    Stage(Part),
}

impl FlowContext {
    /// Runs `operation` once and records its result: a flow that is repeated after a crash gets the recorded one. `key`
    /// names the step in the flow, `input` is what it depends on. The operation is given its idempotency key and sends it
    /// on. A failure is not recorded: the next attempt runs the operation again.
    pub async fn step<I, O, E, F, Fut>(&self, key: &str, input: &I, operation: F) -> Result<O, FlowError>
    where
        I: Serialize + ?Sized,
        O: Serialize + DeserializeOwned,
        E: Display,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<O, E>>,
    {
        let key = &own_key(key);
        let label = Label { kind: "flow", target: key };
        let work = |idempotency_key| async move { operation(idempotency_key).await.map(Done::ok) };
        match self.journal.step(key, label, Durability::OnReturn, input, work).await {
            Ok(stepped) => Ok(stepped.output),
            Err(StepError::Journal(error)) => Err(error.into()),
            Err(StepError::Operation(error)) => Err(FlowError::failed(error)),
        }
    }

    /// Asks the user, and answers what they say: the turn ends with the question, and the flow goes on here with the next
    /// message of its session, in whatever process and however much later. Until then nothing behind this is run; what
    /// is before it runs again, and gets its steps from the record. So the way from one question to the next depends on steps
    /// and answers only, not on the clock or on what else changes.
    ///
    /// The user may leave the flow with one of the agent's `cancel_words`, and is forgotten after its `flow_timeout`; then
    /// this never returns.
    pub async fn ask(&self, question: impl Into<Question>) -> Result<String, FlowError> {
        let question = question.into();
        if question.text.trim().is_empty() {
            return Err(FlowError::Failed("it asks its user an empty question".to_owned()));
        }
        let answer = match &self.asker {
            Asker::Turn(asking) => asking.ask(&self.journal, question).await?,
            Asker::Stage(part) => part.question(&self.journal, question).await?,
        };
        answer.ok_or(FlowError::Nobody)
    }

    /// Asks the agent's model once, for plain text, and records its answer under `key`.
    pub async fn ask_model(&self, key: &str, instruction: &str, text: &str) -> Result<String, FlowError> {
        let messages =
            vec![PromptMessage::new(PromptRole::System, instruction), PromptMessage::new(PromptRole::User, text)];
        let facts = Facts { message: text.to_owned(), ..Facts::default() };
        let request = ModelRequest::new(messages).with_facts(facts);
        let names = self.agent.config.model.to_string();
        let model = (names.as_str(), self.model.as_ref());
        let key = &own_key(key);
        self.asks()?;
        match recorded::ask(&self.journal, key, model, &(instruction, text), request).await {
            Ok(stepped) => self.asked(key).map(|()| stepped.output),
            Err(StepError::Journal(error)) => Err(error.into()),
            Err(StepError::Operation(error)) => Err(FlowError::Model(error)),
        }
    }
}

impl FlowContext {
    /// Asks the agent's model once, for plain text, and says its answer to the user while it is made; recorded under `key` as
    /// any other. To be returned as the flow's text, or as its beginning: what was said and is not takes no part in it, and
    /// is replaced by what is.
    pub async fn say(&self, key: &str, instruction: &str, text: &str) -> Result<String, FlowError> {
        let messages =
            vec![PromptMessage::new(PromptRole::System, instruction), PromptMessage::new(PromptRole::User, text)];
        let facts = Facts { message: text.to_owned(), ..Facts::default() };
        let (sink, pieces) = deltas();
        let question = (ModelRequest::new(messages).with_facts(facts), sink);
        let names = self.agent.config.model.to_string();
        let model = (names.as_str(), self.model.as_ref());
        let key = &own_key(key);
        self.asks()?;
        let input = (instruction, text);
        let asking = recorded::say_last(&self.journal, key, model, &input, question, |_| false);
        // Its last words may be on their way still when it is answered.
        let _busy = self.journal.busy();
        match tokio::join!(asking, self.listener.hear(key, pieces)).0 {
            Ok(stepped) => self.asked(key).map(|()| stepped.output),
            Err(StepError::Journal(error)) => Err(error.into()),
            Err(StepError::Operation(error)) => Err(FlowError::Model(error)),
        }
    }

    /// Counts a model call against the limits of the run that the flow is a stage of.
    fn asks(&self) -> Result<(), FlowError> {
        match &self.asker {
            Asker::Stage(part) => part.model_call().map_err(limit),
            Asker::Turn(_) => Ok(()),
        }
    }

    /// Counts the tokens of the model call under `key`.
    fn asked(&self, key: &str) -> Result<(), FlowError> {
        let used = self.journal.record_of(key).and_then(|step| step.tokens).unwrap_or_default();
        match &self.asker {
            Asker::Stage(part) => part.tokens(used).map_err(limit),
            Asker::Turn(_) => Ok(()),
        }
    }
}

fn limit(failure: Failure) -> FlowError {
    match failure {
        Failure::Journal(error) => FlowError::Journal(error),
        Failure::Failed { failure, .. } => FlowError::Limit(failure.cause),
    }
}

/// The journal key of a flow's step. A key that the engine uses in the flow's part of the journal gets a prefix.
fn own_key(key: &str) -> Cow<'_, str> {
    let is_taken =
        [FAILED, RETURNED].contains(&key) || key.strip_prefix("ask[").is_some_and(|rest| rest.ends_with(']'));
    if is_taken { format!("own/{key}").into() } else { key.into() }
}

/// A fixed-rule function that takes a turn over (E-24, E-28).
#[async_trait]
pub trait Flow: Send + Sync + 'static {
    /// Runs it to the final text; empty when it has nothing to say.
    async fn run(&self, context: FlowContext) -> Result<String, FlowError>;

    /// The JSON Schema of its params: shown to the model, and checked before it runs.
    fn params(&self) -> Option<&Value> {
        None
    }
}

/// The registered flows by id.
#[derive(Clone, Default)]
pub struct Flows {
    by_id: BTreeMap<String, Arc<dyn Flow>>,
}

impl Flows {
    /// Those that ship with the engine: none, since what it ships are workflows.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// Adds a flow, or replaces the one of that id.
    pub fn with<Shape>(mut self, id: impl Into<String>, flow: impl IntoFlow<Shape>) -> Self {
        self.by_id.insert(id.into(), Arc::new(flow.into_flow()));
        self
    }

    /// The flow of that id.
    pub fn get(&self, id: &str) -> Option<Arc<dyn Flow>> {
        self.by_id.get(id).cloned()
    }

    /// The JSON Schema of a flow's params, if it has one.
    pub fn params(&self, id: &str) -> Option<&Value> {
        self.by_id.get(id)?.params()
    }

    /// Says in words, for the model, what is wrong with the params of a flow.
    pub(crate) fn check(flow: &dyn Flow, given: &Map<String, Value>) -> Result<(), String> {
        flow.params().map_or(Ok(()), |schema| params::check(schema, given))
    }

    /// All ids.
    pub fn ids(&self) -> Vec<String> {
        self.by_id.keys().cloned().collect()
    }
}
