//! Servers of one kind that replicate the same data and elect a leader.

use super::network::Network;
use crate::chaos::error::ChaosError;
use crate::chaos::process::ManagedProcess;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for a server to stop after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// One server.
pub(super) struct Member {
    pub(super) process: ManagedProcess,
    /// Port for clients.
    pub(super) port: u16,
}

/// All servers of a group, and the network between them if the run can cut it.
pub(in crate::chaos) struct Members {
    pub(super) all: Vec<Member>,
    pub(super) network: Option<Arc<Network>>,
}

impl Members {
    pub(in crate::chaos) fn count(&self) -> usize {
        self.all.len()
    }

    pub(in crate::chaos) fn name(&self, member: usize) -> &str {
        self.all.get(member).map_or("unknown", |member| member.process.name())
    }

    /// Sends SIGKILL.
    pub(in crate::chaos) async fn kill(&mut self, member: usize) {
        if let Some(member) = self.all.get_mut(member) {
            member.process.kill().await;
        }
    }

    /// Sends SIGTERM, and SIGKILL after a time limit.
    pub(in crate::chaos) async fn stop(&mut self, member: usize) {
        if let Some(member) = self.all.get_mut(member) {
            member.process.terminate(STOP_TIMEOUT).await;
        }
    }

    /// Sends SIGSTOP.
    pub(in crate::chaos) fn pause(&self, member: usize) {
        if let Some(member) = self.all.get(member) {
            member.process.pause();
        }
    }

    /// Cuts the connections between this member and the others.
    pub(in crate::chaos) fn cut_off(&self, member: usize) {
        if let Some(network) = &self.network {
            network.cut_off(member);
        }
    }

    /// Restarts, resumes or reconnects a member. On return it listens on its port.
    pub(in crate::chaos) async fn go_on(&mut self, member: usize) -> Result<(), ChaosError> {
        if let Some(network) = &self.network {
            network.heal();
        }
        let Some(found) = self.all.get_mut(member) else { return Ok(()) };
        let started = found.process.go_on().map(|()| found.process.pid());
        if let Some(network) = &self.network {
            network.runs(member, started?);
        }
        found.process.listens(found.port).await
    }
}

/// Operations that the faults need from a group of servers.
pub(in crate::chaos) trait ServerGroup: Send {
    fn members(&mut self) -> &mut Members;

    /// Waits for a leader and returns its index. `lot` picks one if the group has several leaders, such as one for each
    /// stream.
    fn leader(&self, lot: usize) -> impl Future<Output = Result<usize, ChaosError>> + Send;

    /// Makes the leader step down.
    fn hand_over(&self, lot: usize) -> impl Future<Output = ()> + Send;

    /// Waits until every member is available and up to date.
    fn is_whole(&mut self) -> impl Future<Output = Result<(), ChaosError>> + Send;
}
