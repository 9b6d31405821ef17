//! Task agents: asks the model and calls its tools until the model has an answer.
//!
//! Each model call and each tool call is a step: `0/model`, `0/tool[1]`, `0/tool[2]`, `1/model`, … The pieces of an
//! answer are published while the model writes it, and the whole answer is published once its step is durable.

use super::event::{RunEventType, Snapshot};
use super::failure::Failure;
use super::part::{Part, Told};
use crate::action::{ActionResult, tool};
use crate::journal::{Done, Durability, Label, StepError};
use crate::model::delta::{Deltas, deltas};
use crate::model::paced::Paced;
use crate::model::recorded::{self, Spoken};
use crate::model::{ActionAnswer, Facts, Model, ModelRequest, PromptMessage, PromptRole, ToolCall, ToolSpec};
use definitions::agent::AgentRecord;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use types::action::{Action, ActionKind};

/// Runs `agent` on `input`, with the events of its start and end, and returns its answer.
pub(in crate::workflow) async fn run(part: &Part, agent: &AgentRecord, input: &str) -> Result<Arc<str>, Failure> {
    part.tell(RunEventType::RunStarted, Told::default());
    let ended = match Conversation::new(part, agent, input) {
        Ok(conversation) => conversation.hold().await,
        Err(failure) => Err(failure),
    };
    match &ended {
        Ok(output) => part.tell(RunEventType::RunCompleted, Told::output(output)),
        Err(Failure::Failed { failure, .. }) => part.tell(RunEventType::RunFailed, Told::error(&failure.cause)),
        // The turn will repeat the run or end it, so there is no end to report yet.
        Err(Failure::Journal(_)) => {}
    }
    ended
}

/// An agent's conversation with its model so far.
struct Conversation<'a> {
    part: &'a Part,
    agent: &'a AgentRecord,
    model: Arc<dyn Model>,
    input: &'a str,
    tools: Arc<Vec<ToolSpec>>,
    messages: Arc<Vec<PromptMessage>>,
    /// The last tool called, and its result.
    last: Option<Arc<ActionAnswer>>,
}

impl<'a> Conversation<'a> {
    fn new(part: &'a Part, agent: &'a AgentRecord, input: &'a str) -> Result<Self, Failure> {
        let services = part.services();
        let model = services.models.chain(&agent.config.model).map_err(|error| Failure::fatal(part, error))?;
        let tools = Arc::new(tool::specs(&agent.config, &services.tools));
        let prompt = agent.config.system_prompt.clone().unwrap_or_default();
        let messages =
            vec![PromptMessage::new(PromptRole::System, prompt), PromptMessage::new(PromptRole::User, input)];
        Ok(Self { part, agent, model, input, tools, messages: Arc::new(messages), last: None })
    }

    /// Alternates model calls and tool calls until an answer has no tool calls. That answer is the output.
    async fn hold(mut self) -> Result<Arc<str>, Failure> {
        for iteration in 0..self.agent.config.max_iterations {
            let Spoken { content, tool_calls, extra, .. } = Box::pin(self.ask(iteration)).await?;
            if tool_calls.is_empty() {
                return Ok(content.into());
            }
            let said = PromptMessage::assistant(content, tool_calls.clone()).with_extra(extra);
            Arc::make_mut(&mut self.messages).push(said);
            for (at, call) in tool_calls.into_iter().enumerate() {
                Box::pin(self.call(&format!("{iteration}/tool[{}]", at + 1), call)).await?;
            }
        }
        let (id, most) = (self.agent.id(), self.agent.config.max_iterations);
        Err(Failure::of(
            self.part,
            format!(
                "agent `{id}` has no answer after {most} rounds of tool calls; raise its `max_iterations`, or check \
                 its tool calls in the run's steps"
            ),
        ))
    }

    async fn ask(&self, iteration: u32) -> Result<Spoken, Failure> {
        let (part, step) = (self.part, format!("{iteration}/model"));
        part.model_call()?;
        let facts = Facts {
            agent: Some(Arc::clone(&self.agent.config)),
            message: self.input.to_owned(),
            last_action: self.last.clone(),
            ..Facts::default()
        };
        let request =
            ModelRequest::new(Arc::clone(&self.messages)).with_tools(Arc::clone(&self.tools)).with_facts(facts);
        let (sink, pieces) = deltas();
        let (journal, names) = (part.journal(), self.agent.config.model.to_string());
        let model = (names.as_str(), self.model.as_ref());
        let asked = (&self.agent.hash, &self.messages);
        let asking = recorded::converse(&journal, &step, model, &asked, request, sink);
        // The last pieces may still be in flight when the answer is complete, so the run counts as busy until they
        // are out.
        let busy = journal.busy();
        let (answered, ()) = tokio::join!(asking, show(part, &step, pieces));
        drop(busy);
        let spoken = answered.map_err(|error| Failure::of_model(part, error))?.output;
        part.tokens(spoken.tokens)?;
        let calls = spoken.tool_calls.iter().map(|call| json!(call.without_extra())).collect();
        let snapshot = Snapshot {
            role: "assistant".into(),
            content: spoken.content.clone(),
            tool_calls: Some(calls).filter(|calls: &Vec<Value>| !calls.is_empty()),
        };
        part.tell(RunEventType::StepCompleted, Told { step: Some(step), snapshot: Some(snapshot), ..Told::default() });
        Ok(spoken)
    }

    /// Calls a tool as one step. A failure is a result that the model reads.
    async fn call(&mut self, step: &str, call: ToolCall) -> Result<(), Failure> {
        let (services, agent) = (self.part.services(), &self.agent.config);
        let (journal, asked) = (self.part.journal(), (&call.name, &call.arguments));
        let label = Label { kind: "tool", target: &call.name };
        let run = journal.step(step, label, Durability::OnReturn, &asked, |idempotency_key| async move {
            let result = match params(asked.1) {
                Ok(params) => {
                    let action = Action { kind: ActionKind::Tool, target: asked.0.clone(), params };
                    tool::run(&services.http, &services.tools, agent, &action, &idempotency_key).await.bounded()
                }
                Err(problem) => ActionResult::failed(problem),
            };
            let (ok, attempts) = (result.ok, Some(result.attempts));
            Ok::<_, Infallible>(Done { ok, attempts, ..Done::ok(result) })
        });
        let result = match run.await {
            Ok(stepped) => json!(stepped.output),
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(StepError::Operation(never)) => match never {},
        };
        let content = result.to_string();
        let snapshot = Snapshot { role: "tool".into(), content: content.clone(), tool_calls: None };
        let told = Told { step: Some(step.to_owned()), snapshot: Some(snapshot), ..Told::default() };
        self.part.tell(RunEventType::StepCompleted, told);
        Arc::make_mut(&mut self.messages).push(PromptMessage::tool(call.id, content));
        self.last = Some(Arc::new((call.name, result)));
        Ok(())
    }
}

/// Parses the params that a model wrote. A blank text means no params. The error is for the model.
fn params(arguments: &str) -> Result<Map<String, Value>, String> {
    if arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(arguments)
        .map_err(|error| format!("the arguments are not a JSON object: {error}; write them again"))
}

/// Publishes the pieces of an answer as events. Each piece waits until the previous one has been taken for
/// publication.
pub(super) async fn show(part: &Part, step: &str, pieces: Deltas) {
    let mut paced = Paced::new(pieces);
    while let Some(delta) = paced.next().await {
        part.tell(RunEventType::StepDelta, Told { step: Some(step.to_owned()), delta: Some(delta), ..Told::default() });
        part.run().outlet.taken().await;
    }
}
