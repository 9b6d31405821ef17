//! HTTP calls of skills, tools and handoffs.

use super::ActionResult;
use super::call_values::{CallValues, SessionFacts};
use super::stand_in::StandIn;
use super::would_call::WouldCall;
use crate::template::{Filler, Missing, escape_for, fill_url, text};
use base::config::SecretError;
use base::config::mask::MASK;
use base::config::secrets::references;
use base::http_client::private::{BadEntry, Guard, GuardedResolver};
use base::http_client::retry::{HttpFault, Policy, retry, with_timeout};
use base::http_client::{self, bounded, key_header, read_bounded};
use base::telemetry::trace_context;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, redirect};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use types::agent::HttpCall;
use types::allowed_secrets::AllowedSecrets;
use types::depth;
use url::Url;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_RETRIES: u32 = 2;
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes.
const MAX_ANSWER: usize = 1024 * 1024;
/// Maximum number of bytes of a failed response that its error quotes.
const MAX_ERROR: usize = 2 * 1024;
/// Maximum number of bytes of a failed response that are read.
const MAX_REFUSAL: usize = 128 * 1024;
/// Maximum length of a secret. A longer text is cut by this much, so that it does not end with half a secret.
const MAX_SECRET: usize = 64 * 1024;
const MAX_REDIRECTS: usize = 5;

/// Replaces `${NAME}` in a text of the operator by the secret's value, for a request to this host. Fails if the secret
/// is not allowed for the host, or is not set.
pub(crate) type Fill = Arc<dyn Fn(&str, &str) -> Result<String, SecretError> + Send + Sync>;
/// Replaces the values of secrets in a text by asterisks.
pub(crate) type Mask = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Inserts secrets into calls, and masks them in results and errors.
#[derive(Clone)]
pub struct SecretFill {
    fill: Fill,
    mask: Mask,
}

impl SecretFill {
    /// Combines the two functions.
    pub fn new(fill: Fill, mask: Mask) -> Self {
        Self { fill, mask }
    }

    /// Allows no secrets.
    pub fn none() -> Self {
        let refused = |text: &str, host: &str| match references(text).first() {
            None => Ok(text.to_owned()),
            Some(name) => Err(AllowedSecrets::default()
                .check(name, Some(host))
                .err()
                .map_or_else(|| SecretError::NotSet((*name).to_owned()), SecretError::from)),
        };
        Self::new(Arc::new(refused), Arc::new(str::to_owned))
    }
}

/// The reason for which the caller could not be created.
#[derive(Debug, Error)]
pub enum HttpCallerError {
    /// `http.allow_private` has an invalid entry.
    #[error(transparent)]
    AllowPrivate(#[from] BadEntry),
    /// The HTTP client could not start, for example because the machine has no root certificates.
    #[error("the HTTP client for skills and tools cannot start: {0}")]
    Client(#[source] HttpFault),
}

/// Makes the HTTP calls of skills, tools and handoffs. Cheap to clone.
///
/// Ignores proxies set in the environment: a proxy would hide which address a call reaches.
#[derive(Clone)]
pub struct HttpCaller {
    client: Client,
    /// Follows no redirects.
    pub(super) direct: Client,
    pub(super) guard: Arc<Guard>,
    secrets: SecretFill,
    /// The session for which the calls are made.
    session: Arc<SessionFacts>,
    /// The answers to the calls of a rehearsal. If set, no request is sent.
    stand_in: Option<Arc<StandIn>>,
}

pub(super) struct PreparedRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
}

impl PreparedRequest {
    /// Adds the headers of every request: the idempotency key, unless there is one, and the trace.
    pub(super) fn with_key(mut self, idempotency_key: &str) -> Self {
        self.headers.entry("idempotency-key").or_insert_with(|| key_header(idempotency_key));
        trace_context::inject_trace(&mut self.headers);
        self
    }
}

impl HttpCaller {
    /// Creates a caller that reaches all public addresses, and the private ones that `allow_private` lists.
    pub fn new(secrets: SecretFill, allow_private: &[String]) -> Result<Self, HttpCallerError> {
        let guard = Arc::new(Guard::new(allow_private)?);
        let client = |policy| {
            http_client::builder()
                .no_proxy()
                .referer(false)
                .dns_resolver(GuardedResolver::new(Arc::clone(&guard)))
                .redirect(policy)
                .build()
                .map_err(|error| HttpCallerError::Client(HttpFault::from(error)))
        };
        let (following, direct) = (client(redirects(Arc::clone(&guard)))?, client(redirect::Policy::none())?);
        Ok(Self { client: following, direct, guard, secrets, session: Arc::default(), stand_in: None })
    }

    /// A caller for calls of this session: `{session.…}` in templates stands for its facts.
    #[must_use]
    pub fn for_session(&self, session: SessionFacts) -> Self {
        Self { session: Arc::new(session), ..self.clone() }
    }

    /// Creates a caller for a rehearsal: `stand_in` supplies the result of every call, and no request is sent.
    #[must_use]
    pub fn answering(&self, stand_in: Arc<StandIn>) -> Self {
        Self { stand_in: Some(stand_in), ..self.clone() }
    }

    /// The answers of a rehearsal; `None` outside of one.
    pub(crate) fn stand_in(&self) -> Option<&StandIn> {
        self.stand_in.as_deref()
    }

    /// Makes the call with the body of its template. Retries transient failures; every failure is a result for the
    /// model.
    pub async fn call(&self, call: &HttpCall, params: &Map<String, Value>, idempotency_key: &str) -> ActionResult {
        // Boxed so that calls of functions, which share this future, do not reserve its room.
        Box::pin(self.perform(call, params, None, idempotency_key)).await
    }

    /// Makes the call with `body` instead of the template.
    pub async fn post(
        &self,
        call: &HttpCall,
        params: &Map<String, Value>,
        body: &Value,
        idempotency_key: &str,
    ) -> ActionResult {
        Box::pin(self.perform(call, params, Some(body), idempotency_key)).await
    }

    /// Describes the call that an action would make: of its API, or of the function with this id.
    pub(crate) fn would_call(&self, call: Option<&HttpCall>, id: &str, params: &Map<String, Value>) -> WouldCall {
        call.map_or_else(|| WouldCall::function(id, params), |call| self.would_send(call, params, None))
    }

    /// Describes the request that a call would send. Secrets are replaced by asterisks.
    pub(crate) fn would_send(&self, call: &HttpCall, params: &Map<String, Value>, body: Option<&Value>) -> WouldCall {
        let masking = SecretFill::new(Arc::new(|_, _| Ok(MASK.to_owned())), Arc::clone(&self.secrets.mask));
        match (Self { secrets: masking, ..self.clone() }).prepare(call, params, body) {
            Ok(PreparedRequest { method, url, body, .. }) => {
                WouldCall::request(method.as_str(), &self.mask(url.as_str()), body.as_deref())
            }
            Err(problem) => WouldCall::Refused { problem: self.mask(&problem) },
        }
    }

    /// The function that masks secrets.
    pub(crate) fn masker(&self) -> Mask {
        Arc::clone(&self.secrets.mask)
    }

    /// Replaces the values of secrets in a text by asterisks.
    pub(crate) fn mask(&self, text: &str) -> String {
        (self.secrets.mask)(text)
    }

    /// The value of a secret, if the operator allows it for the host and it is set.
    pub(crate) fn secret(&self, name: &str, host: &str) -> Result<String, SecretError> {
        (self.secrets.fill)(&format!("${{{name}}}"), host)
    }

    async fn perform(
        &self,
        call: &HttpCall,
        params: &Map<String, Value>,
        body: Option<&Value>,
        idempotency_key: &str,
    ) -> ActionResult {
        if let Some(stand_in) = self.stand_in() {
            return ActionResult::failed(stand_in.refuse_address(&call.url).to_string());
        }
        let mut prepared = match self.prepare(call, params, body) {
            Ok(prepared) => prepared,
            Err(problem) => return ActionResult::failed((self.secrets.mask)(&problem)),
        };
        prepared.headers.remove("idempotency-key");
        let prepared = prepared.with_key(idempotency_key);
        let policy = Policy { retries: call.retries.unwrap_or(DEFAULT_RETRIES), longest_retry_after: MAX_RETRY_AFTER };
        let limit = call.timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.0);
        let (outcome, attempts) =
            retry(policy, "action", || with_timeout(limit, self.attempt(&self.client, &prepared))).await;
        let result = outcome.unwrap_or_else(|fault| ActionResult {
            status: fault.status,
            ..ActionResult::failed((self.secrets.mask)(&fault.problem))
        });
        ActionResult { attempts, ..result }
    }

    pub(super) async fn attempt(&self, client: &Client, prepared: &PreparedRequest) -> Result<ActionResult, HttpFault> {
        let mut request =
            client.request(prepared.method.clone(), prepared.url.clone()).headers(prepared.headers.clone());
        if let Some(body) = &prepared.body {
            request = request.body(body.clone());
        }
        let mut response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            // The status decides, even if the body breaks off.
            let (bytes, cut) = read_bounded(&mut response, MAX_REFUSAL).await.unwrap_or_default();
            let message = self.refusal(http_client::decode(&headers, bytes).await, cut);
            let transient = status.as_u16() == 429 || status.is_server_error();
            return Err(HttpFault::status(status, &headers, transient, &message));
        }
        let (bytes, cut) = read_bounded(&mut response, MAX_ANSWER).await?;
        if cut {
            let problem = format!("the answer is larger than {} MiB and was not read", MAX_ANSWER >> 20);
            return Err(HttpFault { status: Some(status.as_u16()), ..HttpFault::permanent(problem) });
        }
        let text = http_client::decode(&headers, bytes).await;
        // Null means no content, as it does when it is read back from the journal. JSON that no store accepts stays
        // text.
        let result = match serde_json::from_str(&text) {
            Ok(Value::Null) => None,
            Ok(value) if depth::is_legal(&value) => Some(self.masked(value)),
            Ok(_) | Err(_) => Some(self.masked(Value::String(text))).filter(|text| text != ""),
        };
        Ok(ActionResult { ok: true, result, error: None, status: Some(status.as_u16()), attempts: 1 })
    }

    /// The message of a failed response without secrets. Masked before it is cut, because half a secret is not
    /// recognised.
    fn refusal(&self, mut said: String, cut: bool) -> String {
        if cut {
            said.truncate(said.floor_char_boundary(said.len().saturating_sub(MAX_SECRET)));
        }
        bounded(&(self.secrets.mask)(&said), MAX_ERROR)
    }

    /// Masks secrets in a response, because it goes to the model, into prompts and into records of steps.
    fn masked(&self, value: Value) -> Value {
        let mask = |text: &str| (self.secrets.mask)(text);
        match value {
            Value::String(text) => Value::String(mask(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.masked(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, field)| (mask(&name), self.masked(field))).collect()
            }
            Value::Number(number) => match mask(&number.to_string()) {
                masked if masked == MASK => Value::String(masked),
                _ => Value::Number(number),
            },
            Value::Null | Value::Bool(_) => value,
        }
    }

    fn prepare(
        &self,
        call: &HttpCall,
        params: &Map<String, Value>,
        given: Option<&Value>,
    ) -> Result<PreparedRequest, String> {
        let fill = |token: &str, host: &str| (self.secrets.fill)(token, host).map_err(|error| error.to_string());
        let method = method(call, given.is_some())?;
        let values = CallValues { params, session: &self.session };
        values.check(call, given.is_none())?;
        let find = |path: &str| values.find(path);
        let mut url = fill_url(&call.url, &find, &fill)?;
        self.guard.check(&url).map_err(|refusal| refusal.to_string())?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let secret = |token: &str| fill(token, &host);
        let filler = Filler { value: &find, secret: &secret, missing: Missing::Omit };
        append_query(&mut url, call, &filler)?;
        let mut headers = headers(call, &filler)?;
        // A body in another format than JSON is one text. Values are escaped so that they cannot change its structure.
        let escape = call.body.as_ref().filter(|body| body.is_string()).and_then(|_| escape_for(declared(&headers)));
        let in_body = |path: &str| {
            let value = values.find(path)?;
            Some(match escape {
                Some(escape) => Value::String(escape(&text(&value))),
                None => value,
            })
        };
        let filler = Filler { value: &in_body, secret: &secret, missing: Missing::Omit };
        let template = call.body.as_ref().map(|body| filler.json(body)).transpose()?.flatten();
        let sends_params = matches!(method, Method::POST | Method::PUT | Method::PATCH) && call.body.is_none();
        let body = given.cloned().or(template).or_else(|| sends_params.then(|| Value::Object(params.clone())));
        let body = body.map(|body| encode(body, &mut headers));
        Ok(PreparedRequest { method, url, headers, body })
    }
}

/// The method of a call. A call with a given body needs a method that allows one.
fn method(call: &HttpCall, with_body: bool) -> Result<Method, String> {
    let method = Method::from_bytes(call.method.trim().to_ascii_uppercase().as_bytes())
        .map_err(|_| format!("`{}` is not an HTTP method; use GET, POST, PUT, PATCH or DELETE", call.method))?;
    Ok(if with_body && matches!(method, Method::GET | Method::HEAD) { Method::POST } else { method })
}

fn append_query(url: &mut Url, call: &HttpCall, filler: &Filler<'_>) -> Result<(), String> {
    for (name, template) in &call.query {
        let values = match filler.json(template)? {
            Some(Value::Array(list)) => list,
            Some(value) => vec![value],
            None => continue,
        };
        for value in values.iter().filter(|value| !value.is_null()) {
            url.query_pairs_mut().append_pair(name, &text(value));
        }
    }
    Ok(())
}

fn headers(call: &HttpCall, filler: &Filler<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, template) in &call.headers {
        let Some(value) = filler.text(template)? else { continue };
        let (name, value) = header(name, &value)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A header. Values may be Chinese; line breaks and other control characters are refused.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("`{name}` is not a valid header name"))?;
    let mut value = HeaderValue::from_bytes(value.trim().as_bytes())
        .map_err(|_| format!("the value of the header `{name}` holds a line break or another control character"))?;
    value.set_sensitive(true);
    Ok((header, value))
}

fn declared(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

/// Encodes the body as JSON, unless the operator declares another type and writes the body as one text.
pub(super) fn encode(body: Value, headers: &mut HeaderMap) -> Vec<u8> {
    match body {
        Value::String(text) if !declared(headers).is_empty() && !declared(headers).contains("json") => {
            text.into_bytes()
        }
        body => {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            body.to_string().into_bytes()
        }
    }
}

/// The redirect policy: at most five redirects, each checked like the first address. Redirects from `https` to `http`
/// and to another server are refused, because headers and body, including secrets, would be sent there.
fn redirects(guard: Arc<Guard>) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        let downgrade = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
        if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error(format!("more than {MAX_REDIRECTS} redirects"))
        } else if !matches!(attempt.url().scheme(), "http" | "https") || downgrade && attempt.url().scheme() == "http" {
            attempt.error("a redirect away from https is not followed")
        } else if let Err(refusal) = guard.check(attempt.url()) {
            attempt.error(refusal)
        } else if let Some(from) = attempt.previous().last().filter(|from| !same_server(from, attempt.url())) {
            let (from, to) = (from.host_str().unwrap_or_default(), attempt.url().host_str().unwrap_or_default());
            let problem = format!(
                "`{from}` redirects to another server, `{to}`, which is not followed because the call's headers and body \
                 would be sent there; write that address into the agent file"
            );
            attempt.error(problem)
        } else {
            attempt.follow()
        }
    })
}

/// Whether host and port are the same, or the redirect only upgrades to `https`.
fn same_server(from: &Url, to: &Url) -> bool {
    let upgrade = from.scheme() == "http" && to.scheme() == "https";
    from.host() == to.host() && (upgrade || from.port_or_known_default() == to.port_or_known_default())
}
