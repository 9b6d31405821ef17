//! Processor time of everyone who takes part in a measurement: on a machine that is shared with others it drifts less than
//! turns a second.

use super::crew::Crew;
use super::process::{Process, processor_time};
use super::report::{Row, rounded};
use super::site::Site;
use serde_json::Value;
use std::time::Duration;

/// Processor time by the name of whoever took it.
#[derive(Default)]
pub(super) struct Usage {
    taken: Vec<(&'static str, Duration)>,
}

impl Usage {
    /// What was taken so far by the crew, by servers of the benchmark's own and by the benchmark itself.
    pub(super) fn so_far(site: &Site, crew: &Crew) -> anyhow::Result<Self> {
        let of = |pids: Vec<u32>| pids.into_iter().map(processor_time).sum::<anyhow::Result<Duration>>();
        let pid = |process: Option<&Process>| process.map(Process::pid).into_iter().collect();
        let servers = site.servers.as_ref();
        let parts: [(&'static str, Vec<u32>); 4] = [
            ("workers", crew.pids()),
            ("mongod", pid(servers.and_then(|servers| servers.mongod.as_ref()))),
            ("nats_server", pid(servers.and_then(|servers| servers.nats.as_ref()))),
            ("load", vec![std::process::id()]),
        ];
        let known = parts.into_iter().filter(|(_, pids)| !pids.is_empty());
        let taken = known.map(|(name, pids)| Ok((name, of(pids)?))).collect::<anyhow::Result<_>>()?;
        Ok(Self { taken })
    }

    /// Adds what was taken from `before` to `after`.
    pub(super) fn add(&mut self, before: &Self, after: &Self) {
        if self.taken.is_empty() {
            self.taken = after.taken.iter().map(|(name, _)| (*name, Duration::ZERO)).collect();
        }
        for ((_, sum), ((_, now), (_, then))) in self.taken.iter_mut().zip(after.taken.iter().zip(&before.taken)) {
            *sum += now.saturating_sub(*then);
        }
    }

    /// Puts what each took into a row under `name`, and all together beside it, in microseconds for each of `turns`.
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
