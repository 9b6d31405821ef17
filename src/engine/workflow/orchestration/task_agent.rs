//! Task agents: asks the model and calls its tools until the model has an answer.
//!
//! Each model call and each tool call is a step: `0/model`, `0/tool[1]`, `0/tool[2]`, `1/model`, … The pieces of an
//! answer are published while the model writes it, and the whole answer is published once its step is durable.

use super::event::{RunEventType, Snapshot};
use super::failure::Failure;
use super::stage_context::{EventPayload, StageContext};
use crate::action::{ActionResult, tool};
use crate::journal::{Done, Durability, Label, StepError};
use crate::model::delta::{Deltas, deltas};
use crate::model::paced::Paced;
use crate::model::recorded::{self, RecordedReply};
use crate::model::{ActionAnswer, Facts, Model, ModelRequest, ModelToolCall, PromptMessage, PromptRole, ToolSpec};
use definitions::agent::AgentRecord;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use types::action::{Action, ActionKind};

/// Runs `agent` on `input`, with the events of its start and end, and returns its answer.
pub(in crate::workflow) async fn run(
    context: &StageContext,
    agent: &AgentRecord,
    input: &str,
) -> Result<Arc<str>, Failure> {
    context.emit(RunEventType::RunStarted, EventPayload::default());
    let ended = match Conversation::new(context, agent, input) {
        Ok(conversation) => conversation.run().await,
        Err(failure) => Err(failure),
    };
    match &ended {
        Ok(output) => context.emit(RunEventType::RunCompleted, EventPayload::output(output)),
        Err(Failure::Failed { failure, .. }) => {
            context.emit(RunEventType::RunFailed, EventPayload::error(&failure.cause))
        }
        // The turn will repeat the run or end it, so there is no end to report yet.
        Err(Failure::Journal(_)) => {}
    }
    ended
}

/// An agent's conversation with its model so far.
struct Conversation<'a> {
    context: &'a StageContext,
    agent: &'a AgentRecord,
    model: Arc<dyn Model>,
    input: &'a str,
    tools: Arc<Vec<ToolSpec>>,
    messages: Arc<Vec<PromptMessage>>,
    /// The last tool called, and its result.
    last: Option<Arc<ActionAnswer>>,
}

impl<'a> Conversation<'a> {
    fn new(context: &'a StageContext, agent: &'a AgentRecord, input: &'a str) -> Result<Self, Failure> {
        let services = context.services();
        let model = services.models.chain(&agent.config.model).map_err(|error| Failure::fatal(context, error))?;
        let tools = Arc::new(tool::specs(&agent.config, &services.tools));
        let prompt = agent.config.system_prompt.clone().unwrap_or_default();
        let messages =
            vec![PromptMessage::new(PromptRole::System, prompt), PromptMessage::new(PromptRole::User, input)];
        Ok(Self { context, agent, model, input, tools, messages: Arc::new(messages), last: None })
    }

    /// Alternates model calls and tool calls until an answer has no tool calls. That answer is the output.
    async fn run(mut self) -> Result<Arc<str>, Failure> {
        for iteration in 0..self.agent.config.max_iterations {
            let RecordedReply { content, tool_calls, extra, .. } = Box::pin(self.ask(iteration)).await?;
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
        Err(Failure::retryable(
            self.context,
            format!(
                "agent `{id}` has no answer after {most} rounds of tool calls; raise its `max_iterations`, or check \
                 its tool calls in the run's steps"
            ),
        ))
    }

    async fn ask(&self, iteration: u32) -> Result<RecordedReply, Failure> {
        let (context, step) = (self.context, format!("{iteration}/model"));
        context.count_model_call()?;
        let facts = Facts {
            agent: Some(Arc::clone(&self.agent.config)),
            message: self.input.to_owned(),
            last_action: self.last.clone(),
            ..Facts::default()
        };
        let request =
            ModelRequest::new(Arc::clone(&self.messages)).with_tools(Arc::clone(&self.tools)).with_facts(facts);
        let (sink, pieces) = deltas();
        let (journal, names) = (context.journal(), self.agent.config.model.to_string());
        let model = recorded::NamedModel { names: &names, model: self.model.as_ref() };
        let asked = (&self.agent.hash, &self.messages);
        let asking = recorded::stream_with_tools(&journal, &step, model, &asked, request, sink);
        // The last pieces may still be in flight when the answer is complete, so the run counts as busy until they
        // are out.
        let busy = journal.enter();
        let (answered, ()) = tokio::join!(asking, publish_pieces(context, &step, pieces));
        drop(busy);
        let reply = answered.map_err(|error| Failure::from_model_error(context, error))?.output;
        context.count_tokens(reply.tokens)?;
        let calls = reply.tool_calls.iter().map(|call| json!(call.without_extra())).collect();
        let snapshot = Snapshot {
            role: "assistant".into(),
            content: reply.content.clone(),
            tool_calls: Some(calls).filter(|calls: &Vec<Value>| !calls.is_empty()),
        };
        context.emit(
            RunEventType::StepCompleted,
            EventPayload { step: Some(step), snapshot: Some(snapshot), ..EventPayload::default() },
        );
        Ok(reply)
    }

    /// Calls a tool as one step. A failure is a result that the model reads.
    async fn call(&mut self, step: &str, call: ModelToolCall) -> Result<(), Failure> {
        let (services, agent) = (self.context.services(), &self.agent.config);
        let (journal, asked) = (self.context.journal(), (&call.name, &call.arguments));
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
        let payload = EventPayload { step: Some(step.to_owned()), snapshot: Some(snapshot), ..EventPayload::default() };
        self.context.emit(RunEventType::StepCompleted, payload);
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
pub(super) async fn publish_pieces(context: &StageContext, step: &str, pieces: Deltas) {
    let mut paced = Paced::new(pieces);
    while let Some(delta) = paced.next().await {
        context.emit(
            RunEventType::StepDelta,
            EventPayload { step: Some(step.to_owned()), delta: Some(delta), ..EventPayload::default() },
        );
        context.run().event_buffer.wait_until_taken().await;
    }
}
