//! Trials: a person talks with the draft of an agent, or runs the draft of a workflow, before it is in use. The layer
//! that can build an engine in memory implements them: [`Try`].

use super::Draft;
use crate::action::would_call::WouldCall;
use async_trait::async_trait;
use base::error::SharedError;
use futures::stream::BoxStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

/// One message to a draft, or one run of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The dialogue that has made the draft. Each has one conversation.
    pub session_id: String,
    /// The hash of the draft. With another hash a new conversation begins.
    pub hash: String,
    /// The draft.
    pub draft: Draft,
    /// The message to an agent.
    pub text: String,
    /// The input of a workflow: a text, or the inputs of a graph by name.
    pub input: Option<Value>,
    /// The outputs of skills, tools, flows and nodes by id; `handoff` is the endpoint of a handoff.
    pub answers: Map<String, Value>,
    /// Makes the calls instead of using `answers`.
    pub live: bool,
}

/// An event of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// `test`, then `reply`, `status`, `step` and `run`, then `end`.
    pub event: &'static str,
    /// The payload as JSON.
    pub data: Value,
}

/// The first event of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialBegin {
    /// The agent or workflow.
    pub workflow_id: String,
    /// The hash of the draft.
    pub hash: String,
    /// True if the message begins a new conversation.
    pub begins: bool,
    /// True if the draft's calls are made.
    pub live: bool,
}

/// A call that was not made. The event `step` of an action has these fields in addition to its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialStep {
    /// The skill, tool, flow or node; `handoff` for a handoff.
    pub target: String,
    /// True if `answers` had its result; false if it failed, like a call of an unreachable API.
    pub ok: bool,
    /// The call that would have been made.
    pub would_call: WouldCall,
}

/// The last event of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialEnd {
    /// The status of the conversation or of the run; `failed` if the trial broke off.
    pub status: String,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The targets of the turn's actions, in order.
    #[serde(default)]
    pub actions: Vec<String>,
    /// The output of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The calls without an answer, and the field to add for each.
    #[serde(default)]
    pub unanswered: Vec<String>,
}

/// Why a trial could not begin.
#[derive(Debug, Error)]
pub enum TrialError {
    /// The conversation is answering another message.
    #[error("the draft is answering another message of this test")]
    Busy,
    /// All places are taken.
    #[error("{0} tests of drafts are in progress")]
    TooMany(usize),
    /// The engine did not start, for example because a model of the settings cannot be used here.
    #[error("the draft cannot be tried in this process: {0}")]
    Start(#[source] SharedError),
}

/// Tries drafts.
#[async_trait]
pub trait Try: Send + Sync {
    /// Begins a trial, and returns its events. The last event has the name `end`. Dropping the stream ends the
    /// conversation.
    async fn begin(&self, trial: Trial) -> Result<BoxStream<'static, Shown>, TrialError>;
}
