//! The HTTP server with its [`Limits`]. `axum::serve` bounds neither the time for a request's headers nor the number of
//! connections.

use super::addresses::{AddressSlot, Addresses};
use super::failures::Peer;
use super::{GatewayState, Limits, router, watch_router};
use axum::Router;
use base::tasks::{OnPanic, Tasks};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// How long open requests may take after `stop`.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Interval of the log line about a lack of connections.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a failed accept, for example if no file descriptors remain.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Serves the gateway until `stop`. Then event streams end immediately, and other open requests get a few seconds.
///
/// Returns an error if the settings have no tokens and the listener's address is not a loopback address.
pub async fn serve(listener: TcpListener, state: GatewayState, stop: CancellationToken) -> io::Result<()> {
    let address = listener.local_addr()?;
    if !address.ip().to_canonical().is_loopback() && state.tokens.is_empty() {
        return Err(io::Error::other(format!(
            "gateway.tokens: neither these nor gateway.access are set, so gateway.listen = {address} would be open to \
             everyone; set tokens, or listen on 127.0.0.1"
        )));
    }
    let state = GatewayState { stop: stop.clone(), ..state };
    let limits = state.limits;
    serve_routes(listener, router(state), limits, stop).await;
    Ok(())
}

/// Serves `/healthz`, `/readyz` and `/metrics` until `stop`, without a token: for processes without a gateway.
pub async fn serve_watch(listener: TcpListener, state: GatewayState, stop: CancellationToken) {
    let limits = state.limits;
    serve_routes(listener, watch_router(state), limits, stop).await;
}

async fn serve_routes(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    // Closes all connections immediately.
    let (connections, closing) = (Tasks::new(), CancellationToken::new());
    let mut intake = Intake::new(listener, limits, stop.clone());
    while let Some((stream, peer, slots)) = intake.next().await {
        let served = serve_one((stream, peer), router.clone(), limits, slots, stop.clone());
        let cut = closing.clone();
        connections.spawn("connection", OnPanic::Log, async move {
            tokio::select! {
                () = served => {}
                () = cut.cancelled() => {}
            }
        });
    }
    drop(intake);
    connections.shutdown(SHUTDOWN_GRACE).await;
    // A client that does not read its response must not keep the process alive.
    closing.cancel();
}

/// The permits of an open connection. Dropping them frees its slot.
pub(super) type Slots = (OwnedSemaphorePermit, AddressSlot);

/// A listener that accepts connections within the limits.
pub(super) struct Intake {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    addresses: Addresses,
    limits: Limits,
    stop: CancellationToken,
    warned: Option<Instant>,
}

impl Intake {
    pub(super) fn new(listener: TcpListener, limits: Limits, stop: CancellationToken) -> Self {
        let slots = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        Self { listener, slots, addresses: Addresses::default(), limits, stop, warned: None }
    }

    /// Returns the next connection, as soon as a slot is free; `None` after `stop`. Further connections wait in the
    /// kernel's listen queue.
    pub(super) async fn next(&mut self) -> Option<(TcpStream, IpAddr, Slots)> {
        let stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                accepted = async {
                    let slot = self.slot().await;
                    (self.listener.accept().await, slot)
                } => accepted,
            };
            match accepted {
                (Ok((stream, peer)), slot) => {
                    let peer = peer.ip();
                    match self.addresses.take(peer, self.limits.connections_per_address) {
                        Some(of_address) => return Some((stream, peer, (slot?, of_address))),
                        None => debug!("closing a connection of {peer}: it has too many"),
                    }
                }
                (Err(error), _) if is_of_the_peer(&error) => {}
                (Err(error), _) => {
                    warn!("cannot accept a connection, retrying: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn slot(&mut self) -> Option<OwnedSemaphorePermit> {
        let is_recent = self.warned.is_some_and(|warned| warned.elapsed() <= WARN_INTERVAL);
        if self.slots.available_permits() == 0 && !is_recent {
            self.warned = Some(Instant::now());
            warn!(
                "all {} connections are in use (`gateway.max_connections`); new ones wait until one closes",
                self.limits.connections
            );
        }
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }
}

/// True for errors of a single connection, after which the next accept may succeed.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve_one(
    (stream, peer): (TcpStream, IpAddr),
    router: Router,
    limits: Limits,
    slots: Slots,
    stop: CancellationToken,
) {
    // Events are small and must not wait for further data (Nagle's algorithm).
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_time);
    http.max_header_size(limits.head_bytes).max_buf_size(limits.head_bytes);
    // A client that does not read would keep its connection and its waiting events for ever.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_time));
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        routes.call(request)
    });
    let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(problem) = ended {
        debug!("connection ended: {problem}");
    }
    drop(slots);
}
