//! Reads an answer: the types of the protocol, and the checks that turn it into a [`ModelReply`].

use super::body::WireNames;
use crate::model::thoughts::{self, Thoughts};
use crate::model::{ModelReply, ModelToolCall, answer};
use base::config;
use base::config::mask::Masker;
use base::http_client::bounded;
use base::http_client::retry::HttpFault;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tracing::warn;
use types::depth;
use types::step::TokenUsage;

/// Maximum number of bytes of a server's message that an error quotes.
pub(super) const MAX_QUOTED_MESSAGE: usize = 1_000;

/// Fields that only describe an answer and are not sent back.
const DESCRIPTIVE_FIELDS: [&str; 7] =
    ["role", "type", "annotations", "audio", "function_call", "logprobs", "token_ids"];

/// The message in the body of an error response: `error.message` or a similar field, otherwise the body. Gemini puts
/// its error into a list. OpenAI names the refused parameter in a field of its own; it is added if the message does not
/// contain it.
pub(super) fn message_of(body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let parsed = parsed.get(0).unwrap_or(&parsed);
    let candidates = [&parsed["error"]["message"], &parsed["error"], &parsed["message"], &parsed["detail"]];
    let said = candidates.into_iter().find_map(|value| value.as_str()).unwrap_or(body);
    let said = bounded(said, MAX_QUOTED_MESSAGE);
    match parsed["error"]["param"].as_str().or(parsed["param"].as_str()) {
        Some(param) if !said.contains(param) => format!("{said} (parameter `{}`)", bounded(param, 100)),
        _ => said,
    }
}

/// Reads null as the default, because some servers write null for an absent field.
pub(super) fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default, deserialize_with = "or_null")]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Deserialize)]
struct Choice {
    message: WireMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// A message; with `stream` a piece of one.
#[derive(Default, Deserialize)]
pub(super) struct WireMessage {
    #[serde(default)]
    content: Value,
    #[serde(default)]
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallPart>>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl WireMessage {
    /// The text. `content` is a text, or at some servers a list of parts.
    pub(super) fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
        }
    }

    /// Takes the fields that are sent back together with the results of its calls.
    pub(super) fn extra(&mut self) -> Map<String, Value> {
        own(std::mem::take(&mut self.extra))
    }
}

/// Removes fields that only describe an answer, and fields whose nesting exceeds the limit of the stores.
fn own(mut extra: Map<String, Value>) -> Map<String, Value> {
    extra.retain(|name, value| {
        !value.is_null() && !DESCRIPTIVE_FIELDS.contains(&name.as_str()) && depth::is_legal(value)
    });
    extra
}

/// Adds the next piece of a field: appends to texts and lists, and merges objects.
pub(super) fn grow(extra: &mut Map<String, Value>, name: String, piece: Value) {
    match (extra.get_mut(&name), piece) {
        (Some(Value::String(known)), Value::String(piece)) => known.push_str(&piece),
        (Some(Value::Array(known)), Value::Array(piece)) => known.extend(piece),
        (Some(Value::Object(known)), Value::Object(piece)) => known.extend(piece),
        (_, piece) => drop(extra.insert(name, piece)),
    }
}

/// A tool call; with `stream` a piece of one.
#[derive(Default, Deserialize)]
pub(super) struct CallPart {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "or_null")]
    pub(super) function: FunctionPart,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl CallPart {
    /// Takes the fields that are sent back together with its result.
    pub(super) fn extra(&mut self) -> Map<String, Value> {
        own(std::mem::take(&mut self.extra))
    }
}

#[derive(Default, Deserialize)]
pub(super) struct FunctionPart {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    arguments: Value,
}

impl FunctionPart {
    /// The arguments: a text, or at some servers the object itself.
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
    #[serde(default)]
    total_tokens: Option<u64>,
}

impl From<Usage> for TokenUsage {
    /// Counts the thoughts of Gemini, which reports them only in the total.
    fn from(Usage { prompt_tokens, completion_tokens, total_tokens }: Usage) -> Self {
        let prompt = prompt_tokens.unwrap_or(0);
        let rest = total_tokens.unwrap_or(0).saturating_sub(prompt);
        Self { prompt, completion: completion_tokens.unwrap_or(0).max(if prompt > 0 { rest } else { 0 }) }
    }
}

/// The contents of an answer, before [`check_answer`] accepts it.
#[derive(Default)]
pub(super) struct ReceivedAnswer {
    pub(super) content: String,
    pub(super) calls: Vec<ModelToolCall>,
    pub(super) extra: Map<String, Value>,
    /// The thoughts that were removed from the text.
    pub(super) thoughts: Thoughts,
    pub(super) refusal: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) model: Option<String>,
}

/// Reads a complete answer. An unreadable answer is a transient fault, because overloaded servers truncate their
/// answers.
pub(super) fn read_whole(text: &str, structured: bool) -> Result<ReceivedAnswer, HttpFault> {
    let completion: Completion = serde_json::from_str(text).map_err(|error| {
        HttpFault::transient(format!("the answer is not a chat completion ({error}): {}", bounded(text, 200)))
    })?;
    let Some(choice) = completion.choices.into_iter().next() else {
        return Err(HttpFault::transient(format!("the answer has no choices: {}", message_of(text))));
    };
    let Choice { mut message, finish_reason } = choice;
    let mut calls = Vec::new();
    for mut call in message.tool_calls.take().into_iter().flatten() {
        let extra = call.extra();
        let (id, name) = (call.id.unwrap_or_default(), call.function.name.take().unwrap_or_default());
        calls.push(ModelToolCall { extra, ..ModelToolCall::new(id, name, call.function.arguments()) });
    }
    let said = message.text();
    let (words, thoughts) = thoughts::split(&said);
    Ok(ReceivedAnswer {
        content: if structured { thoughts::before_structure(&said).into_owned() } else { words },
        thoughts,
        calls,
        extra: message.extra(),
        refusal: message.refusal,
        finish_reason: finish_reason.and_then(reason),
        usage: completion.usage,
        model: completion.model,
    })
}

/// Some servers send an empty text, or the word `null`, before there is a reason.
pub(super) fn reason(written: String) -> Option<String> {
    Some(written).filter(|reason| !reason.is_empty() && reason != "null")
}

/// The properties of a request and the settings against which its answer is checked.
pub(super) struct ReplyContext<'q> {
    /// Name of the model in the settings.
    pub(super) name: &'q str,
    pub(super) settings: &'q config::Model,
    pub(super) names: &'q WireNames<'q>,
    pub(super) structured: bool,
    /// Number of tool calls in earlier answers of the conversation.
    pub(super) earlier_calls: usize,
}

/// Accepts an answer, or returns the fault that it contains.
pub(super) fn check_answer(found: ReceivedAnswer, context: &ReplyContext<'_>) -> Result<ModelReply, HttpFault> {
    let ReceivedAnswer { content, mut calls, mut extra, thoughts, refusal, finish_reason, usage, model } = found;
    if let Some(refusal) = refusal.filter(|refusal| !refusal.is_empty()) {
        return Err(HttpFault::permanent(format!("the model declined: {}", bounded(&refusal, MAX_QUOTED_MESSAGE))));
    }
    if context.names.is_empty() {
        calls.clear();
    }
    let is_empty = content.trim().is_empty() && calls.is_empty();
    match finish_reason.as_deref() {
        Some("length") if !context.structured || is_empty => return Err(context.cut_off(is_empty)),
        // The caller asks the model to correct an incomplete structure. Small models often repeat a word until they are
        // cut off, and seldom do so twice.
        Some("length") if !answer::is_json(&content) => warn!(model = context.name, "{}", context.cut_off(false)),
        Some("content_filter") if is_empty => {
            return Err(HttpFault::permanent("the server's content filter withheld the answer"));
        }
        Some("content_filter") => return Err(HttpFault::permanent("the server's content filter cut the answer off")),
        Some(reason @ ("insufficient_system_resource" | "error" | "abort")) => {
            return Err(HttpFault::transient(format!("the server broke the answer off (finish_reason `{reason}`)")));
        }
        _ => {}
    }
    if is_empty {
        let holds = if thoughts.found() { "nothing but thoughts" } else { "no content" };
        let reason = bounded(finish_reason.as_deref().unwrap_or("none"), 50);
        return Err(HttpFault::transient(format!("the answer has {holds} (finish_reason `{reason}`)")));
    }
    number(&mut calls, context);
    if calls.is_empty() {
        // Only an answer with calls is sent back in another request.
        extra.clear();
    }
    Ok(ModelReply {
        tool_calls: calls,
        extra,
        tokens: usage.map(TokenUsage::from).unwrap_or_default(),
        ..ModelReply::text(
            content,
            model.filter(|model| !model.is_empty()).unwrap_or_else(|| context.settings.model.clone()),
        )
    })
}

/// Replaces the protocol's name in each call by the tool's id, and gives a call without an id, or with the id of an
/// earlier call of the same answer, a new id.
fn number(calls: &mut [ModelToolCall], context: &ReplyContext<'_>) {
    for at in 0..calls.len() {
        calls[at].name = context.names.id_of(&calls[at].name).to_owned();
        let is_taken = calls[..at].iter().any(|other| other.id == calls[at].id);
        if calls[at].id.is_empty() || is_taken {
            let mut id = format!("call_{}", context.earlier_calls + at + 1);
            while calls.iter().any(|other| other.id == id) {
                id.push('_');
            }
            calls[at].id = id;
        }
    }
}

impl ReplyContext<'_> {
    /// The fault of an answer that was cut off. Permanent, because a retry would be cut off too, at the same cost.
    fn cut_off(&self, is_empty: bool) -> HttpFault {
        let name = self.name;
        let config::Model { max_tokens, max_completion_tokens, .. } = self.settings;
        let what = if is_empty { "used up its tokens before its first word" } else { "was cut off" };
        let remedy = match (max_tokens, max_completion_tokens) {
            (Some(most), _) => format!("raise `max_tokens` of [models.{name}], which is {most}"),
            (_, Some(most)) => format!("raise `max_completion_tokens` of [models.{name}], which is {most}"),
            (None, None) => format!(
                "the limit is the server's own: set `max_tokens` or `max_completion_tokens` of [models.{name}], or \
                 give the server a longer context"
            ),
        };
        HttpFault::permanent(format!("the answer {what} (finish_reason `length`); {remedy}"))
    }
}

/// Masks secrets in all texts of `value`.
pub(super) fn masked(value: &mut Value, masker: &Masker) {
    match value {
        Value::String(text) => *text = masker.mask(text),
        Value::Array(items) => items.iter_mut().for_each(|item| masked(item, masker)),
        Value::Object(fields) => fields.values_mut().for_each(|field| masked(field, masker)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
