//! Servers of a kind that hold the same data and agree on a leader.

use super::network::Network;
use crate::chaos::error::ChaosError;
use crate::chaos::process::Process;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to end when it is asked to.
const ORDERLY: Duration = Duration::from_secs(15);

/// One server.
pub(super) struct Member {
    pub(super) process: Process,
    /// Where it serves clients.
    pub(super) port: u16,
}

/// All servers of a group, with the network between them if a run may cut it.
pub(in crate::chaos) struct Members {
    pub(super) all: Vec<Member>,
    pub(super) network: Option<Arc<Network>>,
}

impl Members {
    pub(in crate::chaos) fn count(&self) -> usize {
        self.all.len()
    }

    pub(in crate::chaos) fn name(&self, member: usize) -> &str {
        self.all.get(member).map_or("nobody", |member| member.process.name())
    }

    /// SIGKILL.
    pub(in crate::chaos) async fn kill(&mut self, member: usize) {
        if let Some(member) = self.all.get_mut(member) {
            member.process.kill().await;
        }
    }

    /// SIGTERM, and SIGKILL when that takes too long.
    pub(in crate::chaos) async fn stop(&mut self, member: usize) {
        if let Some(member) = self.all.get_mut(member) {
            member.process.terminate(ORDERLY).await;
        }
    }

    /// SIGSTOP.
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

    /// Starts, resumes or connects a member again. It listens on return.
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

/// The operations that the faults need.
pub(in crate::chaos) trait Group: Send {
    fn members(&mut self) -> &mut Members;

    /// Waits for a leader. `lot` picks one of several things that can be led.
    fn leader(&self, lot: usize) -> impl Future<Output = Result<usize, ChaosError>> + Send;

    /// Has the leader hand over to another member.
    fn hand_over(&self, lot: usize) -> impl Future<Output = ()> + Send;

    /// Waits until every member takes part and is up to date.
    fn is_whole(&mut self) -> impl Future<Output = Result<(), ChaosError>> + Send;
}
