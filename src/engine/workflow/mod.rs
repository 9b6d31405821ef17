//! Flows and workflows: everything that a FLOW action can run.
//!
//! A [`Flow`] is a Rust function that takes over a turn and returns the final text for the user. [`Flows`] is the
//! registry of flows by id, and [`function`] makes flows from async functions. If a FLOW action names no registered
//! flow, it names a workflow: [`orchestration`] executes workflows, and [`dynamic`](orchestration::dynamic) those whose
//! plan a model makes. [`asking`] implements questions to the user, and [`open_question`] finds those of a
//! run in a lane of its own.

pub mod asking;
pub mod function;
pub mod open_question;
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
use orchestration::function::OUTPUT_KEY;
use orchestration::stage::FAILED_KEY;
use orchestration::stage_context::StageContext;
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
    /// The journal failed. The turn ends or is repeated; the flow should return this error unchanged.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A model call failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The flow asks the user, but it runs in a workflow run that belongs to no conversation.
    #[error("the flow asks its user, but the run belongs to no conversation; run it as a FLOW action of an agent")]
    Nobody,
    /// The workflow run of which the flow is a stage has exceeded one of its limits.
    #[error("{0}")]
    Limit(String),
    /// A failure of the flow itself. The model reads the text.
    #[error("{0}")]
    Failed(String),
}

impl FlowError {
    /// Creates a failure of the flow itself, with the chain of causes if the error's alternate format has it. The
    /// model reads the text.
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

/// Publishes a flow's text while the model writes it.
#[async_trait]
pub(crate) trait Listener: Send + Sync {
    /// Publishes the pieces of the answer in the step `step`. Returns at the end of the answer.
    async fn publish_pieces(&self, step: &str, pieces: Deltas);
}

/// Input of a flow, and its access to the journal, the model and the user.
pub struct FlowContext {
    /// The action's `params.input` if it is a text, else the user's message.
    pub input: String,
    /// Params of the action.
    pub params: Map<String, Value>,
    /// The session, or the run, for which the flow runs.
    pub session_id: String,
    /// The agent that runs the flow. In a stage of a workflow it has only an id and a model.
    pub agent: Arc<AgentRecord>,
    /// The model of the agent.
    pub model: Arc<dyn Model>,
    /// The flow's part of the turn's journal. Everything that reaches the outside must be a step of it.
    pub journal: Journal,
    /// Receives the text of [`FlowContext::say`].
    pub(crate) listener: Arc<dyn Listener>,
    /// Receives the questions of [`FlowContext::ask`].
    pub(crate) asker: Asker,
}

/// Receiver of a flow's questions.
#[derive(Clone)]
pub(crate) enum Asker {
    /// The user of the flow's turn.
    Turn(Arc<Asking>),
    /// The workflow run of which the flow is a stage.
    Stage(StageContext),
}

impl FlowContext {
    /// Runs `operation` as a step and records its result. A flow that is repeated after a crash gets the recorded
    /// result.
    ///
    /// `key` names the step within the flow. `input` is the data on which the step depends: the replay fails if it
    /// has changed. The operation receives its idempotency key and should pass it to the system that it calls. The
    /// result is durable on return. A failure is not recorded, so the next attempt runs the operation again.
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

    /// Asks the user a question and returns the answer.
    ///
    /// The turn ends with the question. The session's next message continues the flow, possibly on another worker and
    /// much later: the code before this call runs again, its steps return their recorded results, and this call
    /// returns the message. So the path from one question to the next must depend on steps and answers only, not on
    /// the clock or other state that changes.
    ///
    /// This never returns if the user leaves the flow with one of the agent's `cancel_words`, or does not answer
    /// within `flow_timeout`. It fails with [`FlowError::Nobody`] in a run that belongs to no conversation.
    pub async fn ask(&self, question: impl Into<Question>) -> Result<String, FlowError> {
        let question = question.into();
        if question.text.trim().is_empty() {
            return Err(FlowError::Failed("the flow asks its user an empty question".to_owned()));
        }
        let answer = match &self.asker {
            Asker::Turn(asking) => asking.ask(&self.journal, question).await?,
            Asker::Stage(context) => context.question(&self.journal, question).await?,
        };
        answer.ok_or(FlowError::Nobody)
    }

    /// Asks the agent's model for a plain text, as the step `key`, and returns its answer.
    pub async fn ask_model(&self, key: &str, instruction: &str, text: &str) -> Result<String, FlowError> {
        let messages =
            vec![PromptMessage::new(PromptRole::System, instruction), PromptMessage::new(PromptRole::User, text)];
        let facts = Facts { message: text.to_owned(), ..Facts::default() };
        let request = ModelRequest::new(messages).with_facts(facts);
        let names = self.agent.config.model.to_string();
        let model = recorded::NamedModel { names: &names, model: self.model.as_ref() };
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
    /// Like [`FlowContext::ask_model`], and publishes the answer to the user in chunks while the model writes it.
    ///
    /// The flow should return the answer as its text, or as the beginning of its text. If it returns another text,
    /// that text supersedes the chunks.
    pub async fn say(&self, key: &str, instruction: &str, text: &str) -> Result<String, FlowError> {
        let messages =
            vec![PromptMessage::new(PromptRole::System, instruction), PromptMessage::new(PromptRole::User, text)];
        let facts = Facts { message: text.to_owned(), ..Facts::default() };
        let (sink, pieces) = deltas();
        let request = ModelRequest::new(messages).with_facts(facts);
        let names = self.agent.config.model.to_string();
        let model = recorded::NamedModel { names: &names, model: self.model.as_ref() };
        let key = &own_key(key);
        self.asks()?;
        let input = (instruction, text);
        let asking = recorded::stream_last(&self.journal, key, model, &input, request, sink, |_| false);
        // The last chunks may still be in flight when the answer is complete, so the flow counts as busy until they
        // are out.
        let _busy = self.journal.enter();
        match tokio::join!(asking, self.listener.publish_pieces(key, pieces)).0 {
            Ok(stepped) => self.asked(key).map(|()| stepped.output),
            Err(StepError::Journal(error)) => Err(error.into()),
            Err(StepError::Operation(error)) => Err(FlowError::Model(error)),
        }
    }

    /// Counts a model call against the limits of the workflow run of which the flow is a stage.
    fn asks(&self) -> Result<(), FlowError> {
        match &self.asker {
            Asker::Stage(context) => context.count_model_call().map_err(limit),
            Asker::Turn(_) => Ok(()),
        }
    }

    /// Counts the tokens of the model call `key` against the same limits.
    fn asked(&self, key: &str) -> Result<(), FlowError> {
        let used = self.journal.record_of(key).and_then(|step| step.tokens).unwrap_or_default();
        match &self.asker {
            Asker::Stage(context) => context.count_tokens(used).map_err(limit),
            Asker::Turn(_) => Ok(()),
        }
    }
}

/// Error for a FLOW action whose target this worker does not have. The model and the operators read it.
pub(crate) fn unregistered(flow: &str) -> String {
    format!(
        "no flow `{flow}` is registered on this worker, and there is no workflow or task agent of that id; register it \
         in the program of every worker, apply a workflow of that id, or remove it from `flows` in the agent file"
    )
}

fn limit(failure: Failure) -> FlowError {
    match failure {
        Failure::Journal(error) => FlowError::Journal(error),
        Failure::Failed { failure, .. } => FlowError::Limit(failure.cause),
    }
}

/// Journal key of a flow's step. A key that the engine itself uses in the flow's part of the journal gets a prefix.
fn own_key(key: &str) -> Cow<'_, str> {
    let is_taken =
        [FAILED_KEY, OUTPUT_KEY].contains(&key) || key.strip_prefix("ask[").is_some_and(|rest| rest.ends_with(']'));
    if is_taken { format!("own/{key}").into() } else { key.into() }
}

/// A function in Rust that takes over a turn, or runs as a stage of a workflow.
#[async_trait]
pub trait Flow: Send + Sync + 'static {
    /// Runs the flow and returns the final text for the user. No reply is published for an empty text.
    async fn run(&self, context: FlowContext) -> Result<String, FlowError>;

    /// JSON Schema of the params. The model sees it, and the engine checks the params against it before a run.
    fn params(&self) -> Option<&Value> {
        None
    }
}

/// Registry of flows by id.
#[derive(Clone, Default)]
pub struct Flows {
    by_id: BTreeMap<String, Arc<dyn Flow>>,
}

impl Flows {
    /// The registry without flows of its own: everything built in is a workflow.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// Adds a flow, or replaces the one with this id.
    pub fn with<Shape>(mut self, id: impl Into<String>, flow: impl IntoFlow<Shape>) -> Self {
        self.by_id.insert(id.into(), Arc::new(flow.into_flow()));
        self
    }

    /// Returns the flow with this id.
    pub fn get(&self, id: &str) -> Option<Arc<dyn Flow>> {
        self.by_id.get(id).cloned()
    }

    /// Returns the JSON Schema of a flow's params. `None` if the flow is unknown or has no typed params.
    pub fn params(&self, id: &str) -> Option<&Value> {
        self.by_id.get(id)?.params()
    }

    /// Checks params against the flow's schema. The error is a text for the model.
    pub(crate) fn check(flow: &dyn Flow, given: &Map<String, Value>) -> Result<(), String> {
        flow.params().map_or(Ok(()), |schema| params::check(schema, given))
    }

    /// Returns the ids of all flows.
    pub fn ids(&self) -> Vec<String> {
        self.by_id.keys().cloned().collect()
    }
}
