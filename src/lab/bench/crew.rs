//! Workers and schedulers of a benchmark. On a cluster each is a process of its own: this binary with `bench member`
//! and a file of orders. On the embedded file they are instances in this process, because only one process can open the
//! file.

use super::agent::{self, Paced};
use super::process::{Memory, Process};
use super::site::Ground;
use super::{floor, stream};
use anyhow::Context;
use base::clock::Clock;
use base::config::{Backend, Settings};
use base::tasks::{self, OnPanic, Tasks};
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use engine::action::http::{HttpCaller, SecretFill};
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
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use tokio::io::AsyncReadExt;
use types::duration::Text;

/// Time limit for members to stop.
const END: Duration = Duration::from_secs(10);

/// The part that a member of the crew plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// A worker of the engine.
    Worker,
    /// A scheduler of the engine.
    Scheduler,
    /// The floor: a worker's commands without the engine (see [`super::floor`]).
    Floor,
}

/// Role and load profile of a crew member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Duty {
    pub(super) role: Role,
    /// Actions of the agent's turns.
    pub(super) actions: usize,
    pub(super) model_latency: Text,
    /// All messages belong to one lane, so its turns run one after the other.
    pub(super) hot: bool,
}

/// Contents of the file that a member's process reads.
#[derive(Serialize, Deserialize)]
struct Orders {
    duty: Duty,
    settings: Settings,
}

/// The running members. Dropping it stops them.
pub(super) struct Crew {
    processes: Vec<Process>,
    instances: Tasks,
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.instances.stop();
    }
}

impl Crew {
    /// Starts `count` members on `ground`. The files with their orders are written to `dir`.
    pub(super) fn start(ground: &Ground, duty: &Duty, count: usize, dir: &Path) -> anyhow::Result<Self> {
        let mut crew = Self { processes: Vec::new(), instances: Tasks::new() };
        for number in 0..count {
            if ground.settings.backend == Backend::Embedded {
                crew.instance(ground, duty)?;
            } else {
                let orders = Orders { duty: duty.clone(), settings: ground.settings.clone() };
                let name = format!("{}-{:?}-{number}.json", ground.settings.namespace, duty.role);
                crew.processes.push(process(&orders, &dir.join(name))?);
            }
        }
        Ok(crew)
    }

    fn instance(&self, ground: &Ground, duty: &Duty) -> anyhow::Result<()> {
        let (queue, store) = (Arc::clone(&ground.queue), Arc::clone(&ground.store));
        let (settings, stop) = (ground.settings.clone(), self.instances.stop_token());
        match (duty.role, &ground.file) {
            (Role::Floor, Some(file)) => {
                let work = floor::embedded(queue, Arc::clone(file), duty.clone(), stop);
                self.instances.spawn("floor", OnPanic::Log, work);
            }
            (Role::Scheduler, _) => {
                let scheduler = Scheduler::new(queue, store, Clock::system(), &settings);
                self.instances.spawn("scheduler", OnPanic::Log, scheduler.run(stop));
            }
            _ => {
                let worker = Worker::new(services(duty, &settings, queue, store)?, &settings);
                self.instances.spawn("worker", OnPanic::Log, async move { worker.run(&settings, stop).await });
            }
        }
        Ok(())
    }

    /// Stops all members and waits until their turns in flight are finished.
    pub(super) async fn end(mut self) {
        self.instances.shutdown(END).await;
        for process in self.processes.drain(..) {
            process.end(END).await;
        }
    }

    /// Process ids of the members. Instances have no process of their own, so the list is empty for them.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// Memory of the first member's process. For instances it is the memory of this process.
    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        Memory::of(self.processes.first().map_or_else(std::process::id, Process::pid))
    }
}

fn process(orders: &Orders, file: &Path) -> anyhow::Result<Process> {
    std::fs::write(file, serde_json::to_vec(orders)?)?;
    Process::own(&["bench", "member", &file.display().to_string()])
}

/// Runs a member's process until its standard input closes, which happens when the benchmark ends.
pub async fn serve(file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let Orders { duty, settings } = serde_json::from_slice(&text).context("cannot read the orders")?;
    let tasks = Tasks::new();
    let stop = tasks.stop_token();
    tasks.spawn("orphan", OnPanic::Shutdown, async move {
        let _ = tokio::io::stdin().read(&mut [0; 1]).await;
        stop.cancel();
    });
    let stop = tasks.stop_token();
    if duty.role == Role::Floor {
        // On the threads of the runtime, like a worker's loop: the main thread would add a thread switch to each
        // wake-up.
        return tasks::apart(async move { floor::cluster(&settings, &duty, stop).await }).await;
    }
    let queue: Arc<dyn Queue> = Arc::new(NatsQueue::connect(&settings, stop.clone()).await?);
    let store: Arc<dyn Store> = Arc::new(MongoStore::connect(&settings, &tasks).await?);
    if duty.role == Role::Scheduler {
        Scheduler::new(queue, store, Clock::system(), &settings).run(stop).await;
    } else {
        Worker::new(services(&duty, &settings, queue, store)?, &settings).run(&settings, stop).await;
    }
    Ok(())
}

fn services(
    duty: &Duty,
    settings: &Settings,
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
) -> anyhow::Result<Services> {
    let mut models = Models::offline().with("default", Arc::new(Paced { latency: duty.model_latency.0 }));
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
        clock: Clock::system(),
        store,
        models,
        prompts: Prompts::new(None),
        plan_texts: PlanTextCache::default(),
        http: HttpCaller::new(SecretFill::none(), &settings.http.allow_private)?,
        tools: agent::tools(duty.actions),
        flows: Flows::builtin(),
    })
}
