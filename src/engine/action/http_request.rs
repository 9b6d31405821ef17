//! HTTP requests of nodes: complete requests whose references and secrets are filled in. Unlike the calls of skills and
//! tools they have no template, follow no redirect, and are not repeated here: the node decides on further attempts.

use super::http::{HttpCaller, PreparedRequest, encode, header};
use super::would_call::WouldCall;
use base::http_client::retry::HttpFault;
use decisions::reference::resolve::as_text;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value};
use url::Url;

/// A complete request.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) url: String,
    /// Query parameters; a list adds its name once for each value.
    pub(crate) params: Map<String, Value>,
    pub(crate) headers: Map<String, Value>,
    /// The body: JSON, or a text if the headers declare another type.
    pub(crate) body: Option<Value>,
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    /// The status, from 200 to 299.
    pub(crate) status: u16,
    /// The JSON of the response, or its text; null without content. Secrets are masked.
    pub(crate) data: Value,
}

/// Why a request has no response that can be used.
#[derive(Clone, Debug)]
pub(crate) struct RequestFailure {
    /// The error code: `HTTP_<status>`, `CONNECTION`, `REFUSED` or `OUTPUT_TOO_LARGE`.
    pub(crate) code: String,
    /// The problem, without secrets.
    pub(crate) problem: String,
    /// True if another attempt may succeed.
    pub(crate) transient: bool,
}

impl RequestFailure {
    fn refused(problem: impl Into<String>) -> Self {
        Self { code: "REFUSED".into(), problem: problem.into(), transient: false }
    }
}

impl From<HttpFault> for RequestFailure {
    fn from(fault: HttpFault) -> Self {
        let code = match fault.status {
            Some(200..=299) => "OUTPUT_TOO_LARGE".into(),
            Some(status) => format!("HTTP_{status}"),
            None if fault.transient => "CONNECTION".into(),
            None => "REFUSED".into(),
        };
        Self { code, problem: fault.problem, transient: fault.transient }
    }
}

impl HttpCaller {
    /// Sends a request once. `idempotency_key` is its header `Idempotency-Key`, unless the request has one itself.
    pub(crate) async fn send(
        &self,
        request: HttpRequest,
        idempotency_key: &str,
    ) -> Result<HttpResponse, RequestFailure> {
        if let Some(stand_in) = self.stand_in() {
            return Err(RequestFailure::refused(stand_in.refuse_address(&request.url).to_string()));
        }
        let prepared =
            self.complete(request, idempotency_key).map_err(|problem| RequestFailure::refused(self.mask(&problem)))?;
        // Boxed because the future of a request is large.
        let answered = Box::pin(self.attempt(&self.direct, &prepared)).await;
        let result = answered.map_err(|fault| {
            let problem = self.mask(&fault.problem);
            RequestFailure::from(HttpFault { problem, ..fault })
        })?;
        Ok(HttpResponse { status: result.status.unwrap_or(200), data: result.result.unwrap_or_default() })
    }

    /// Describes the request that a call would send.
    pub(crate) fn would_request(&self, request: HttpRequest) -> WouldCall {
        match self.complete(request, "") {
            Ok(PreparedRequest { method, url, body, .. }) => {
                WouldCall::request(method.as_str(), &self.mask(url.as_str()), body.as_deref())
            }
            Err(problem) => WouldCall::Refused { problem: self.mask(&problem) },
        }
    }

    fn complete(&self, request: HttpRequest, idempotency_key: &str) -> Result<PreparedRequest, String> {
        let HttpRequest { method, url, params, headers, body } = request;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| format!("`{method}` is no HTTP method"))?;
        let mut url = Url::parse(&url).map_err(|error| format!("the address cannot be read: {error}"))?;
        self.guard.check(&url).map_err(|refusal| refusal.to_string())?;
        for (name, value) in &params {
            let values = match value {
                Value::Array(list) => list.iter().collect(),
                value => vec![value],
            };
            for value in values.into_iter().filter(|value| !value.is_null()) {
                url.query_pairs_mut().append_pair(name, &as_text(value));
            }
        }
        let mut complete = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_null()) {
            let (name, value) = header(name, &as_text(value))?;
            complete.insert(name, value);
        }
        let body = body.map(|body| encode(body, &mut complete));
        Ok(PreparedRequest { method, url, headers: complete, body }.with_key(idempotency_key))
    }
}
