//! The OpenAI-compatible chat completions protocol (CONTRACT.md, "Model calls"): [`body`] is the question on the wire,
//! [`reply`] the answer, [`stream`] an answer in pieces.
//!
//! Servers differ in what they know of `response_format`. The client begins with `json_schema`; when that is refused it
//! asks again with `json_object`, then without, the schema written into the prompt, and remembers what worked. So it does
//! with `stream_options` and `stream`.

mod body;
mod reply;
mod stream;

use super::registry::ModelSettingsError;
use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use crate::config;
use crate::config::mask::Masker;
use crate::config::secrets::{in_address, masked_address};
use crate::http_client::retry::{Fault, Policy, retry, within};
use crate::http_client::{self, bounded, key_header, read_bounded};
use crate::telemetry::trace_context;
use async_trait::async_trait;
use body::{Format, Names, Streaming};
use reply::Found;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use stream::Patience;
use tracing::debug;
use url::Url;

/// The most bytes that an answer may have.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Words of servers that do not know a `response_format`.
const FORMAT_WORDS: &[&str] =
    &["response_format", "json_schema", "json_object", "schema", "unsupported", "not support"];

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
    streaming: AtomicU8,
}

/// One question as it is sent.
struct Question<'q> {
    body: Value,
    key: &'q str,
    names: &'q Names<'q>,
    deltas: Option<&'q DeltaSink>,
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
        let (format, streaming) = (AtomicU8::new(0), AtomicU8::new(0));
        Ok(Self { name: name.to_owned(), client, url, bearer, masker, settings, format, streaming })
    }

    /// Asks until there is an answer, or no hope of one. With `deltas`, in pieces.
    async fn ask(&self, request: &ModelRequest, deltas: Option<&DeltaSink>) -> Result<ModelReply, ModelError> {
        let policy = Policy { retries: self.settings.max_retries, longest_retry_after: LONGEST_RETRY_AFTER };
        let names = Names::of(request);
        let mut format = Format::from_u8(self.format.load(Ordering::Relaxed));
        let mut streaming =
            deltas.map_or(Streaming::Not, |_| Streaming::from_u8(self.streaming.load(Ordering::Relaxed)));
        let mut attempts = 0;
        loop {
            let question = Question {
                body: self.body(request, &names, (format, streaming)),
                key: &request.idempotency_key,
                names: &names,
                deltas: deltas.filter(|_| streaming != Streaming::Not),
            };
            let (outcome, made) = retry(policy, &self.name, || self.attempt(&question)).await;
            attempts += made;
            let fault = match outcome {
                Ok(reply) => {
                    // Remembered only now: an error may mention the schema and mean something else.
                    if request.schema.is_some() {
                        self.format.fetch_max(format as u8, Ordering::Relaxed);
                    }
                    if let Some(deltas) = deltas {
                        self.streaming.fetch_max(streaming as u8, Ordering::Relaxed);
                        if question.deltas.is_none() {
                            deltas.whole(&reply.content);
                        }
                    }
                    debug!(model = %self.name, attempts, tokens = ?reply.tokens, "answered");
                    return Ok(ModelReply { attempts, ..reply });
                }
                Err(fault) => fault,
            };
            if question.deltas.is_some()
                && refuses(&fault, &["stream"])
                && let Some(next) = streaming.next()
            {
                debug!(model = %self.name, refused = ?streaming, ?next, "asks again for the answer in pieces");
                streaming = next;
            } else if request.schema.is_some()
                && refuses(&fault, FORMAT_WORDS)
                && let Some(next) = format.next()
            {
                debug!(model = %self.name, refused = ?format, ?next, "asks again for the structure");
                format = next;
            } else {
                return Err(self.gives_up(&fault, attempts));
            }
        }
    }

    fn gives_up(&self, fault: &Fault, attempts: u32) -> ModelError {
        let (model, problem) = (self.name.clone(), self.masker.mask(&fault.problem));
        if fault.transient {
            ModelError::Unavailable { model, attempts, problem }
        } else {
            ModelError::Refused { model, problem }
        }
    }

    /// One attempt. In pieces, what an earlier one has sent is void: a server cannot go on with an answer that broke off, and
    /// to give up would make long answers less sure than short ones.
    async fn attempt(&self, question: &Question<'_>) -> Result<ModelReply, Fault> {
        let limit = self.settings.timeout.0;
        let found = match question.deltas {
            None => within(limit, self.whole(question)).await?,
            Some(deltas) => {
                deltas.restart();
                let response = within(limit, self.send(question)).await?;
                stream::read(response, self.patience(), &self.masker, deltas).await?
            }
        };
        let mut reply = reply::judge(found, &self.settings.model, question.names)?;
        // Once more without the answer's own escapes.
        reply.content = self.masker.mask(&reply.content);
        for call in &mut reply.tool_calls {
            call.arguments = self.masker.mask(&call.arguments);
        }
        Ok(reply)
    }

    fn patience(&self) -> Patience {
        let timeout = self.settings.timeout.0;
        Patience { first: timeout, between: self.settings.idle_timeout.0.min(timeout) }
    }

    async fn whole(&self, question: &Question<'_>) -> Result<Found, Fault> {
        let mut response = self.send(question).await?;
        let headers = response.headers().clone();
        let (bytes, cut) = read_bounded(&mut response, MAX_ANSWER).await?;
        if cut {
            return Err(too_large());
        }
        reply::read_whole(&self.text(&headers, bytes).await)
    }

    /// Sends the question; answers what comes back if that is no refusal.
    async fn send(&self, question: &Question<'_>) -> Result<Response, Fault> {
        let mut trace = HeaderMap::new();
        trace_context::pass_on(&mut trace);
        let request = self.client.post(self.url.clone()).header("Idempotency-Key", key_header(question.key));
        let mut request = request.headers(trace).json(&question.body);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let mut response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            return Ok(response);
        }
        // The status decides, even when its body breaks off.
        let (bytes, _) = read_bounded(&mut response, MAX_ANSWER).await.unwrap_or_default();
        let text = self.text(&headers, bytes).await;
        Err(Fault::status(status, &headers, is_transient(status), &reply::message_of(&text)))
    }

    /// A body as text, masked before anything is cut, logged or recorded: half a key is no longer recognised.
    async fn text(&self, headers: &HeaderMap, bytes: Vec<u8>) -> String {
        self.masker.mask(&http_client::decode(headers, bytes).await)
    }
}

#[async_trait]
impl Model for OpenAi {
    async fn complete(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        self.ask(&request, None).await
    }

    async fn stream(&self, request: ModelRequest, deltas: DeltaSink) -> Result<ModelReply, ModelError> {
        self.ask(&request, Some(&deltas)).await
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

/// True when a server seems not to know something that it was sent, of which its answer has one of these words.
fn refuses(fault: &Fault, words: &[&str]) -> bool {
    let problem = fault.problem.to_lowercase();
    matches!(fault.status, Some(400 | 404 | 415 | 422 | 501)) && words.iter().any(|word| problem.contains(word))
}

fn too_large() -> Fault {
    Fault::permanent(format!("the answer is larger than {} MiB", MAX_ANSWER >> 20))
}
