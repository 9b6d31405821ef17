//! A scripted model: it answers as a test tells it to, and records its requests.

use async_trait::async_trait;
use base::clock;
use base::http_client::bounded;
use engine::model::{DeltaSink, Model, ModelError, ModelReply, ModelRequest, ModelToolCall, PromptRole};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::agent::AgentConfig;
use types::timestamp::Timestamp;

/// The name of the model in records.
const NAME: &str = "script";
/// How many bytes of a request a failure message quotes.
const MAX_SHOWN_BYTES: usize = 200;

/// One request to the model.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Number of requests before this one.
    pub index: usize,
    /// The agent that asks: a chat agent, or a workflow's task agent. Empty for a request from a flow.
    pub agent_id: String,
    /// The expected answer: `plan_and_decision` (a session's first request under a new configuration), `decision`, or
    /// empty for plain text.
    pub schema: String,
    /// The system prompt: persona, procedure, tools, conversation and results.
    pub prompt: String,
    /// The user's message, a flow's text, or a stage's input.
    pub message: String,
    /// The turn's last action and its result `{ok, …}`; for a task agent, its last tool call. `None` before the first.
    pub last_action: Option<(String, Value)>,
    /// Ids of the tools that a task agent may call. A chat agent's tools are in its prompt.
    pub tools: Vec<String>,
    /// The time of the request.
    pub at: Timestamp,
}

/// The model's answer to one request. A text converts to [`Reaction::Says`], a JSON value to [`Reaction::Decides`].
#[derive(Clone, Debug, PartialEq)]
pub enum Reaction {
    /// Decides this. If the request also asks for a plan, the plan is the agent's configuration.
    Decides(Value),
    /// Answers exactly this text, even if it is not a valid answer.
    Answers(String),
    /// Returns this text: as the response of a decision, or as plain text.
    Says(String),
    /// Returns this text in chunks, if the request asks for plain text.
    Streams(Vec<String>),
    /// Calls these tools of a task agent, each with its params.
    Calls(Vec<(String, Value)>),
    /// Fails as an unreachable model does.
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

/// Replies to the user and ends the turn.
pub fn say(text: impl Into<String>) -> Reaction {
    Reaction::Says(text.into())
}

/// Answers in chunks, as a task agent's model does. Watchers of the run receive the chunks; the user does if a FLOW
/// streams its answer.
pub fn stream<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Reaction {
    Reaction::Streams(pieces.into_iter().map(Into::into).collect())
}

/// Calls a task agent's tools in order. The next request has their results.
pub fn call<T: Into<String>>(calls: impl IntoIterator<Item = (T, Value)>) -> Reaction {
    Reaction::Calls(calls.into_iter().map(|(tool, params)| (tool.into(), params)).collect())
}

/// Executes an action (`SKILL`, `TOOL`, `FLOW` or `SYSTEM`; only `TOOL` for a task agent). The next request has its
/// result.
#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
pub fn act(kind: &str, target: &str, params: Value) -> Reaction {
    let action = json!({ "type": kind, "target": target, "params": params });
    Reaction::Decides(json!({ "next_status": "processing", "action": action, "response": null }))
}

/// Ends the turn without a reply.
pub fn end() -> Reaction {
    Reaction::Decides(json!({ "next_status": "ready", "action": null, "response": null }))
}

/// Replies to the user and hands the conversation over to a human.
pub fn hand_off(text: &str) -> Reaction {
    let action = json!({ "type": "SYSTEM", "target": "handoff", "params": {} });
    Reaction::Decides(json!({ "next_status": "transferred", "action": action, "response": text }))
}

/// Answers exactly this text, to test how the engine handles an invalid answer.
pub fn plain(content: impl Into<String>) -> Reaction {
    Reaction::Answers(content.into())
}

/// Fails as a model server does that is down even after all retries.
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

/// A model that follows a script. Clones share their state: keep a clone to read the requests.
#[derive(Clone)]
pub struct Script(Arc<Mutex<Inner>>);

impl Script {
    /// Takes the answers in this order, one for each request. A request after the last answer fails the test and quotes
    /// the request.
    pub fn answers<R: Into<Reaction>>(answers: impl IntoIterator<Item = R>) -> Self {
        Self::of(Answers::InOrder(answers.into_iter().map(Into::into).collect()))
    }

    /// Answers each request with the result of a function.
    pub fn by<R: Into<Reaction>>(mut answer: impl FnMut(&Asked) -> R + Send + 'static) -> Self {
        Self::of(Answers::By(Box::new(move |asked| answer(asked).into())))
    }

    fn of(answers: Answers) -> Self {
        Self(Arc::new(Mutex::new(Inner { answers, asked: Vec::new(), problem: None })))
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    /// The number of answers that were not used yet; 0 if a function makes them.
    pub fn left(&self) -> usize {
        match &self.lock().answers {
            Answers::InOrder(answers) => answers.len(),
            Answers::By(_) => 0,
        }
    }

    /// The reason why the test fails: a request without an answer.
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
            let after = asked.last_action.map(|(target, result)| format!(", after `{target}` returned {result}"));
            let problem = format!(
                "the model's script has {} answers, but request {number} asks for {schema} on \"{}\"{}",
                asked.index,
                bounded(&asked.message, MAX_SHOWN_BYTES),
                bounded(&after.unwrap_or_default(), MAX_SHOWN_BYTES)
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
        let reaction = self.react(&request).ok_or_else(|| refused("its script has no more answers"))?;
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

/// Tool calls with ids that are unique within a conversation.
fn called(request: &ModelRequest, calls: Vec<(String, Value)>) -> Result<ModelReply, ModelError> {
    if request.tools.is_empty() {
        let problem = "its script calls a tool, but none was offered; only task agents with `tools` call tools";
        return Err(refused(problem));
    }
    let calls = calls.into_iter().enumerate().map(|(at, (name, params))| {
        ModelToolCall::new(format!("call_{}_{}", request.messages.len(), at + 1), name, params.to_string())
    });
    Ok(ModelReply { tool_calls: calls.collect(), ..ModelReply::text("", NAME) })
}

/// A decision to reply with this text.
fn said(request: &ModelRequest, text: &str) -> String {
    decided(request, &json!({ "next_status": "typing", "action": null, "response": text }))
}

/// A decision; with the configuration as the plan if the request asks for one.
fn decided(request: &ModelRequest, decision: &Value) -> String {
    if !request.facts.plan || decision.get("decision").is_some() {
        return decision.to_string();
    }
    let plan = request.facts.agent.as_deref().map(AgentConfig::as_plan).unwrap_or_default();
    json!({ "plan": plan, "decision": decision }).to_string()
}
