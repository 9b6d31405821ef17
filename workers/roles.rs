//! The roles of a process: opens the configured backend, runs until a signal, then drains.

use crate::signals::Signals;
use anyhow::Context;
use base::config::rights::write_private;
use base::config::{Backend, PromptKeeping, Settings};
use base::tasks::{OnPanic, Tasks};
use lab::demo;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use turnwheel::Engine;

/// How long the other tasks of the process may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The roles that a process runs.
#[derive(Clone, Copy, Default)]
struct Parts {
    worker: bool,
    scheduler: bool,
    gateway: bool,
}

/// Runs everything in one process on the embedded backend, with the demo API; applies agent files when they change.
pub async fn dev(mut settings: Settings) -> anyhow::Result<()> {
    settings.backend = Backend::Embedded;
    settings.journal.prompts.get_or_insert(PromptKeeping::Full);
    // The demo API, and other servers of a developer, listen on this machine.
    settings.http.allow_private.extend(["127.0.0.1".to_owned(), "localhost".to_owned(), "::1".to_owned()]);
    base::config::rights::create_folder(&settings.data_dir)
        .with_context(|| format!("cannot create the folder data_dir = {}", settings.data_dir.display()))?;
    let mut signals = Signals::listen()?;
    let engine = Engine::builder(settings).open().await?;
    let (settings, store, tasks) = (engine.settings().as_ref(), engine.store(), Tasks::new());
    let agents = crate::watch::apply(settings, store.as_ref()).await;
    let first = first_chat_agent(&agents);
    let files = engine.write_files();
    let watched = crate::watch::keep(settings.clone(), Arc::clone(store), files, agents, tasks.stop_token());
    tasks.spawn("agents", OnPanic::Log, watched);
    let demo = serve_demo(&tasks).await;
    let marker = DevMarker::write(settings)?;
    let parts = Parts { worker: true, scheduler: true, gateway: true };
    greet(settings, demo, first.as_deref());
    let ended = run(&engine, parts, &mut signals).await;
    drop(marker);
    tasks.shutdown(STOP_TIMEOUT).await;
    ended
}

/// Runs worker, scheduler and gateway of a cluster in one process.
pub async fn all(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { worker: true, scheduler: true, gateway: true }).await
}

/// Runs a worker.
pub async fn worker(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { worker: true, ..Parts::default() }).await
}

/// Runs a scheduler.
pub async fn scheduler(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { scheduler: true, ..Parts::default() }).await
}

/// Runs a gateway.
pub async fn gateway(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { gateway: true, ..Parts::default() }).await
}

async fn cluster(settings: Settings, parts: Parts) -> anyhow::Result<()> {
    if settings.backend == Backend::Embedded {
        anyhow::bail!(
            "`backend = \"embedded\"` allows only one process; start it with `turnwheel dev`, or set \
             `backend = \"cluster\"`"
        );
    }
    let mut signals = Signals::listen()?;
    // A signal ends the wait for unreachable servers.
    let engine = tokio::select! {
        engine = Box::pin(Engine::builder(settings).open()) => engine?,
        () = signals.next() => return Ok(()),
    };
    if parts.worker || parts.gateway {
        engine.register_folder().await;
    }
    Box::pin(run(&engine, parts, &mut signals)).await
}

/// Runs the roles until a signal, or until one of them fails.
async fn run(engine: &Engine, parts: Parts, signals: &mut Signals) -> anyhow::Result<()> {
    if parts.gateway {
        engine.start_gateway().await?;
        engine.start_grpc().await?;
    }
    if let Some(listen) = engine.settings().metrics.listen {
        engine.start_watch(listen).await?;
    }
    if parts.scheduler {
        engine.start_scheduler();
    }
    if parts.worker {
        engine.start_worker()?;
    }
    tokio::select! {
        () = signals.next() => info!("stopping; a second signal stops immediately"),
        () = engine.stopping() => warn!("stopping because a part of the process failed"),
    }
    // Without its backend no turn can commit. Another process continues the turns, or this one after a restart.
    if !engine.is_broken() {
        tokio::select! {
            _ = engine.stop() => {}
            () = signals.next() => warn!("forced shutdown; running turns will be redelivered after the ack wait"),
        }
    }
    engine.failure().map_or(Ok(()), |problem| Err(anyhow::anyhow!(problem)))
}

/// Runs only the demo API.
pub async fn demo(listen: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}; choose another address with --listen"))?;
    crate::table::print(format!("demo API on http://{}", listener.local_addr()?));
    let (stop, mut signals) = (CancellationToken::new(), Signals::listen()?);
    let mut served = pin!(demo::serve(listener, stop.clone()));
    tokio::select! {
        ended = &mut served => return ended.context("the demo API failed"),
        () = signals.next() => stop.cancel(),
    }
    // A client that keeps its connection open must not keep the process alive.
    let _ = tokio::time::timeout(STOP_TIMEOUT, served).await;
    Ok(())
}

/// Prints where `dev` serves what, and the next commands to try.
fn greet(settings: &Settings, demo: Option<SocketAddr>, agent: Option<&str>) {
    let demo = demo.map_or_else(|| "not started".to_owned(), |address| format!("http://{address}"));
    let (agents, data) = (settings.agents_dir.display(), settings.data_dir.display());
    eprintln!("Turnwheel {}: the whole engine in this process; Ctrl-C stops it", env!("CARGO_PKG_VERSION"));
    eprintln!("  gateway   http://{}   (API: /openapi.json)", settings.gateway.listen);
    eprintln!("  console   http://{}/console/", settings.gateway.listen);
    eprintln!("  demo API  {demo}   (its calls: /log)");
    eprintln!("  files     agents in {agents}, applied when you save them; data in {data}");
    let next = match agent {
        Some(agent) => {
            format!("turnwheel chat --agent {agent}   in a second terminal; turnwheel agents list shows all agents")
        }
        None => "turnwheel init   writes a first agent; there is none yet".to_owned(),
    };
    eprintln!("  try       {next}");
}

/// The agent that the greeting names: the sample agent `sales`, else the first one that takes chats.
fn first_chat_agent(agents: &crate::watch::Watched) -> Option<String> {
    let mut chats = agents.iter().map(|(_, agent)| agent).filter(|agent| !agent.is_task_agent());
    let first = chats.clone().find(|agent| agent.id == "sales").or_else(|| chats.next());
    first.map(|agent| agent.id.clone())
}

/// Returns its address; `None` if it could not be started.
async fn serve_demo(tasks: &Tasks) -> Option<SocketAddr> {
    let address = SocketAddr::from(([127, 0, 0, 1], demo::PORT));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            warn!(
                "cannot start the demo API on {address}: {error}; stop the other process on this port, or ignore this"
            );
            return None;
        }
    };
    info!("demo API on http://{address}");
    let stop = tasks.stop_token();
    tasks.spawn("demo", OnPanic::Log, async move {
        if let Err(error) = demo::serve(listener, stop).await {
            warn!("the demo API failed: {error}");
        }
    });
    Some(address)
}

/// The file `<data_dir>/dev.json`, by which other commands find the running `dev`.
struct DevMarker {
    path: PathBuf,
}

impl DevMarker {
    fn write(settings: &Settings) -> anyhow::Result<Self> {
        let path = settings.data_dir.join("dev.json");
        let content = serde_json::json!({
            "gateway": format!("http://{}", settings.gateway.listen),
            "pid": std::process::id(),
        });
        write_private(&path, &content.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for DevMarker {
    fn drop(&mut self) {
        // A marker that remains is harmless: commands check that the gateway responds.
        let _ = std::fs::remove_file(&self.path);
    }
}
