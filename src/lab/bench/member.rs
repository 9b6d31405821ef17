//! The members of a benchmark: workers, schedulers, gateways, and the floor in place of workers. On a cluster each is a
//! process: this binary with `bench member` and a file of orders.

use super::agent::{self, Paced};
use super::process::ChildProcess;
use super::{baseline, stream};
use anyhow::Context;
use base::clock::Clock;
use base::config::Settings;
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
use gateway::GatewayState;
use sandbox::Sandbox;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use storage::queue::Queue;
use storage::store::Store;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use types::duration::Text;

/// The part that a member plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// A worker of the engine.
    Worker,
    /// A scheduler of the engine.
    Scheduler,
    /// A gateway, for [`super::consoles`].
    Gateway,
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

/// Starts a member as a process. The file with its orders is written to `dir`.
pub(super) fn start(
    profile: &MemberProfile,
    settings: &Settings,
    number: usize,
    dir: &Path,
) -> anyhow::Result<ChildProcess> {
    let file = dir.join(format!("{}-{:?}-{number}.json", settings.namespace, profile.role));
    let orders = MemberFile { profile: profile.clone(), settings: settings.clone() };
    std::fs::write(&file, serde_json::to_vec(&orders)?)?;
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
    match profile.role {
        Role::Scheduler => Scheduler::new(queue, store, Clock::system(), &settings).run(stop).await,
        Role::Gateway => gateway(queue, store, settings, stop).await?,
        Role::Worker | Role::Baseline => {
            Worker::new(services(&profile, &settings, queue, store)?, &settings).run(&settings, stop).await;
        }
    }
    Ok(())
}

/// Serves HTTP on `gateway.listen` until `stop`.
pub(super) async fn gateway(
    queue: Arc<dyn Queue>,
    store: Arc<dyn Store>,
    settings: Settings,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(settings.gateway.listen).await?;
    Ok(gateway::serve(listener, GatewayState::new(queue, store, Arc::new(settings)), stop).await?)
}

/// The dependencies of a member's turns.
pub(super) fn services(
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
