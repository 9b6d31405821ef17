//! Processor time of all processes in a measurement. On a shared machine it varies less than throughput does.

use super::consoles::Consoles;
use super::process::{ChildProcess, processor_time};
use super::report::{Row, rounded};
use super::test_cluster::TestCluster;
use super::workers::Workers;
use serde_json::Value;
use std::time::Duration;

/// Processor time by process group: workers, servers and load.
#[derive(Default)]
pub(super) struct Usage {
    taken: Vec<(&'static str, Duration)>,
}

impl Usage {
    /// Reads the processor time so far of the workers, of the servers and the gateway that the benchmark started, and
    /// of this process.
    pub(super) fn so_far(
        cluster: &TestCluster,
        workers: &Workers,
        consoles: Option<&Consoles>,
    ) -> anyhow::Result<Self> {
        let of = |pids: Vec<u32>| pids.into_iter().map(processor_time).sum::<anyhow::Result<Duration>>();
        let pid = |process: Option<&ChildProcess>| process.map(ChildProcess::pid).into_iter().collect();
        let servers = cluster.servers.as_ref();
        let parts: [(&'static str, Vec<u32>); 5] = [
            ("workers", workers.pids()),
            ("mongod", pid(servers.and_then(|servers| servers.mongod.as_ref()))),
            ("nats_server", pid(servers.and_then(|servers| servers.nats.as_ref()))),
            ("gateway", consoles.and_then(Consoles::pid).into_iter().collect()),
            ("load", vec![std::process::id()]),
        ];
        let known = parts.into_iter().filter(|(_, pids)| !pids.is_empty());
        let taken = known.map(|(name, pids)| Ok((name, of(pids)?))).collect::<anyhow::Result<_>>()?;
        Ok(Self { taken })
    }

    /// Adds the time used between `before` and `after`.
    pub(super) fn add(&mut self, before: &Self, after: &Self) {
        if self.taken.is_empty() {
            self.taken = after.taken.iter().map(|(name, _)| (*name, Duration::ZERO)).collect();
        }
        for ((_, sum), ((_, now), (_, then))) in self.taken.iter_mut().zip(after.taken.iter().zip(&before.taken)) {
            *sum += now.saturating_sub(*then);
        }
    }

    /// Adds the time of each group to a row as the object `name`, and the sum as `<name>_all`, in microseconds per
    /// turn.
    pub(super) fn put(&self, turns: u64, name: &str, row: &mut Row) {
        if turns == 0 {
            return;
        }
        let share = |time: Duration| rounded(time.as_micros() as f64 / turns as f64);
        row.insert(format!("{name}_all"), share(self.taken.iter().map(|(_, time)| *time).sum()));
        let parts = self.taken.iter().map(|(name, time)| ((*name).to_owned(), share(*time)));
        row.insert(name.to_owned(), Value::Object(parts.collect()));
    }
}
