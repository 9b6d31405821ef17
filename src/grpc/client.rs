//! Calls the authoring agent that `authoring.endpoint` names.

use crate::author::{Author, AuthorError, AuthorRequest, AuthorResponse, is_transient};
use crate::generated::workflow_agent::ConversationResponse;
use crate::generated::workflow_agent::workflow_agent_client::WorkflowAgentClient;
use base::clock::Clock;
use base::config::Authoring;
use base::telemetry::trace_context::inject_trace;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status, Streaming};
use tracing::warn;
use types::authoring::AgentState;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the connection is examined, and how long the server may take to respond. So a dead server is noticed within
/// 20 s.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The pauses before the reconnections of one exchange.
const PAUSES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(3)];

/// The beginning of a certificate in PEM.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Why `authoring.endpoint` cannot be used.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The address is invalid.
    #[error("authoring.endpoint: `{endpoint}` is no address; write it as `http://host:8081` or `https://host:8081`")]
    Address {
        /// The address.
        endpoint: String,
        /// The problem.
        source: tonic::transport::Error,
    },
    /// The file of the authority cannot be read.
    #[error("authoring.ca: the file `{}` cannot be read", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The certificates of the authority are unusable.
    #[error("authoring.ca: it has no usable certificates")]
    Authority(#[source] tonic::transport::Error),
    /// There is no certificate.
    #[error("authoring.ca: it has no certificates in PEM")]
    NoAuthority,
    /// The token cannot be sent.
    #[error("authoring.token: it has characters that no header may have; write another token")]
    Token(#[source] http::header::InvalidHeaderValue),
}

/// The authoring agent on another server. Cheap to clone: all clones share one connection, which is made at the first call
/// and again after it was lost.
///
/// When the connection breaks within an exchange, it continues with the last state that arrived, at most three times. The
/// error after that is transient ([`AuthorError::is_transient`]).
#[derive(Clone, Debug)]
pub struct RemoteAuthor {
    client: WorkflowAgentClient<Channel>,
    authorization: Option<HeaderValue>,
    endpoint: String,
    clock: Clock,
}

impl RemoteAuthor {
    /// The authoring agent of the settings; `None` if they name no endpoint. Must be called within a runtime.
    pub fn from_settings(settings: &Authoring, clock: Clock) -> Result<Option<Self>, EndpointError> {
        let Some(endpoint) = &settings.endpoint else { return Ok(None) };
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| EndpointError::Unreadable { path: path.clone(), source })
        };
        let authority = settings.ca.as_ref().map(read).transpose()?;
        Self::new(endpoint, settings.token.as_deref(), authority, clock).map(Some)
    }

    /// The authoring agent at `endpoint`. `authority` has the certificates in PEM that verify the server of an `https`
    /// address; the system's certificates unless given. Must be called within a runtime.
    pub fn new(
        endpoint: &str,
        token: Option<&str>,
        authority: Option<Vec<u8>>,
        clock: Clock,
    ) -> Result<Self, EndpointError> {
        let invalid = |source| EndpointError::Address { endpoint: endpoint.to_owned(), source };
        let mut to = Endpoint::from_shared(endpoint.to_owned())
            .map_err(invalid)?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true);
        if to.uri().scheme_str() == Some("https") {
            let tls = ClientTlsConfig::new();
            let tls = match authority {
                // Without any certificate, every connection would fail.
                Some(authority) if !authority.windows(BEGIN.len()).any(|line| line == BEGIN) => {
                    return Err(EndpointError::NoAuthority);
                }
                Some(authority) => tls.ca_certificate(Certificate::from_pem(authority)),
                None => tls.with_native_roots(),
            };
            to = to.tls_config(tls).map_err(EndpointError::Authority)?;
        }
        let client = WorkflowAgentClient::new(to.connect_lazy())
            .max_decoding_message_size(crate::MAX_MESSAGE)
            .max_encoding_message_size(crate::MAX_MESSAGE);
        let authorization = token.map(bearer).transpose().map_err(EndpointError::Token)?;
        Ok(Self { client, authorization, endpoint: endpoint.to_owned(), clock })
    }

    /// The generated client, for tests.
    #[cfg(test)]
    pub(crate) fn raw(&self) -> WorkflowAgentClient<Channel> {
        self.client.clone()
    }

    async fn open(&self, request: AuthorRequest) -> Result<Streaming<ConversationResponse>, Status> {
        let mut headers = HeaderMap::new();
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        inject_trace(&mut headers);
        let mut request = Request::new(request.into());
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        Ok(self.client.clone().process_conversation(request).await?.into_inner())
    }
}

fn bearer(token: &str) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Author for RemoteAuthor {
    fn converse(&self, request: AuthorRequest) -> BoxStream<'static, Result<AuthorResponse, AuthorError>> {
        let exchange = Exchange { remote: self.clone(), request, open: None, breaks: 0, has_ended: false };
        stream::unfold(exchange, async |mut exchange| Some((exchange.next().await?, exchange))).boxed()
    }
}

/// One message of the user and the responses to it, over all reconnections.
struct Exchange {
    remote: RemoteAuthor,
    /// The request of the next call: the message, and after a response the last state.
    request: AuthorRequest,
    open: Option<Streaming<ConversationResponse>>,
    breaks: usize,
    has_ended: bool,
}

impl Exchange {
    async fn next(&mut self) -> Option<Result<AuthorResponse, AuthorError>> {
        if self.has_ended {
            return None;
        }
        loop {
            let status = match self.receive().await {
                Ok(response) => return Some(self.read(response)),
                Err(status) => status,
            };
            self.open = None;
            if !is_transient(&status) || !self.can_continue() || self.breaks == PAUSES.len() {
                self.has_ended = true;
                let endpoint = self.remote.endpoint.clone();
                return Some(Err(AuthorError::Remote { endpoint, source: Box::new(status) }));
            }
            let pause = PAUSES[self.breaks];
            self.breaks += 1;
            warn!(code = ?status.code(), "the authoring agent is unreachable, retrying in {pause:?}: {}", status.message());
            self.remote.clock.sleep(pause).await;
        }
    }

    async fn receive(&mut self) -> Result<ConversationResponse, Status> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(self.remote.open(self.request.clone()).await?),
        };
        let ended = || Status::unavailable("the stream ended without its last response");
        open.message().await?.ok_or_else(ended)
    }

    fn read(&mut self, response: ConversationResponse) -> Result<AuthorResponse, AuthorError> {
        let read = AuthorResponse::from_wire(response, &self.request.session_id)
            .map_err(|source| AuthorError::Broken { endpoint: self.remote.endpoint.clone(), source });
        match &read {
            Ok(response) => {
                self.has_ended = response.is_final;
                if let Some(state) = response.updated_state.as_ref().filter(|_| !response.is_final) {
                    self.request.current_state = Some(state.clone());
                    self.request.user_message.clear();
                    // The state has the context from now on.
                    self.request.workflow_context = None;
                }
            }
            Err(_) => self.has_ended = true,
        }
        read
    }

    /// True if the request can be sent again: with its message, or with a state that goes on without one.
    fn can_continue(&self) -> bool {
        let state = self.request.current_state.as_ref();
        !self.request.user_message.is_empty() || state.is_some_and(AgentState::goes_on)
    }
}
