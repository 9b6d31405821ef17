//! Who may call. The owner of the server decides; this module applies the decision.

use async_trait::async_trait;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderMap;
use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

use super::connection::Peer;

/// The paths of the health service, which is open to everyone.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// The paths of the authoring agent.
const AGENT: &str = "/workflow_agent.WorkflowAgent/";
/// How long a call may take until its responses begin: the request's message has arrived by then.
const REQUEST_TIME: Duration = Duration::from_secs(60);

/// The aim of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A conversation.
    Converse,
    /// Anything else, such as reflection.
    Describe,
}

/// A call before its message is read.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The aim of the call.
    pub purpose: Purpose,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// The address of the client.
    pub peer: Option<IpAddr>,
}

/// Decides who may call.
#[async_trait]
pub trait Admission: Send + Sync {
    /// Admits a call or refuses it. Health checks are never asked about.
    async fn admit(&self, call: Call<'_>) -> Result<Admitted, Refusal>;
}

/// An admitted call.
#[derive(Clone)]
pub struct Admitted {
    /// The only user for whom the caller may speak; `None` for everyone.
    pub only_user: Option<String>,
    /// Dropped when the call ends, such as permits.
    pub held: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("only_user", &self.only_user).finish_non_exhaustive()
    }
}

impl Admitted {
    /// Fails unless the caller may speak for this user.
    pub(super) fn speaks_for(&self, user_id: &str) -> Result<(), Status> {
        match &self.only_user {
            Some(only) if only != user_id => Err(Status::permission_denied(format!(
                "the token is that of the user `{only}`, but `user_id` is `{user_id}`; send the token of this user"
            ))),
            _ => Ok(()),
        }
    }
}

/// Why a call is refused. The text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No valid token: `UNAUTHENTICATED`.
    Unauthenticated(String),
    /// The caller may not do this: `PERMISSION_DENIED`.
    Forbidden(String),
    /// The caller has reached a limit: `RESOURCE_EXHAUSTED`.
    Exhausted(String),
    /// The server cannot take the call now: `UNAVAILABLE`.
    Unavailable(String),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unauthenticated(text) => Self::unauthenticated(text),
            Refusal::Forbidden(text) => Self::permission_denied(text),
            Refusal::Exhausted(text) => Self::resource_exhausted(text),
            Refusal::Unavailable(text) => Self::unavailable(text),
        }
    }
}

fn late() -> Status {
    Status::deadline_exceeded("the message of the request did not arrive within 60 s")
}

/// Middleware: lets a call pass that is admitted, with its [`Admitted`].
pub(super) async fn guard(State(admission): State<Arc<dyn Admission>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path.starts_with(HEALTH) {
        return next.run(request).await;
    }
    let purpose = if path.starts_with(AGENT) { Purpose::Converse } else { Purpose::Describe };
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    match admission.admit(Call { purpose, headers: request.headers(), peer }).await {
        Ok(admitted) => {
            request.extensions_mut().insert(admitted);
            let handling = next.run(request);
            tokio::time::timeout(REQUEST_TIME, handling).await.unwrap_or_else(|_| late().into_http())
        }
        Err(refusal) => Status::from(refusal).into_http(),
    }
}
