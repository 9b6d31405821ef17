//! The OpenAI-compatible chat completions protocol (CONTRACT.md, "Model calls").
//!
//! Servers differ in what they know of `response_format`. The client begins with `json_schema`; when that is refused it
//! asks again with `json_object`, then without, the schema written into the prompt, and remembers what worked.

use super::registry::ModelSettingsError;
use super::{Model, ModelError, ModelReply, ModelRequest, PromptRole, ResponseSchema};
use crate::config;
use crate::config::mask::Masker;
use crate::config::secrets::{in_address, masked_address};
use crate::http_client::retry::{Fault, Policy, retry, within};
use crate::http_client::{self, bounded, key_header, read_bounded};
use crate::journal::Tokens;
use crate::telemetry::trace_context;
use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tracing::debug;
use url::Url;

/// The most bytes that an answer may have.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// The most bytes of a server's message that an error repeats.
const MAX_MESSAGE: usize = 1_000;
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How a structure is asked for, from the best to the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Format {
    Schema,
    Object,
    Prompt,
}

impl Format {
    fn next(self) -> Option<Self> {
        match self {
            Self::Schema => Some(Self::Object),
            Self::Object => Some(Self::Prompt),
            Self::Prompt => None,
        }
    }

    fn from_u8(code: u8) -> Self {
        match code {
            0 => Self::Schema,
            1 => Self::Object,
            _ => Self::Prompt,
        }
    }
}

/// One model behind an OpenAI-compatible server.
pub struct OpenAi {
    name: String,
    client: Client,
    url: Url,
    bearer: Option<HeaderValue>,
    /// Whatever the server or a library says, the key is not repeated.
    masker: Masker,
    settings: config::Model,
    format: AtomicU8,
}

impl OpenAi {
    /// The model `name` of the settings; `key` is the value of `api_key_env`.
    pub fn new(name: &str, settings: &config::Model, key: Option<String>) -> Result<Self, ModelSettingsError> {
        let wrong = |setting: &str, problem: String| ModelSettingsError {
            model: name.to_owned(),
            setting: setting.to_owned(),
            problem,
        };
        let mut url = Url::parse(&settings.base_url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                let found = bounded(&masked_address(&settings.base_url), 200);
                wrong("base_url", format!("`{found}` is not an address such as `https://api.example.com/v1`"))
            })?;
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["chat", "completions"]);
        }
        if settings.model.is_empty() {
            return Err(wrong("model", "is missing; give the model's name at its server".into()));
        }
        let bearer = key.as_deref().map(|key| bearer(key.trim())).transpose().map_err(|()| {
            let variable = settings.api_key_env.as_deref().unwrap_or_default();
            wrong("api_key_env", format!("the key in `{variable}` is empty or holds characters that no header can"))
        })?;
        let client = http_client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| wrong("base_url", format!("the HTTP client cannot start: {}", Fault::from(error))))?;
        let masker = Masker::new(key.into_iter().chain(in_address(&settings.base_url)));
        let settings = settings.clone();
        Ok(Self { name: name.to_owned(), client, url, bearer, masker, settings, format: AtomicU8::new(0) })
    }

    fn body(&self, request: &ModelRequest, format: Format) -> Value {
        let mut messages: Vec<Value> = request.messages.iter().map(|message| json!(message)).collect();
        let mut body = Map::new();
        if let Some(schema) = &request.schema {
            match format {
                Format::Schema => {
                    let wanted = json!({"name": schema.name, "strict": schema.strict, "schema": schema.schema});
                    body.insert("response_format".into(), json!({"type": "json_schema", "json_schema": wanted}));
                }
                Format::Object => {
                    body.insert("response_format".into(), json!({"type": "json_object"}));
                    write_schema(&mut messages, schema);
                }
                Format::Prompt => write_schema(&mut messages, schema),
            }
        }
        body.insert("model".into(), json!(self.settings.model));
        body.insert("messages".into(), Value::Array(messages));
        if let Some(temperature) = self.settings.temperature {
            body.insert("temperature".into(), json!(temperature));
        }
        if let Some(max_tokens) = self.settings.max_tokens {
            body.insert("max_tokens".into(), json!(max_tokens));
        }
        Value::Object(body)
    }

    async fn attempt(&self, body: &Value, key: &str) -> Result<ModelReply, Fault> {
        let mut trace = HeaderMap::new();
        trace_context::pass_on(&mut trace);
        let request = self.client.post(self.url.clone()).header("Idempotency-Key", key_header(key));
        let mut request = request.headers(trace).json(body);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let mut response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let read = read_bounded(&mut response, MAX_ANSWER).await;
        // The status of a refusal decides, even when its body breaks off.
        let (bytes, cut) = if status.is_success() { read? } else { read.unwrap_or_default() };
        // Before anything is cut, logged or recorded: half a key is no longer recognised.
        let text = self.masker.mask(&http_client::decode(&headers, bytes).await);
        if !status.is_success() {
            return Err(Fault::status(status, &headers, is_transient(status), &message_of(&text)));
        }
        if cut {
            return Err(Fault::permanent(format!("the answer is larger than {} MiB", MAX_ANSWER >> 20)));
        }
        let reply = read_reply(&text, &self.settings.model)?;
        // Once more without the answer's own escapes.
        Ok(ModelReply { content: self.masker.mask(&reply.content), ..reply })
    }
}

#[async_trait]
impl Model for OpenAi {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let policy = Policy { retries: self.settings.max_retries, longest_retry_after: LONGEST_RETRY_AFTER };
        let mut format = Format::from_u8(self.format.load(Ordering::Relaxed));
        let mut attempts = 0;
        loop {
            let body = self.body(&request, format);
            let ask = || within(self.settings.timeout.0, self.attempt(&body, &request.idempotency_key));
            let (outcome, made) = retry(policy, &self.name, ask).await;
            attempts += made;
            let fault = match outcome {
                Ok(reply) => {
                    // Remembered only now: an error may mention the schema and mean something else.
                    if request.schema.is_some() {
                        self.format.fetch_max(format as u8, Ordering::Relaxed);
                    }
                    debug!(model = %self.name, attempts, tokens = ?reply.tokens, "answered");
                    return Ok(ModelReply { attempts, ..reply });
                }
                Err(fault) => fault,
            };
            match format.next() {
                Some(next) if request.schema.is_some() && refuses_format(&fault) => {
                    debug!(model = %self.name, refused = ?format, next = ?next, "asks again for the structure");
                    format = next;
                }
                _ => {
                    let (model, problem) = (self.name.clone(), self.masker.mask(&fault.problem));
                    return Err(if fault.transient {
                        ModelError::Unavailable { model, attempts, problem }
                    } else {
                        ModelError::Refused { model, problem }
                    });
                }
            }
        }
    }
}

fn bearer(key: &str) -> Result<HeaderValue, ()> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| ())?;
    value.set_sensitive(true);
    if key.is_empty() { Err(()) } else { Ok(value) }
}

fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504 | 529)
}

/// True when a server seems not to know the `response_format` that it was sent.
fn refuses_format(fault: &Fault) -> bool {
    let problem = fault.problem.to_lowercase();
    matches!(fault.status, Some(400 | 404 | 415 | 422 | 501))
        && ["response_format", "json_schema", "json_object", "schema", "unsupported", "not support"]
            .iter()
            .any(|word| problem.contains(word))
}

/// Puts the schema into the prompt's system message, for servers that take it nowhere else.
fn write_schema(messages: &mut Vec<Value>, schema: &ResponseSchema) {
    let order = format!(
        "Answer with one JSON object and nothing else: no code fence, no explanation. It must conform to this JSON Schema:\n{}",
        schema.schema
    );
    let system = messages.iter_mut().find(|message| message["role"] == json!(PromptRole::System));
    match system.and_then(|message| message.get_mut("content")) {
        Some(Value::String(content)) => {
            content.push_str("\n\n");
            content.push_str(&order);
        }
        _ => messages.insert(0, json!({"role": PromptRole::System, "content": order})),
    }
}

/// A server's own words in an error's body: `error.message` or one of its relatives, else the body.
fn message_of(body: &str) -> String {
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

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
    #[serde(default)]
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

/// An answer that cannot be read is a passing fault: overloaded servers cut their answers short.
fn read_reply(text: &str, asked: &str) -> Result<ModelReply, Fault> {
    let completion: Completion = serde_json::from_str(text).map_err(|error| {
        Fault::transient(format!("the answer is not a chat completion ({error}): {}", bounded(text, 200)))
    })?;
    let Some(choice) = completion.choices.into_iter().next() else {
        return Err(Fault::transient(format!("the answer has no choices: {}", message_of(text))));
    };
    if let Some(refusal) = choice.message.refusal.filter(|refusal| !refusal.is_empty()) {
        return Err(Fault::permanent(format!("the model declined: {}", bounded(&refusal, MAX_MESSAGE))));
    }
    let content = content_text(&choice.message.content);
    if content.trim().is_empty() {
        return Err(match choice.finish_reason.as_deref() {
            Some("length") => Fault::permanent("the answer used up `max_tokens` before its first word; raise it"),
            Some("content_filter") => Fault::permanent("the server's content filter withheld the answer"),
            reason => Fault::transient(format!(
                "the answer has no content (finish_reason `{}`)",
                bounded(reason.unwrap_or("none"), 50)
            )),
        });
    }
    let usage = completion.usage.unwrap_or(Usage { prompt_tokens: None, completion_tokens: None });
    Ok(ModelReply {
        content,
        model: completion.model.filter(|model| !model.is_empty()).unwrap_or_else(|| asked.to_owned()),
        tokens: Tokens { prompt: usage.prompt_tokens.unwrap_or(0), completion: usage.completion_tokens.unwrap_or(0) },
        attempts: 1,
    })
}

/// Content is a text, or with some servers a list of parts.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
