//! One accepted connection.

use std::any::Any;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// A connection that its owner has accepted.
pub struct Accepted {
    /// The connection.
    pub stream: TcpStream,
    /// The address of the client.
    pub peer: IpAddr,
    /// Dropped when the connection is closed, such as permits.
    pub held: Box<dyn Any + Send + Sync>,
}

/// The address of the client, in a request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// A connection that can be cut, because the transport waits for its clients.
pub(super) struct Connection {
    stream: TcpStream,
    peer: IpAddr,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _held: Box<dyn Any + Send + Sync>,
}

impl Connection {
    pub(super) fn new(accepted: Accepted, cut: CancellationToken) -> Self {
        let Accepted { stream, peer, held } = accepted;
        // Responses are small and must not wait for further data (Nagle's algorithm).
        let _ = stream.set_nodelay(true);
        Self { stream, peer, cut: Box::pin(cut.cancelled_owned()), _held: held }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer(self.peer)
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server has stopped")));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
