//! One call of `ProcessConversation`: the author works in a task of its own, which ends with the author's last
//! response, the call's deadline, the client's departure or the server's stop. A client that does not read cannot delay
//! that.

use super::{Admitted, deadline};
use crate::author::{Author, AuthorRequest};
use crate::generated::workflow_agent::workflow_agent_server::WorkflowAgent;
use crate::generated::workflow_agent::{ConversationRequest, ConversationResponse};
use base::tasks::{OnPanic, Tasks};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use std::future::pending;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tracing::{Instrument, info, info_span, warn};

/// Responses that wait for the client before the author waits for it, too.
const BUFFERED: usize = 8;
/// How long a client may take to read one response.
const READING_TIME: Duration = Duration::from_secs(60);

/// Runs the author for each call.
pub(super) struct Conversations {
    author: Arc<dyn Author>,
    tasks: Tasks,
    grace: Duration,
    stop: CancellationToken,
}

impl Conversations {
    pub(super) fn new(author: Arc<dyn Author>, tasks: Tasks, grace: Duration, stop: CancellationToken) -> Self {
        Self { author, tasks, grace, stop }
    }
}

#[tonic::async_trait]
impl WorkflowAgent for Conversations {
    type ProcessConversationStream = BoxStream<'static, Result<ConversationResponse, Status>>;

    async fn process_conversation(
        &self,
        request: Request<ConversationRequest>,
    ) -> Result<Response<Self::ProcessConversationStream>, Status> {
        let limit = deadline::of(request.metadata().as_ref())?;
        let Some(admitted) = request.extensions().get::<Admitted>().cloned() else {
            return Err(Status::unauthenticated("the call was not admitted"));
        };
        let request = AuthorRequest::try_from(request.into_inner())
            .map_err(|invalid| Status::invalid_argument(invalid.to_string()))?;
        admitted.speaks_for(&request.user_id)?;
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        let span = info_span!("conversation", session_id = request.session_id, user_id = request.user_id);
        let (sender, receiver) = mpsc::channel(BUFFERED);
        let unread = Arc::new(Unread::new(receiver));
        let end = Arc::new(OnceLock::new());
        let work = Work {
            author: Arc::clone(&self.author),
            end: Arc::clone(&end),
            limit,
            grace: self.grace,
            stop: self.stop.clone(),
            unread: Arc::downgrade(&unread),
            _admitted: admitted,
        };
        self.tasks.spawn("conversation", OnPanic::Log, work.run(request, sender).instrument(span));
        Ok(Response::new(responses(unread, end)))
    }
}

/// How the work has ended.
type End = Result<(), Status>;

/// The responses of the task, and then its end. A task that panicked leaves no end.
fn responses(unread: Arc<Unread>, end: Arc<OnceLock<End>>) -> BoxStream<'static, Result<ConversationResponse, Status>> {
    let sent = stream::poll_fn(move |context| unread.poll(context)).map(Ok);
    let ended = stream::once(async move {
        end.get()
            .cloned()
            .unwrap_or_else(|| Err(Status::internal("the authoring agent failed; its log has the reason")))
    });
    sent.chain(ended.filter_map(async |end| end.err().map(Err))).boxed()
}

/// The responses that the client has not read. The transport polls them only while the client reads, so they are shared
/// with the task of the call, which drops them after [`READING_TIME`].
struct Unread(Mutex<Option<mpsc::Receiver<ConversationResponse>>>);

impl Unread {
    fn new(receiver: mpsc::Receiver<ConversationResponse>) -> Self {
        Self(Mutex::new(Some(receiver)))
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<ConversationResponse>> {
        let mut receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.as_mut().map_or(Poll::Ready(None), |receiver| receiver.poll_recv(context))
    }

    fn discard(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn not_read() -> Status {
    Status::aborted("the client does not read its responses")
}

fn stopping() -> Status {
    Status::unavailable("the server is stopping; continue with the last state at another one")
}

/// The work for one call.
struct Work {
    author: Arc<dyn Author>,
    end: Arc<OnceLock<End>>,
    limit: Option<Duration>,
    grace: Duration,
    stop: CancellationToken,
    /// Dropped by the transport when the client is gone.
    unread: Weak<Unread>,
    /// Held until the client has read the responses, or has had the time for it.
    _admitted: Admitted,
}

impl Work {
    async fn run(self, request: AuthorRequest, sender: mpsc::Sender<ConversationResponse>) {
        let session_id = request.session_id.clone();
        let limit = self.limit.map_or_else(|| pending().boxed(), |limit| tokio::time::sleep(limit).boxed());
        let stopped = async {
            self.stop.cancelled().await;
            tokio::time::sleep(self.grace).await;
        };
        let end = tokio::select! {
            biased;
            () = sender.closed() => Err(Status::cancelled("the client is gone")),
            () = limit => Err(Status::deadline_exceeded("the time limit of the call (`grpc-timeout`) is over")),
            () = stopped => Err(stopping()),
            end = converse(self.author.as_ref(), request, session_id, &sender) => end,
        };
        if let Err(status) = &end {
            info!(code = ?status.code(), "a conversation ended early: {}", status.message());
        }
        let end = self.read(&sender).await.and(end);
        // Set before `sender` is dropped, which ends the responses.
        let _ = self.end.set(end);
    }

    /// Waits until the client has read all responses. Without this limit, calls that have ended would fill the memory.
    async fn read(&self, sender: &mpsc::Sender<ConversationResponse>) -> End {
        let all_read = async {
            // Fails if the client is gone.
            let _ = sender.reserve_many(BUFFERED).await;
        };
        tokio::select! {
            biased;
            () = all_read => Ok(()),
            () = self.stop.cancelled() => Ok(()),
            () = tokio::time::sleep(READING_TIME) => {
                if let Some(unread) = self.unread.upgrade() {
                    unread.discard();
                }
                Err(not_read())
            }
        }
    }
}

/// Sends the author's responses to the client until the last one.
async fn converse(
    author: &dyn Author,
    request: AuthorRequest,
    session_id: String,
    sender: &mpsc::Sender<ConversationResponse>,
) -> End {
    let language = request.config.language;
    let mut responses = author.converse(request);
    while let Some(response) = responses.next().await {
        let response = response.map_err(|error| {
            warn!(error = &error as &dyn std::error::Error, "the authoring agent failed");
            error.status()
        })?;
        let is_final = response.is_final;
        let response = response.into_wire(session_id.clone(), language).map_err(|error| {
            warn!("a response of the authoring agent has no JSON: {error}");
            Status::internal("the authoring agent failed; its log has the reason")
        })?;
        let sent = tokio::time::timeout(READING_TIME, sender.send(response)).await;
        // A failed send means that the client is gone; `sender.closed` ends the work.
        sent.map(drop).map_err(|_| not_read())?;
        if is_final {
            return Ok(());
        }
    }
    warn!("the authoring agent ended without its last response");
    Err(Status::internal("the authoring agent ended without its last response"))
}
