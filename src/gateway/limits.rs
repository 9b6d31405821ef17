//! What one gateway gives at most, so that no client can take it away from the others: connections, event streams, the
//! size of a request's head and the time for its head and its body.

use super::Reject;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use base::config::Settings;
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections (`gateway.max_connections`); further ones wait until one closes.
    pub connections: usize,
    /// Open event streams (`gateway.max_streams`); further ones are refused with 503.
    pub streams: usize,
    /// Bytes of a request's line and headers; more is refused with 431. At least 8 KiB.
    pub head_bytes: usize,
    /// From the opening of a connection, or the answer before, until a request's head is there; then the connection is
    /// closed.
    pub head_time: Duration,
    /// From a request's head until the end of its body; then it is refused with 408.
    pub body_time: Duration,
}

impl Limits {
    /// Those of the settings; the others are fixed.
    pub fn new(settings: &Settings) -> Self {
        Self {
            connections: settings.gateway.max_connections,
            streams: settings.gateway.max_streams,
            head_bytes: 64 * 1024,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(60),
        }
    }
}

/// The event streams that may still be opened. Cheap to clone.
#[derive(Clone)]
pub(super) struct Streams(Arc<Semaphore>);

impl Streams {
    pub(super) fn new(limits: &Limits) -> Self {
        Self(Arc::new(Semaphore::new(limits.streams.min(Semaphore::MAX_PERMITS))))
    }

    /// A place for one more, until it is dropped.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, Reject> {
        let refused = |_| {
            let hint = "close event streams that nobody reads, raise `gateway.max_streams`, or start another gateway";
            Reject::unavailable("too_many_streams", "this gateway has `gateway.max_streams` event streams open", hint)
        };
        Arc::clone(&self.0).try_acquire_owned().map_err(refused)
    }
}

/// A body did not end in time.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the body did not end within {}", types::duration::format(*.0))]
pub(super) struct TooSlow(Duration);

impl TooSlow {
    /// The one behind `error`, if there is one.
    pub(super) fn behind(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref()).copied()
    }
}

/// Bounds the time for a request's body, however its bytes are spread over it.
pub(super) async fn body_in_time(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    let deadline = Instant::now() + limits.body_time;
    let (parts, body) = request.into_parts();
    if axum::body::HttpBody::is_end_stream(&body) {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let chunks = stream::unfold(Some(body.into_data_stream()), move |chunks| async move {
        let mut chunks = chunks?;
        match timeout_at(deadline, chunks.next()).await {
            Ok(Some(chunk)) => Some((chunk.map_err(axum::BoxError::from), Some(chunks))),
            Ok(None) => None,
            Err(_) => Some((Err(TooSlow(limits.body_time).into()), None)),
        }
    });
    next.run(Request::from_parts(parts, Body::from_stream(chunks))).await
}
