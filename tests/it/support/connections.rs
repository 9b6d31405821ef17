//! Tracks the open connections of a test server. Requests of a killed process may arrive after those of its successor.
//! Once all connections are closed, every request has arrived.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The open connections, by the peer's address.
#[derive(Clone)]
pub struct Connections {
    open: watch::Sender<HashSet<SocketAddr>>,
    address: SocketAddr,
}

impl Connections {
    /// Listens on a free port.
    pub async fn listen() -> (Self, Listening) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connections = Self { open: watch::Sender::default(), address: listener.local_addr().unwrap() };
        (connections.clone(), Listening { listener, connections })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until no connection is open and everything that was sent has arrived.
    pub async fn gone(&self) {
        let mut open = self.open.subscribe();
        let last = TcpStream::connect(self.address).await.unwrap();
        let own = last.local_addr().unwrap();
        // Connections are accepted in order. `self` owns the sender, so the wait can only end with the condition.
        let _ = open.wait_for(|open| open.contains(&own)).await;
        drop(last);
        let _ = open.wait_for(HashSet::is_empty).await;
    }
}

/// The listener of a test server.
pub struct Listening {
    listener: TcpListener,
    connections: Connections,
}

impl axum::serve::Listener for Listening {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, peer) = axum::serve::Listener::accept(&mut self.listener).await;
        self.connections.open.send_modify(|open| {
            open.insert(peer);
        });
        (Connection { stream, peer, connections: self.connections.clone() }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, which counts as open until it is dropped.
pub struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    connections: Connections,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.open.send_modify(|open| {
            open.remove(&self.peer);
        });
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
