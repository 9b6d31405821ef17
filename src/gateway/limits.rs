//! Limits of one gateway, so that no client can use it up for others: connections, event streams, the size of a
//! request's headers, and the time for headers and body.

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

/// The limits of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections (`gateway.max_connections`); more wait until one closes.
    pub connections: usize,
    /// Open connections of one address (`gateway.max_connections_per_address`); further ones are closed. 0 is no limit.
    pub connections_per_address: usize,
    /// Open event streams (`gateway.max_streams`); more get 503.
    pub streams: usize,
    /// Events of all sessions that are kept for readers that fall behind, and their bytes.
    pub events_kept: usize,
    /// Bytes of these events.
    pub event_bytes_kept: usize,
    /// Bytes of a request line with its headers; longer ones get 431. At least 8 KiB.
    pub head_bytes: usize,
    /// Time from the opening of a connection, or from the previous response, until a request's headers are complete.
    /// Then the gateway closes the connection.
    pub head_time: Duration,
    /// Time from a request's headers until its body is complete. Then the request gets 408.
    pub body_time: Duration,
    /// Time in which a client has to take some of its response. Then the gateway closes the connection.
    pub write_time: Duration,
}

impl Limits {
    /// Takes the configurable limits from the settings; the others are fixed.
    pub fn new(settings: &Settings) -> Self {
        Self {
            connections: settings.gateway.max_connections,
            connections_per_address: settings.gateway.max_connections_per_address,
            streams: settings.gateway.max_streams,
            events_kept: 4_096,
            event_bytes_kept: 16 * 1024 * 1024,
            head_bytes: 64 * 1024,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(60),
            write_time: Duration::from_secs(60),
        }
    }
}

/// Permits for event streams. Cheap to clone.
#[derive(Clone)]
pub(super) struct StreamSlots(Arc<Semaphore>);

impl StreamSlots {
    pub(super) fn new(limits: &Limits) -> Self {
        Self(Arc::new(Semaphore::new(limits.streams.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes a permit for one more stream; 503 if all are taken.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, Reject> {
        let refused = |_| {
            let hint = "close unused event streams, raise `gateway.max_streams`, or start another gateway";
            Reject::unavailable(
                "too_many_streams",
                "all event streams of this gateway (`gateway.max_streams`) are in use",
                hint,
            )
        };
        Arc::clone(&self.0).try_acquire_owned().map_err(refused)
    }
}

/// The time for a request's body ran out.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the body was not complete within {}", types::duration::format(*.0))]
pub(super) struct TooSlow(Duration);

impl TooSlow {
    /// Finds this error among the sources of `error`.
    pub(super) fn find_in(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref()).copied()
    }
}

/// Middleware: bounds the total time for a request's body, so that a client cannot extend it by sending slowly.
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
