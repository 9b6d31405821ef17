//! Workers and schedulers of a benchmark. On a cluster each is a process, a [`member`]. On the embedded file they are
//! instances in this process, because only one process can open the file.

use super::baseline;
use super::member::{self, MemberProfile, Role};
use super::process::{ChildProcess, MemoryUsage};
use super::test_cluster::TestNamespace;
use base::clock::Clock;
use base::config::Backend;
use base::tasks::{OnPanic, Tasks};
use engine::timer::scheduler::Scheduler;
use engine::worker::Worker;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for members to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The running members. Dropping it stops them.
pub(super) struct Workers {
    processes: Vec<ChildProcess>,
    instances: Tasks,
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.instances.stop();
    }
}

impl Workers {
    /// Starts `count` members on `namespace`. The files with their orders are written to `dir`.
    pub(super) fn start(
        namespace: &TestNamespace,
        profile: &MemberProfile,
        count: usize,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let mut workers = Self { processes: Vec::new(), instances: Tasks::new() };
        for number in 0..count {
            if namespace.settings.backend == Backend::Embedded {
                workers.instance(namespace, profile)?;
            } else {
                workers.processes.push(member::start(profile, &namespace.settings, number, dir)?);
            }
        }
        Ok(workers)
    }

    fn instance(&self, namespace: &TestNamespace, profile: &MemberProfile) -> anyhow::Result<()> {
        let (queue, store) = (Arc::clone(&namespace.queue), Arc::clone(&namespace.store));
        let (settings, stop) = (namespace.settings.clone(), self.instances.stop_token());
        match (profile.role, &namespace.file) {
            (Role::Baseline, Some(file)) => {
                let work = baseline::embedded(queue, Arc::clone(file), profile.clone(), stop);
                self.instances.spawn("floor", OnPanic::Log, work);
            }
            (Role::Scheduler, _) => {
                let scheduler = Scheduler::new(queue, store, Clock::system(), &settings);
                self.instances.spawn("scheduler", OnPanic::Log, scheduler.run(stop));
            }
            _ => {
                let worker = Worker::new(member::services(profile, &settings, queue, store)?, &settings);
                self.instances.spawn("worker", OnPanic::Log, async move { worker.run(&settings, stop).await });
            }
        }
        Ok(())
    }

    /// Stops all members and waits until their turns in flight are finished.
    pub(super) async fn end(mut self) {
        self.instances.shutdown(STOP_TIMEOUT).await;
        for process in self.processes.drain(..) {
            process.end(STOP_TIMEOUT).await;
        }
    }

    /// Process ids of the members. Instances have no process of their own, so the list is empty for them.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(ChildProcess::pid).collect()
    }

    /// Memory of the first member's process. For instances it is the memory of this process.
    pub(super) fn memory(&self) -> anyhow::Result<MemoryUsage> {
        MemoryUsage::of_process(self.processes.first().map_or_else(std::process::id, ChildProcess::pid))
    }
}
