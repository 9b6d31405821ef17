//! A model that answers as a test says, and tells what it was asked.

use async_trait::async_trait;
use base::clock;
use base::http_client::bounded;
use engine::model::{DeltaSink, Model, ModelError, ModelReply, ModelRequest, PromptRole, ToolCall};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::agent::AgentConfig;
use types::timestamp::Timestamp;

/// What the model calls itself.
const NAME: &str = "script";
/// The most bytes of a question that a failure repeats.
const SHOWN: usize = 200;

/// One question to the model.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How many questions came before it.
    pub index: usize,
    /// The agent that asks, a chat agent or a workflow's task agent; empty for a flow's own question.
    pub agent_id: String,
    /// What it is to answer: `plan_and_decision` (a session's first question under a new configuration), `decision`, or
    /// empty for plain text.
    pub schema: String,
    /// The prompt: persona, procedure, tools, conversation and results.
    pub prompt: String,
    /// The user's words, or a flow's text, or a stage's input.
    pub message: String,
    /// The turn's last action and its result `{ok, …}`, if there was one; a task agent's last tool.
    pub last_action: Option<(String, Value)>,
    /// Ids of the tools that it may call: a task agent's. A chat agent's are in its prompt.
    pub tools: Vec<String>,
    /// When it was asked.
    pub at: Timestamp,
}

/// What the model does when it is asked. A text becomes [`Reaction::Says`], a JSON value [`Reaction::Decides`].
#[derive(Clone, Debug, PartialEq)]
pub enum Reaction {
    /// It decides so. Asked for a plan, too, it takes the agent's configuration as the plan.
    Decides(Value),
    /// It answers exactly this, be it nonsense.
    Answers(String),
    /// It says this: as the reply of a decision, or as plain text.
    Says(String),
    /// It says this piece by piece, where it is asked for plain text.
    Streams(Vec<String>),
    /// It wants these of a task agent's tools called, each with its params.
    Calls(Vec<(String, Value)>),
    /// It does not answer.
    Fails(String),
}

impl From<&str> for Reaction {
    fn from(text: &str) -> Self {
        Self::Says(text.to_owned())
    }
}

impl From<String> for Reaction {
    fn from(text: String) -> Self {
        Self::Says(text)
    }
}

impl From<Value> for Reaction {
    fn from(decision: Value) -> Self {
        Self::Decides(decision)
    }
}

/// Replies to the user, and ends the turn.
pub fn say(text: impl Into<String>) -> Reaction {
    Reaction::Says(text.into())
}

/// Says something piece by piece, as a task agent's model does. What is shown of it on the way is for watchers of its run, and for the
/// user where it is what a FLOW answers.
pub fn stream<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Reaction {
    Reaction::Streams(pieces.into_iter().map(Into::into).collect())
}

/// Has a task agent's tools called, one after the other, and is asked again with their results.
pub fn call<T: Into<String>>(calls: impl IntoIterator<Item = (T, Value)>) -> Reaction {
    Reaction::Calls(calls.into_iter().map(|(tool, params)| (tool.into(), params)).collect())
}

/// Runs an action (`SKILL`, `TOOL`, `FLOW` or `SYSTEM`) and is asked again with its result; for a task agent, a `TOOL`.
#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
pub fn act(kind: &str, target: &str, params: Value) -> Reaction {
    let action = json!({ "type": kind, "target": target, "params": params });
    Reaction::Decides(json!({ "next_status": "processing", "action": action, "response": null }))
}

/// Ends the turn without a word.
pub fn end() -> Reaction {
    Reaction::Decides(json!({ "next_status": "ready", "action": null, "response": null }))
}

/// Says something and hands the conversation to a human.
pub fn hand_off(text: &str) -> Reaction {
    let action = json!({ "type": "SYSTEM", "target": "handoff", "params": {} });
    Reaction::Decides(json!({ "next_status": "transferred", "action": action, "response": text }))
}

/// Answers exactly this, to see what becomes of an answer that is none.
pub fn plain(content: impl Into<String>) -> Reaction {
    Reaction::Answers(content.into())
}

/// Does not answer, as a server that is down after all retries.
pub fn unavailable(problem: impl Into<String>) -> Reaction {
    Reaction::Fails(problem.into())
}

type Function = Box<dyn FnMut(&Asked) -> Reaction + Send>;

enum Answers {
    InOrder(VecDeque<Reaction>),
    By(Function),
}

struct Inner {
    answers: Answers,
    asked: Vec<Asked>,
    problem: Option<String>,
}

/// A model that goes by a script. Its clones are one model: keep one to see what it was asked.
#[derive(Clone)]
pub struct Script(Arc<Mutex<Inner>>);

impl Script {
    /// Answers one after the other. A question beyond the last one fails the test, with the question.
    pub fn answers<R: Into<Reaction>>(answers: impl IntoIterator<Item = R>) -> Self {
        Self::of(Answers::InOrder(answers.into_iter().map(Into::into).collect()))
    }

    /// Answers what a function makes of each question.
    pub fn by<R: Into<Reaction>>(mut answer: impl FnMut(&Asked) -> R + Send + 'static) -> Self {
        Self::of(Answers::By(Box::new(move |asked| answer(asked).into())))
    }

    fn of(answers: Answers) -> Self {
        Self(Arc::new(Mutex::new(Inner { answers, asked: Vec::new(), problem: None })))
    }

    /// Everything that it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    /// How many of its answers are left; none when a function makes them.
    pub fn left(&self) -> usize {
        match &self.lock().answers {
            Answers::InOrder(answers) => answers.len(),
            Answers::By(_) => 0,
        }
    }

    /// Why the test cannot go on, if it cannot.
    pub(super) fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn react(&self, request: &ModelRequest) -> Option<Reaction> {
        let mut inner = self.lock();
        let asked = asked(request, inner.asked.len());
        inner.asked.push(asked.clone());
        let reaction = match &mut inner.answers {
            Answers::InOrder(answers) => answers.pop_front(),
            Answers::By(answer) => Some(answer(&asked)),
        };
        if reaction.is_none() {
            let (number, schema) =
                (asked.index + 1, if asked.schema.is_empty() { "a text" } else { asked.schema.as_str() });
            let after = asked.last_action.map(|(target, result)| format!(", after `{target}` answered {result}"));
            let problem = format!(
                "the model's script has {} answers, and this was question {number}: {schema} on \"{}\"{}",
                asked.index,
                bounded(&asked.message, SHOWN),
                bounded(&after.unwrap_or_default(), SHOWN)
            );
            inner.problem.get_or_insert(problem);
        }
        reaction
    }
}

fn asked(request: &ModelRequest, index: usize) -> Asked {
    let of = |role| request.messages.iter().rev().find(|message| message.role == role);
    let words = |role| of(role).map(|message| message.content.clone()).unwrap_or_default();
    Asked {
        index,
        agent_id: request.facts.agent.as_ref().map(|agent| agent.id.clone()).unwrap_or_default(),
        schema: request.schema.as_ref().map(|schema| schema.name.to_string()).unwrap_or_default(),
        prompt: words(PromptRole::System),
        message: request.facts.message.clone(),
        last_action: request.facts.last_action.as_deref().cloned(),
        tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
        at: clock::now(),
    }
}

#[async_trait]
impl Model for Script {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.stream(request, DeltaSink::unread()).await
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        let reaction = self.react(&request).ok_or_else(|| refused("its script is at its end"))?;
        let plain = request.schema.is_none();
        let content = match reaction {
            Reaction::Fails(problem) => {
                return Err(ModelError::Unavailable { model: NAME.into(), attempts: 1, problem });
            }
            Reaction::Calls(calls) => return called(&request, calls),
            Reaction::Decides(decision) if plain && decision["action"]["type"] == "TOOL" => {
                let tool = decision["action"]["target"].as_str().unwrap_or_default().to_owned();
                return called(&request, vec![(tool, decision["action"]["params"].clone())]);
            }
            Reaction::Streams(pieces) => {
                for piece in pieces.iter().filter(|_| plain) {
                    deltas.send(piece);
                    tokio::task::yield_now().await;
                }
                let text = pieces.concat();
                return Ok(ModelReply::text(if plain { text } else { said(&request, &text) }, NAME));
            }
            Reaction::Answers(content) => content,
            Reaction::Says(text) if plain => text,
            Reaction::Says(text) => said(&request, &text),
            Reaction::Decides(decision) => decided(&request, &decision),
        };
        deltas.whole(&content);
        Ok(ModelReply::text(content, NAME))
    }
}

fn refused(problem: &str) -> ModelError {
    ModelError::Refused { model: NAME.into(), problem: problem.to_owned() }
}

/// Calls of tools; their ids tell the answers of one conversation apart.
fn called(request: &ModelRequest, calls: Vec<(String, Value)>) -> Result<ModelReply, ModelError> {
    if request.tools.is_empty() {
        let problem = "its script calls a tool, but none was offered; tool calls are for task agents with `tools`";
        return Err(refused(problem));
    }
    let calls = calls.into_iter().enumerate().map(|(at, (name, params))| {
        ToolCall::new(format!("call_{}_{}", request.messages.len(), at + 1), name, params.to_string())
    });
    Ok(ModelReply { tool_calls: calls.collect(), ..ModelReply::text("", NAME) })
}

/// A decision to say this.
fn said(request: &ModelRequest, text: &str) -> String {
    decided(request, &json!({ "next_status": "typing", "action": null, "response": text }))
}

/// A decision, with the configuration as the plan where one is asked for.
fn decided(request: &ModelRequest, decision: &Value) -> String {
    if !request.facts.plan || decision.get("decision").is_some() {
        return decision.to_string();
    }
    let plan = request.facts.agent.as_deref().map(AgentConfig::as_plan).unwrap_or_default();
    json!({ "plan": plan, "decision": decision }).to_string()
}
