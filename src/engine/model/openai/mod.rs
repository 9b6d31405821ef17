//! Client for servers with the OpenAI-compatible chat completions protocol.
//!
//! - [`body`] builds the request body. [`reply`] reads a complete answer. [`stream`] reads a streamed answer, with its
//!   tool [`calls`].
//! - [`form`] chooses the variant of the request. Servers differ in their support for `response_format`: the client
//!   first sends `json_schema`; if the server refuses it, `json_object`; then no format, with the schema in the prompt.
//!   It remembers the variant that worked. It treats `stream_options` and `stream` in the same way.
//! - [`refusal`] reads from an error message which part of the request the server refuses.

mod body;
mod calls;
mod form;
mod refusal;
mod reply;
mod stream;

use super::registry::ModelSettingsError;
use super::{DeltaSink, Model, ModelError, ModelReply, ModelRequest};
use async_trait::async_trait;
use base::config;
use base::config::mask::Masker;
use base::config::secrets::{in_address, masked_address};
use base::http_client::retry::{HttpFault, Policy, retry, with_timeout};
use base::http_client::{self, bounded, key_header, read_bounded};
use base::telemetry::trace_context;
use body::WireNames;
use form::{AcceptedForm, Streaming};
use refusal::{Refusal, own_fields};
use reply::{ReceivedAnswer, ReplyContext};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stream::{Reader, StreamTimeouts};
use tracing::debug;
use url::Url;

/// Maximum size of an answer in bytes.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Parts of the names of models whose chat templates write the opening tag of a thought themselves.
const REASONING_MODEL_WORDS: &[&str] = &["think", "reason", "qwq"];
/// Header of the API key at Azure OpenAI.
const AZURE_KEY: HeaderName = HeaderName::from_static("api-key");

/// One model behind an OpenAI-compatible server.
pub struct OpenAi {
    name: String,
    client: Client,
    url: Url,
    /// Name and value of the header with the API key.
    key: Option<(HeaderName, HeaderValue)>,
    /// Masks the key in every text of the server or of a library.
    masker: Masker,
    settings: config::Model,
    known: AcceptedForm,
    /// Whether its answers start with a thought that has no opening tag.
    thinks_first: AtomicBool,
}

/// A request as it is sent.
struct OutgoingRequest<'q> {
    body: Value,
    key: &'q str,
    context: ReplyContext<'q>,
    deltas: Option<&'q DeltaSink>,
}

impl OpenAi {
    /// Creates the client of the model that the settings name `name`. `key` is the value of the variable `api_key_env`.
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
        let header = key_name(settings, &url).map_err(|problem| wrong("api_key_header", problem))?;
        let key_value = key.as_deref().map(|key| secret_value(&header, key.trim())).transpose().map_err(|()| {
            let variable = settings.api_key_env.as_deref().unwrap_or_default();
            wrong(
                "api_key_env",
                format!("the key in `{variable}` is empty or has characters that an HTTP header cannot contain"),
            )
        })?;
        let client = http_client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| wrong("base_url", format!("the HTTP client cannot start: {}", HttpFault::from(error))))?;
        let masker = Masker::new(key.into_iter().chain(in_address(&settings.base_url)));
        let settings = settings.clone();
        let (key, thinks_first) =
            (key_value.map(|value| (header, value)), AtomicBool::new(is_thinker(&settings.model)));
        Ok(Self {
            name: name.to_owned(),
            client,
            url,
            key,
            masker,
            settings,
            known: AcceptedForm::default(),
            thinks_first,
        })
    }

    /// Sends the request until it is answered, or until neither a retry nor another variant can help. With `deltas` the
    /// answer is streamed.
    async fn ask(&self, request: &ModelRequest, deltas: Option<&DeltaSink>) -> Result<ModelReply, ModelError> {
        let policy = Policy { retries: self.settings.max_retries, longest_retry_after: MAX_RETRY_AFTER };
        let (names, unread) = (WireNames::from_request(request), DeltaSink::unread());
        let mut form = self.known.form(deltas.is_some());
        let mut attempts = 0;
        loop {
            let outgoing = OutgoingRequest {
                body: self.body(request, &names, &form),
                key: &request.idempotency_key,
                context: self.reply_context(request, &names),
                deltas: deltas.or(Some(&unread)).filter(|_| form.streaming != Streaming::Not),
            };
            let (outcome, made) = retry(policy, &self.name, || self.attempt(&outgoing)).await;
            attempts += made;
            let fault = match outcome {
                Ok(reply) => {
                    self.known.worked(&form, request, deltas.is_some());
                    if let Some(deltas) = deltas.filter(|_| outgoing.deltas.is_none()) {
                        deltas.whole(&reply.content);
                    }
                    debug!(model = %self.name, attempts, tokens = ?reply.tokens, "answered");
                    return Ok(ModelReply { attempts, ..reply });
                }
                Err(fault) => fault,
            };
            let refusal = Refusal::from_fault(&fault);
            let next = refusal
                .as_ref()
                .and_then(|refusal| form.after(refusal, request, &own_fields(&self.settings), deltas.is_some()));
            let Some(next) = next else { return Err(self.gives_up(&fault, refusal.as_ref(), attempts)) };
            debug!(model = %self.name, refused = ?form, ?next, "retrying with another variant of the request: {}", fault.problem);
            form = next;
        }
    }

    fn reply_context<'q>(&'q self, request: &ModelRequest, names: &'q WireNames<'q>) -> ReplyContext<'q> {
        let earlier_calls = request.messages.iter().map(|message| message.tool_calls.len()).sum();
        let structured = request.schema.is_some();
        ReplyContext { name: &self.name, settings: &self.settings, names, structured, earlier_calls }
    }

    fn gives_up(&self, fault: &HttpFault, refusal: Option<&Refusal>, attempts: u32) -> ModelError {
        let (model, mut problem) = (self.name.clone(), self.masker.mask(&fault.problem));
        if fault.transient {
            return ModelError::Unavailable { model, attempts, problem };
        }
        if let Some(remedy) = refusal.and_then(|refusal| refusal.remedy(&self.name, &self.settings)) {
            problem = format!("{problem}; {remedy}");
        }
        ModelError::Refused { model, problem }
    }

    /// Makes one attempt. With a stream, the pieces of an earlier attempt no longer count: a server cannot continue an
    /// answer that broke off. Failing instead of retrying would make long answers less reliable than short ones.
    async fn attempt(&self, outgoing: &OutgoingRequest<'_>) -> Result<ModelReply, HttpFault> {
        let limit = self.settings.timeout.0;
        let found = match outgoing.deltas {
            None => with_timeout(limit, self.whole(outgoing)).await?,
            Some(deltas) => {
                deltas.restart();
                let response = with_timeout(limit, self.send(outgoing)).await?;
                let thinks_first = self.thinks_first.load(Ordering::Relaxed);
                let reader = Reader { structured: outgoing.context.structured, thinks_first };
                stream::read(response, self.stream_timeouts(), &self.masker, deltas, reader).await?
            }
        };
        self.thinks_first.fetch_or(found.thoughts.untagged(), Ordering::Relaxed);
        let mut reply = reply::check_answer(found, &outgoing.context)?;
        // Masked again, now that the escapes of the answer's JSON are decoded.
        reply.content = self.masker.mask(&reply.content);
        for call in &mut reply.tool_calls {
            call.arguments = self.masker.mask(&call.arguments);
            call.extra.values_mut().for_each(|field| reply::masked(field, &self.masker));
        }
        reply.extra.values_mut().for_each(|field| reply::masked(field, &self.masker));
        Ok(reply)
    }

    fn stream_timeouts(&self) -> StreamTimeouts {
        let timeout = self.settings.timeout.0;
        StreamTimeouts { first: timeout, between: self.settings.idle_timeout.0.min(timeout) }
    }

    async fn whole(&self, outgoing: &OutgoingRequest<'_>) -> Result<ReceivedAnswer, HttpFault> {
        let mut response = self.send(outgoing).await?;
        let headers = response.headers().clone();
        let (bytes, cut) = read_bounded(&mut response, MAX_ANSWER).await?;
        if cut {
            return Err(too_large());
        }
        reply::read_whole(&self.text(&headers, bytes).await, outgoing.context.structured)
    }

    /// Sends the request. Returns the response if its status is a success.
    async fn send(&self, outgoing: &OutgoingRequest<'_>) -> Result<Response, HttpFault> {
        let mut trace = HeaderMap::new();
        trace_context::inject_trace(&mut trace);
        let request = self.client.post(self.url.clone()).header("Idempotency-Key", key_header(outgoing.key));
        let mut request = request.headers(trace).json(&outgoing.body);
        if let Some((name, value)) = &self.key {
            request = request.header(name, value);
        }
        let mut response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            return Ok(response);
        }
        // The status decides, even if the body breaks off.
        let (bytes, _) = read_bounded(&mut response, MAX_ANSWER).await.unwrap_or_default();
        let text = self.text(&headers, bytes).await;
        Err(HttpFault::status(status, &headers, is_transient(status), &reply::message_of(&text)))
    }

    /// Reads a body as text. Masked before it is cut, logged or recorded, because half a key would not be recognised.
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

/// Name of the header for the key: `api_key_header` if it is set; that of Azure OpenAI if the address has an
/// `api-version`; otherwise `Authorization`.
fn key_name(settings: &config::Model, url: &Url) -> Result<HeaderName, String> {
    match &settings.api_key_header {
        Some(name) => name.parse().map_err(|_| format!("`{}` is not the name of a header", bounded(name, 50))),
        None if url.query_pairs().any(|(name, _)| name == "api-version") => Ok(AZURE_KEY),
        None => Ok(AUTHORIZATION),
    }
}

fn secret_value(header: &HeaderName, key: &str) -> Result<HeaderValue, ()> {
    let text = if *header == AUTHORIZATION { format!("Bearer {key}") } else { key.to_owned() };
    let mut value = HeaderValue::from_str(&text).map_err(|_| ())?;
    value.set_sensitive(true);
    if key.is_empty() { Err(()) } else { Ok(value) }
}

/// Whether the model's name suggests that it thinks before it answers.
fn is_thinker(model: &str) -> bool {
    let name = model.to_lowercase();
    REASONING_MODEL_WORDS.iter().any(|word| name.contains(word))
        || name.split(|c: char| !c.is_alphanumeric()).any(|part| part == "r1")
}

fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504 | 529)
}

fn too_large() -> HttpFault {
    HttpFault::permanent(format!("the answer is larger than {} MiB", MAX_ANSWER >> 20))
}
