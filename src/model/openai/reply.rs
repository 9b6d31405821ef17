//! What an answer looks like on the wire, whole or in pieces.

use super::body::Names;
use crate::http_client::bounded;
use crate::http_client::retry::Fault;
use crate::journal::Tokens;
use crate::model::{ModelReply, ToolCall};
use serde::Deserialize;
use serde_json::Value;

/// The most bytes of a server's message that an error repeats.
pub(super) const MAX_MESSAGE: usize = 1_000;

/// A server's own words in an error's body: `error.message` or one of its relatives, else the body.
pub(super) fn message_of(body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let candidates = [&parsed["error"]["message"], &parsed["error"], &parsed["message"], &parsed["detail"]];
    let said = candidates.into_iter().find_map(|value| value.as_str()).unwrap_or(body);
    bounded(said, MAX_MESSAGE)
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// A message, or with `stream` a piece of one.
#[derive(Default, Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    content: Value,
    #[serde(default)]
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallPart>>,
}

impl Message {
    /// Content is a text, or with some servers a list of parts.
    pub(super) fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
        }
    }
}

/// A call, or with `stream` a piece of one.
#[derive(Default, Deserialize)]
pub(super) struct CallPart {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) function: FunctionPart,
}

#[derive(Default, Deserialize)]
pub(super) struct FunctionPart {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    arguments: Value,
}

impl FunctionPart {
    /// A text, or with some servers the object itself.
    pub(super) fn arguments(&self) -> String {
        match &self.arguments {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

/// An answer as it was found, before it is judged.
#[derive(Default)]
pub(super) struct Found {
    pub(super) content: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) refusal: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) model: Option<String>,
}

/// An answer that cannot be read is a passing fault: overloaded servers cut their answers short.
pub(super) fn read_whole(text: &str) -> Result<Found, Fault> {
    let completion: Completion = serde_json::from_str(text).map_err(|error| {
        Fault::transient(format!("the answer is not a chat completion ({error}): {}", bounded(text, 200)))
    })?;
    let Some(choice) = completion.choices.into_iter().next() else {
        return Err(Fault::transient(format!("the answer has no choices: {}", message_of(text))));
    };
    let Choice { message, finish_reason } = choice;
    let calls = message.tool_calls.iter().flatten().map(|call| ToolCall {
        id: call.id.clone().unwrap_or_default(),
        name: call.function.name.clone().unwrap_or_default(),
        arguments: call.function.arguments(),
    });
    Ok(Found {
        content: message.text(),
        calls: calls.collect(),
        refusal: message.refusal,
        finish_reason,
        usage: completion.usage,
        model: completion.model,
    })
}

/// The answer, if it is one.
pub(super) fn judge(found: Found, asked: &str, names: &Names<'_>) -> Result<ModelReply, Fault> {
    let Found { content, mut calls, refusal, finish_reason, usage, model } = found;
    if let Some(refusal) = refusal.filter(|refusal| !refusal.is_empty()) {
        return Err(Fault::permanent(format!("the model declined: {}", bounded(&refusal, MAX_MESSAGE))));
    }
    if names.is_empty() {
        calls.clear();
    }
    if content.trim().is_empty() && calls.is_empty() {
        return Err(match finish_reason.as_deref() {
            Some("length") => Fault::permanent("the answer used up `max_tokens` before its first word; raise it"),
            Some("content_filter") => Fault::permanent("the server's content filter withheld the answer"),
            reason => Fault::transient(format!(
                "the answer has no content (finish_reason `{}`)",
                bounded(reason.unwrap_or("none"), 50)
            )),
        });
    }
    for (at, call) in calls.iter_mut().enumerate() {
        call.name = names.id_of(&call.name).to_owned();
        if call.id.is_empty() {
            call.id = format!("call_{}", at + 1);
        }
    }
    let usage = usage.unwrap_or(Usage { prompt_tokens: None, completion_tokens: None });
    Ok(ModelReply {
        content,
        tool_calls: calls,
        model: model.filter(|model| !model.is_empty()).unwrap_or_else(|| asked.to_owned()),
        name: None,
        charged: None,
        tokens: Tokens { prompt: usage.prompt_tokens.unwrap_or(0), completion: usage.completion_tokens.unwrap_or(0) },
        attempts: 1,
    })
}
