//! LLM nodes: one model call.

use crate::journal::StepError;
use crate::model::delta::deltas;
use crate::model::recorded::{self, NamedModel, RecordedReply};
use crate::model::{
    Facts, Model, ModelError, ModelRequest, PromptMessage, PromptRole, ResponseSchema, Sampling, answer,
};
use crate::prompt::control_tokens::defused;
use crate::workflow::orchestration::event::{RunEventType, Snapshot};
use crate::workflow::orchestration::graph::failure::{NodeError, NodeFailure};
use crate::workflow::orchestration::graph::node::NodeRun;
use crate::workflow::orchestration::graph::resolved::ResolvedNode;
use crate::workflow::orchestration::stage_context::{EventPayload, StageContext};
use crate::workflow::orchestration::task_agent::publish_pieces;
use serde_json::{Value, json};
use std::sync::Arc;
use types::model_names::ModelNames;

/// Key of the model call.
const MODEL_KEY: &str = "0/model";

/// Name of the requested structure.
const SCHEMA_NAME: &str = "node_output";

impl From<ModelError> for NodeFailure {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Spent { .. } => Self::fatal("BUDGET", error.to_string()),
            ModelError::Unknown(_) => Self::permanent("MODEL_UNAVAILABLE", error.to_string()),
            _ => Self::transient("MODEL_UNAVAILABLE", error.to_string()),
        }
    }
}

pub(super) async fn perform(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<Value, NodeError> {
    let (names, model) = model(run, here, resolved)?;
    here.count_model_call().map_err(|failure| NodeError::of_part("LIMIT", failure))?;
    let schema = resolved.plain("schema").filter(|schema| schema.is_object());
    let reply = ask(run, here, resolved, NamedModel { names: &names, model: model.as_ref() }, schema).await?;
    here.count_tokens(reply.tokens).map_err(|failure| NodeError::of_part("LIMIT", failure))?;
    let snapshot = Snapshot { role: "assistant".into(), content: reply.content.clone(), tool_calls: None };
    let payload = EventPayload { step: Some(MODEL_KEY.into()), snapshot: Some(snapshot), ..EventPayload::default() };
    here.emit(RunEventType::StepCompleted, payload);
    let data = schema.map(|schema| structured(&reply.content, schema)).transpose()?;
    Ok(json!({"text": reply.content, "data": data}))
}

/// The model of the node, else that of the coordinator, else the default.
fn model(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
) -> Result<(String, Arc<dyn Model>), NodeFailure> {
    let models = &here.services().models;
    let named = resolved.text("model").map(ModelNames::from).filter(|names| models.chain(names).is_ok());
    let names = named
        .or_else(|| run.scope.coordinator(here).map(|agent| agent.config.model.clone()))
        .unwrap_or_else(|| "default".into());
    Ok((names.to_string(), models.chain(&names)?))
}

async fn ask(
    run: &NodeRun<'_>,
    here: &StageContext,
    resolved: &ResolvedNode,
    model: NamedModel<'_>,
    schema: Option<&Value>,
) -> Result<RecordedReply, NodeError> {
    let (messages, asked) = messages(resolved);
    let limit = run.scope.policy.as_ref().and_then(|policy| policy.max_llm_tokens);
    let sampling = Sampling {
        temperature: resolved.plain("temperature").and_then(Value::as_f64),
        max_tokens: resolved.whole("max_tokens").into_iter().chain(limit).min(),
    };
    let agent = run.scope.coordinator(here).map(|agent| Arc::clone(&agent.config));
    let facts = Facts { agent, message: asked, ..Facts::default() };
    let request = ModelRequest::new(messages).with_facts(facts).with_sampling(sampling);
    let request = match schema {
        Some(schema) => {
            let (name, schema) = (SCHEMA_NAME.into(), Arc::new(schema.clone()));
            request.with_schema(ResponseSchema { name, strict: false, schema })
        }
        None => request,
    };
    let (journal, input) = (here.journal(), resolved.recorded());
    let speaks = run.scope.graph.speaker().is_some_and(|node| node.id() == run.node.id());
    let answered = if speaks {
        let (sink, pieces) = deltas();
        let asking = recorded::stream_with_tools(&journal, MODEL_KEY, model, &input, request, sink);
        // The last pieces may still be in flight when the answer is complete, so the run counts as busy until they are
        // out.
        let _busy = journal.enter();
        tokio::join!(asking, publish_pieces(here, MODEL_KEY, pieces)).0
    } else {
        recorded::ask_with_tools(&journal, MODEL_KEY, model, &input, request).await
    };
    match answered {
        Ok(stepped) => Ok(stepped.output),
        Err(StepError::Journal(error)) => Err(error.into()),
        Err(StepError::Operation(error)) => Err(NodeFailure::from(error).into()),
    }
}

/// The messages, and the text of the last one. The values in them are from users, APIs and models, so control tokens of chat
/// templates are broken up also where the model server would take them: in the words of the system and of the model.
fn messages(resolved: &ResolvedNode) -> (Vec<PromptMessage>, String) {
    let system = resolved.text("system").filter(|text| !text.trim().is_empty());
    let mut messages: Vec<_> =
        system.into_iter().map(|text| PromptMessage::new(PromptRole::System, defused(text))).collect();
    let given = resolved.plain("messages").and_then(Value::as_array);
    messages.extend(given.into_iter().flatten().map(|message| {
        let role = match message["role"].as_str() {
            Some("system") => PromptRole::System,
            Some("assistant") => PromptRole::Assistant,
            _ => PromptRole::User,
        };
        PromptMessage::new(role, defused(message["content"].as_str().unwrap_or_default()))
    }));
    messages.extend(resolved.text("prompt").map(|prompt| PromptMessage::new(PromptRole::User, prompt)));
    let last = messages.last().map(|message| message.content.to_string()).unwrap_or_default();
    (messages, last)
}

/// The JSON of an answer, if it conforms to the schema.
fn structured(content: &str, schema: &Value) -> Result<Value, NodeFailure> {
    let problem = |problem: String| NodeFailure::transient("MODEL_OUTPUT", problem);
    let found = match serde_json::from_str(content) {
        Ok(value) => value,
        Err(_) => Value::Object(answer::object(content).map_err(|error| {
            problem(format!("the model's answer is no JSON: {error}; simplify `schema`, or use another model"))
        })?),
    };
    let validator = jsonschema::validator_for(schema).map_err(|error| {
        NodeFailure::permanent("MODEL_OUTPUT", format!("`schema` is no JSON Schema: {error}; correct it"))
    })?;
    let errors: Vec<String> = validator.iter_errors(&found).take(5).map(|error| error.to_string()).collect();
    if errors.is_empty() {
        return Ok(found);
    }
    Err(problem(format!(
        "the model's answer does not conform to `schema`: {}; simplify it, or use another model",
        errors.join("; ")
    )))
}
