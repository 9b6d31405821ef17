//! The network between the members of a group of servers: a TCP proxy in front of each member. It allows a run to cut a
//! member off from the others without special rights on the machine.
//!
//! Clients may connect through the same proxies; a cut does not affect them. The proxy finds the process of a
//! connection in `/proc`, so a cut needs Linux. A cut holds back all bytes and closes no connection, like a network
//! that loses packets.

use crate::chaos::error::ChaosError;
use base::tasks::{OnPanic, Tasks};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Maximum of bytes that a proxy reads at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// The proxies of one group, and the member that is cut off.
pub(in crate::chaos) struct Network {
    /// Process id of each member; 0 if it does not run.
    pids: Vec<AtomicU32>,
    cut: watch::Sender<Option<usize>>,
    tasks: Tasks,
}

/// A connection to a member. `from` is `None` for a client.
#[derive(Clone, Copy)]
struct Link {
    from: Option<usize>,
    to: usize,
}

impl Link {
    fn is_cut(self, cut: Option<usize>) -> bool {
        self.from.is_some() && cut.is_some_and(|member| self.from == Some(member) || self.to == member)
    }
}

impl Network {
    pub(super) fn new(members: usize, tasks: &Tasks) -> Arc<Self> {
        let pids = std::iter::repeat_with(AtomicU32::default).take(members).collect();
        Arc::new(Self { pids, cut: watch::Sender::new(None), tasks: Tasks::child_of(&tasks.stop_token()) })
    }

    /// Whether this machine shows which process owns a connection.
    pub(in crate::chaos) fn can_cut() -> bool {
        Path::new("/proc/self/net/tcp").exists()
    }

    /// Records the process id of a member.
    pub(super) fn runs(&self, member: usize, pid: Option<u32>) {
        if let Some(known) = self.pids.get(member) {
            known.store(pid.unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// Cuts a member off from the others until [`Network::heal`].
    pub(super) fn cut_off(&self, member: usize) {
        self.cut.send_replace(Some(member));
    }

    /// Ends the cut. The proxies deliver the held bytes.
    pub(super) fn heal(&self) {
        self.cut.send_replace(None);
    }

    /// Starts a proxy for the member that listens on `target`. Returns the proxy's port.
    pub(super) async fn listen(self: &Arc<Self>, to: usize, target: u16) -> Result<u16, ChaosError> {
        let failed = |error| ChaosError::failed("cannot start a proxy between servers", error);
        let port = crate::port::free_port()?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(failed)?;
        let (network, stop) = (Arc::clone(self), self.tasks.stop_token());
        let accept = async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let way = Link { from: network.member_at(peer.port(), port), to };
                let (carrier, stop) = (Arc::clone(&network), network.tasks.stop_token());
                network.tasks.spawn("connection between servers", OnPanic::Log, async move {
                    tokio::select! {
                        () = carrier.carry(stream, target, way) => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
        };
        self.tasks.spawn("proxy between servers", OnPanic::Log, async move {
            tokio::select! {
                () = accept => {}
                () = stop.cancelled() => {}
            }
        });
        Ok(port)
    }

    /// Carries bytes in both directions until one side closes.
    async fn carry(&self, mut from: TcpStream, target: u16, way: Link) {
        self.passes(way).await;
        let Ok(mut to) = TcpStream::connect(("127.0.0.1", target)).await else { return };
        let _ = (from.set_nodelay(true), to.set_nodelay(true));
        let ((mut from_read, mut from_write), (mut to_read, mut to_write)) = (from.split(), to.split());
        tokio::select! {
            () = self.copy(&mut from_read, &mut to_write, way) => {}
            () = self.copy(&mut to_read, &mut from_write, way) => {}
        }
    }

    async fn copy(&self, from: &mut (impl AsyncReadExt + Unpin), to: &mut (impl AsyncWriteExt + Unpin), way: Link) {
        let mut piece = vec![0; CHUNK_BYTES];
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            self.passes(way).await;
            if to.write_all(&piece[..read]).await.is_err() {
                return;
            }
        }
        self.passes(way).await;
    }

    /// Waits until this connection is not cut.
    async fn passes(&self, way: Link) {
        if way.from.is_some() {
            // `self` owns the sender, so the wait can only end with the condition.
            let _ = self.cut.subscribe().wait_for(|cut| !way.is_cut(*cut)).await;
        }
    }

    /// The member whose process owns the socket on `port` that is connected to `listener`.
    fn member_at(&self, port: u16, listener: u16) -> Option<usize> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
        let inode = inode(&table, port, listener)?;
        let socket = format!("socket:[{inode}]");
        self.pids.iter().position(|pid| owns(pid.load(Ordering::SeqCst), &socket))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// The inode of the socket with these local and remote ports, from the text of `/proc/net/tcp`.
fn inode(table: &str, local: u16, remote: u16) -> Option<&str> {
    let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let fits = fields.get(1)?.ends_with(&local) && fields.get(2)?.ends_with(&remote);
        if fits { fields.get(9).copied() } else { None }
    })
}

fn owns(pid: u32, socket: &str) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    pid != 0 && open.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|link| link.as_os_str() == socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn a_socket_is_found_by_its_ports() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:4E20 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 111 1 0\n\
             1: 0100007F:9C40 0100007F:4E20 01 00000000:00000000 00:00000000 00000000  1000        0 222 1 0\n";
        assert_eq!((inode(table, 40_000, 20_000), inode(table, 20_000, 40_000)), (Some("222"), Some("111")));
        assert_eq!(inode(table, 1, 2), None);
    }

    #[tokio::test]
    async fn a_cut_holds_bytes_between_members_back_and_lets_clients_through() {
        if !Network::can_cut() {
            return;
        }
        let (tasks, server) = (Tasks::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let target = server.local_addr().unwrap().port();
        let network = Network::new(2, &tasks);
        // This process first counts as member 1, then as a client.
        network.runs(1, Some(std::process::id()));
        let port = network.listen(0, target).await.unwrap();
        let mut member = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut of_member, _) = server.accept().await.unwrap();
        network.runs(1, None);
        let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut of_client, _) = server.accept().await.unwrap();

        network.cut_off(1);
        member.write_all(b"held").await.unwrap();
        client.write_all(b"free").await.unwrap();
        let mut got = [0; 4];
        of_client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"free");
        let held = timeout(Duration::from_millis(100), of_member.read(&mut got)).await;
        assert!(held.is_err(), "no bytes arrive while the member is cut off");
        network.heal();
        of_member.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"held");
        tasks.stop();
    }
}
