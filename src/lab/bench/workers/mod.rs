//! Workers and schedulers of a benchmark. On a cluster each is a process of its own: this binary with `bench member`
//! and a file of orders. On the embedded file they are instances in this process, because only one process can open the
//! file.

use super::agent::{self, Paced};
use super::process::{ChildProcess, MemoryUsage};
use super::test_cluster::TestNamespace;
use super::{baseline, stream};
use anyhow::Context;
use base::clock::Clock;
use base::config::{Backend, Settings};
use base::tasks::{self, OnPanic, Tasks};
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use definitions::coordinator::DecisionLimits;
use engine::action::http::{HttpCaller, SecretFill};
use engine::authoring::Workbench;
use engine::budget::Budgets;
use engine::execution::Services;
use engine::execution::prompt_view::PlanTextCache;
use engine::execution::stored::StoredDefinitions;
use engine::knowledge::Library;
use engine::model::Models;
use engine::model::openai::OpenAi;
use engine::prompt::Prompts;
use engine::timer::scheduler::Scheduler;
use engine::worker::Worker;
use engine::workflow::Flows;
use sandbox::Sandbox;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use tokio::io::AsyncReadExt;
use types::duration::Text;

/// Time limit for members to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The part that a member plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// A worker of the engine.
    Worker,
    /// A scheduler of the engine.
    Scheduler,
    /// The floor: a worker's commands without the engine (see [`super::baseline`]).
    Baseline,
}

/// Role and load profile of a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MemberProfile {
    pub(super) role: Role,
    /// Actions of the agent's turns.
    pub(super) actions: usize,
    pub(super) model_latency: Text,
    /// All messages belong to one lane, so its turns run one after the other.
    pub(super) hot: bool,
}

/// Contents of the file that a member's process reads.
#[derive(Serialize, Deserialize)]
struct MemberFile {
    profile: MemberProfile,
    settings: Settings,
}

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
                let orders = MemberFile { profile: profile.clone(), settings: namespace.settings.clone() };
                let name = format!("{}-{:?}-{number}.json", namespace.settings.namespace, profile.role);
                workers.processes.push(process(&orders, &dir.join(name))?);
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
                let worker = Worker::new(services(profile, &settings, queue, store)?, &settings);
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

fn process(orders: &MemberFile, file: &Path) -> anyhow::Result<ChildProcess> {
    std::fs::write(file, serde_json::to_vec(orders)?)?;
    ChildProcess::own(&["bench", "member", &file.display().to_string()])
}

/// Runs a member's process until its standard input closes, which happens when the benchmark ends.
pub async fn serve(file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let MemberFile { profile, settings } = serde_json::from_slice(&text).context("cannot read the orders")?;
    let tasks = Tasks::new();
    let stop = tasks.stop_token();
    tasks.spawn("orphan", OnPanic::Shutdown, async move {
        let _ = tokio::io::stdin().read(&mut [0; 1]).await;
        stop.cancel();
    });
    let stop = tasks.stop_token();
    if profile.role == Role::Baseline {
        // On the threads of the runtime, like a worker's loop: the main thread would add a thread switch to each
        // wake-up.
        return tasks::run_as_task(async move { baseline::cluster(&settings, &profile, stop).await }).await;
    }
    let queue: Arc<dyn Queue> = Arc::new(NatsQueue::connect(&settings, stop.clone()).await?);
    let store: Arc<dyn Store> = Arc::new(MongoStore::connect(&settings, &tasks).await?);
    if profile.role == Role::Scheduler {
        Scheduler::new(queue, store, Clock::system(), &settings).run(stop).await;
    } else {
        Worker::new(services(&profile, &settings, queue, store)?, &settings).run(&settings, stop).await;
    }
    Ok(())
}

fn services(
    profile: &MemberProfile,
    settings: &Settings,
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
) -> anyhow::Result<Services> {
    let mut models = Models::offline().with("default", Arc::new(Paced { latency: profile.model_latency.0 }));
    if let Some(speaker) = settings.models.get(stream::MODEL) {
        models = models.with(stream::MODEL, Arc::new(OpenAi::new(stream::MODEL, speaker, None)?));
    }
    Ok(Services {
        knowledge: Library::new(Arc::clone(&store)),
        queue,
        definitions: Arc::new(StoredDefinitions::new(Arc::clone(&store))),
        limits: settings.workflow.clone(),
        budgets: Budgets::new(Arc::clone(&store), &settings.budget),
        keep_turns: settings.retention.turns.0,
        keeps_prompts: settings.journal.keeps_prompts(),
        decisions: DecisionLimits::new(settings, &[]).into(),
        sandbox: Arc::new(Sandbox::off()),
        connectors: Arc::default(),
        workbench: Arc::new(Workbench::of_settings(Arc::clone(&store), settings, Vec::new(), Clock::system())),
        rehearses: false,
        clock: Clock::system(),
        store,
        models,
        prompts: Prompts::new(None).into(),
        plan_texts: PlanTextCache::default(),
        http: HttpCaller::new(SecretFill::none(), &settings.http.allow_private)?,
        tools: agent::tools(profile.actions),
        flows: Flows::builtin(),
    })
}
