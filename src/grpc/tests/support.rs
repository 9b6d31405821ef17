//! An author that tests drive, and a server with it.

use crate::author::{Author, AuthorError, AuthorRequest, AuthorResponse};
use crate::client::RemoteAuthor;
use crate::generated::workflow_agent::workflow_agent_client::WorkflowAgentClient;
use crate::server::{Accepted, Admission, Admitted, Call, Purpose, Refusal, Server, ServerCertificate};
use async_trait::async_trait;
use base::clock::Clock;
use base::tasks::{OnPanic, Tasks};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use types::authoring::{AgentState, Body, Conversation, ConversationConfig, MessageContent, Speaker, Stage};
use types::timestamp::Timestamp;

/// One exchange that the author has begun. Dropping it ends the author's stream.
pub(super) struct Begun {
    pub(super) request: AuthorRequest,
    responses: mpsc::UnboundedSender<Result<AuthorResponse, AuthorError>>,
    dropped: oneshot::Receiver<()>,
}

impl Begun {
    pub(super) fn respond(&self, response: AuthorResponse) {
        self.responses.send(Ok(response)).unwrap();
    }

    pub(super) fn fail(&self, error: AuthorError) {
        self.responses.send(Err(error)).unwrap();
    }

    /// Waits until the server has dropped the author's stream.
    pub(super) async fn dropped(self) {
        let _ = self.dropped.await;
    }
}

/// An author whose exchanges appear in a channel.
struct DrivenAuthor(mpsc::UnboundedSender<Begun>);

impl Author for DrivenAuthor {
    fn converse(&self, request: AuthorRequest) -> BoxStream<'static, Result<AuthorResponse, AuthorError>> {
        let (responses, received) = mpsc::unbounded_channel();
        let (guard, dropped) = oneshot::channel::<()>();
        self.0.send(Begun { request, responses, dropped }).unwrap();
        stream::unfold((received, guard), async |(mut received, guard)| {
            Some((received.recv().await?, (received, guard)))
        })
        .boxed()
    }
}

/// The token of the administrator, and that of the user `anna`.
pub(super) const ADMIN: &str = "admin-token";
pub(super) const ANNA: &str = "anna-token";

/// Admits by the token. Each admitted call holds a clone.
struct ByToken(Arc<()>);

#[async_trait]
impl Admission for ByToken {
    async fn admit(&self, call: Call<'_>) -> Result<Admitted, Refusal> {
        assert!(call.peer.is_some_and(|peer| peer.is_loopback()));
        let token = call.headers.get("authorization").and_then(|value| value.to_str().ok());
        let only_user = match token.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(ADMIN) => None,
            Some(ANNA) if call.purpose == Purpose::Converse => Some("anna".to_owned()),
            Some(ANNA) => return Err(Refusal::Forbidden("this needs the role `admin`".into())),
            _ => return Err(Refusal::Unauthenticated("the request has no valid bearer token".into())),
        };
        Ok(Admitted { only_user, held: Arc::new(Arc::clone(&self.0)) })
    }
}

/// A server in this process. It stops when it is dropped.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) begun: mpsc::UnboundedReceiver<Begun>,
    pub(super) stop: CancellationToken,
    connections: Arc<AtomicUsize>,
    held: Weak<()>,
    served: watch::Receiver<bool>,
    _tasks: Tasks,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) async fn start() -> Running {
    start_with("127.0.0.1:0".parse().unwrap(), None, Duration::from_secs(5)).await
}

pub(super) async fn start_with(
    address: SocketAddr,
    certificate: Option<ServerCertificate>,
    grace: Duration,
) -> Running {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, begun) = mpsc::unbounded_channel();
    let (stop, tasks, connections) = (CancellationToken::new(), Tasks::new(), Arc::new(AtomicUsize::new(0)));
    let held = Arc::new(());
    let (admission, held) = (ByToken(Arc::clone(&held)), Arc::downgrade(&held));
    let server = Server::new(Arc::new(DrivenAuthor(sender)), Arc::new(admission));
    let server = server.with_certificate(certificate).unwrap().with_grace(grace);
    let counted = Arc::clone(&connections);
    let accepted = stream::unfold((listener, counted), async |(listener, counted)| {
        let (stream, peer) = listener.accept().await.unwrap();
        counted.fetch_add(1, Ordering::Relaxed);
        Some((Accepted { stream, peer: peer.ip(), held: Box::new(()) }, (listener, counted)))
    });
    let (ended, served) = watch::channel(false);
    let stopped = stop.clone();
    tasks.spawn("server", OnPanic::Log, async move {
        server.serve(accepted, stopped).await.unwrap();
        ended.send_replace(true);
    });
    Running { address, begun, stop, connections, held, served, _tasks: tasks }
}

impl Running {
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn remote(&self) -> RemoteAuthor {
        RemoteAuthor::new(&self.url(), Some(ADMIN), None, Clock::system()).unwrap()
    }

    pub(super) fn channel(&self) -> Channel {
        Endpoint::from_shared(self.url()).unwrap().connect_lazy()
    }

    pub(super) fn client(&self) -> WorkflowAgentClient<Channel> {
        let most = 64 * 1024 * 1024;
        WorkflowAgentClient::new(self.channel()).max_encoding_message_size(most).max_decoding_message_size(most)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The number of calls that hold their admission.
    pub(super) fn admitted(&self) -> usize {
        self.held.strong_count().saturating_sub(1)
    }

    /// The next exchange that the author begins.
    pub(super) async fn next(&mut self) -> Begun {
        self.begun.recv().await.unwrap()
    }

    /// Waits until the server has ended.
    pub(super) async fn ended(mut self) {
        self.served.wait_for(|ended| *ended).await.unwrap();
    }
}

/// A request, with a token, for the generated client.
pub(super) fn with_token<T>(message: T, token: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

pub(super) fn request(text: &str) -> AuthorRequest {
    AuthorRequest {
        session_id: "会话-1".into(),
        user_id: "anna".into(),
        user_message: text.into(),
        current_state: None,
        workflow_context: None,
        config: ConversationConfig::default(),
    }
}

pub(super) fn entry(role: Speaker, text: &str) -> Conversation {
    Conversation { role, text: text.into(), timestamp: 1, metadata: BTreeMap::new() }
}

pub(super) fn state(stage: Stage, conversations: Vec<Conversation>) -> AgentState {
    AgentState {
        session_id: "会话-1".into(),
        user_id: "anna".into(),
        stage,
        conversations,
        intent_summary: "每天早上发天气".into(),
        created_at: Timestamp::from_millis(1),
        updated_at: Timestamp::from_millis(2),
        ..AgentState::default()
    }
}

/// An event that does not change the conversation.
pub(super) fn event(body: Body) -> AuthorResponse {
    AuthorResponse { body, seq: 0, updated_state: None, timestamp: Timestamp::from_millis(3), is_final: false }
}

/// A text of the author.
pub(super) fn says(text: &str, updated_state: Option<AgentState>, is_final: bool) -> AuthorResponse {
    let content = MessageContent { text: text.into(), role: Speaker::Assistant, ..MessageContent::default() };
    let body =
        Body::Message { delta: None, stream_id: None, supersedes: None, content: Some(content), workflow_id: None };
    AuthorResponse { updated_state, is_final, ..event(body) }
}
