//! The process roles: open what is configured, run until a signal, drain.

use crate::open::{self, Opened};
use anyhow::Context;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use turnwheel::config::{Backend, Settings};
use turnwheel::gateway::{self, GatewayState};
use turnwheel::tasks::{OnPanic, Tasks};
use turnwheel::timer::scheduler::Scheduler;
use turnwheel::worker::Worker;

/// Which parts a process runs.
#[derive(Clone, Copy, Default)]
struct Parts {
    worker: bool,
    scheduler: bool,
    gateway: bool,
}

/// Everything in one process on the embedded backend, with the demo API and agents applied as their files change.
pub async fn dev(mut settings: Settings) -> anyhow::Result<()> {
    settings.backend = Backend::Embedded;
    // The demo API and whatever else a developer tries listen here.
    settings.http.allow_private.extend(["127.0.0.1".to_owned(), "localhost".to_owned(), "::1".to_owned()]);
    std::fs::create_dir_all(&settings.data_dir)
        .with_context(|| format!("cannot make the folder data_dir = {}", settings.data_dir.display()))?;
    let tasks = Tasks::new();
    let opened = open::backend(&settings, &tasks).await?;
    crate::watch::apply(&settings, opened.1.as_ref()).await;
    let watched = crate::watch::run(settings.clone(), Arc::clone(&opened.1), tasks.stop_token());
    tasks.spawn("agents", OnPanic::Log, watched);
    serve_demo(&tasks).await;
    let marker = DevMarker::write(&settings)?;
    let parts = Parts { worker: true, scheduler: true, gateway: true };
    let ended = run(settings, opened, parts, tasks).await;
    drop(marker);
    ended
}

/// The three roles of a cluster together.
pub async fn all(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { worker: true, scheduler: true, gateway: true }).await
}

/// Runs turns.
pub async fn worker(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { worker: true, ..Parts::default() }).await
}

/// Leads or stands by for the timers.
pub async fn scheduler(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { scheduler: true, ..Parts::default() }).await
}

/// Serves HTTP.
pub async fn gateway(settings: Settings) -> anyhow::Result<()> {
    cluster(settings, Parts { gateway: true, ..Parts::default() }).await
}

async fn cluster(settings: Settings, parts: Parts) -> anyhow::Result<()> {
    if settings.backend == Backend::Embedded {
        anyhow::bail!(
            "`backend = \"embedded\"` is one process only; start it with `turnwheel dev`, or set `backend = \"cluster\"`"
        );
    }
    let tasks = Tasks::new();
    let stop = tasks.stop_token();
    // A signal ends the wait for servers that are away.
    let opened = tokio::select! {
        opened = open::backend(&settings, &tasks) => opened?,
        () = signal() => {
            stop.cancel();
            return Ok(());
        }
    };
    run(settings, opened, parts, tasks).await
}

async fn run(settings: Settings, opened: Opened, parts: Parts, tasks: Tasks) -> anyhow::Result<()> {
    let settings = Arc::new(settings);
    let stop = CancellationToken::new();
    let roles = Tasks::child_of(&stop);
    if parts.gateway {
        start_gateway(&settings, &opened, &roles).await?;
    }
    if let (false, Some(listen)) = (parts.gateway, settings.metrics.listen) {
        start_watch(listen, &settings, &opened, &roles).await?;
    }
    if parts.scheduler {
        let scheduler = Scheduler::new(Arc::clone(&opened.0), Arc::clone(&opened.1), &settings);
        roles.spawn("scheduler", OnPanic::Shutdown, scheduler.run(roles.stop_token()));
    }
    if parts.worker {
        let worker = Worker::new(open::services(&settings, opened.clone())?, &settings);
        let (settings, stop) = (Arc::clone(&settings), roles.stop_token());
        roles.spawn("worker", OnPanic::Shutdown, async move { worker.run(&settings, stop).await });
    }
    let ended = roles.stop_token();
    tokio::select! {
        () = signal() => info!("stopping; a second signal stops at once"),
        () = ended.cancelled() => warn!("stopping, since a part of the process has failed"),
    }
    let limit = settings.worker.drain_timeout.0 + Duration::from_secs(10);
    tokio::select! {
        _ = roles.shutdown(limit) => {}
        () = signal() => warn!("stopped at once; what was in hand comes again after the ack wait"),
    }
    tasks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn start_gateway(settings: &Arc<Settings>, opened: &Opened, roles: &Tasks) -> anyhow::Result<()> {
    let listen = settings.gateway.listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on gateway.listen = {listen}; another process may use the port"))?;
    let state = GatewayState::new(Arc::clone(&opened.0), Arc::clone(&opened.1), Arc::clone(settings));
    let stop = roles.stop_token();
    info!("gateway on http://{listen}");
    roles.spawn("gateway", OnPanic::Shutdown, async move {
        if let Err(error) = gateway::serve(listener, state, stop.clone()).await {
            warn!("the gateway has ended: {error}");
            stop.cancel();
        }
    });
    Ok(())
}

/// What watches a process without a gateway asks here.
async fn start_watch(
    listen: SocketAddr,
    settings: &Arc<Settings>,
    opened: &Opened,
    roles: &Tasks,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!(
            "cannot listen on metrics.listen = {listen}; if another process uses the port, give this one its own, as in \
             `--set metrics.listen={}:0`",
            listen.ip()
        )
    })?;
    let state = GatewayState::new(Arc::clone(&opened.0), Arc::clone(&opened.1), Arc::clone(settings));
    info!("metrics on http://{}/metrics", listener.local_addr()?);
    roles.spawn("metrics", OnPanic::Log, gateway::serve_watch(listener, state, roles.stop_token()));
    Ok(())
}

async fn serve_demo(tasks: &Tasks) {
    let address = SocketAddr::from(([127, 0, 0, 1], turnwheel::demo::PORT));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return warn!("the demo API does not start on {address}: {error}"),
    };
    info!("demo API on http://{address}");
    let stop = tasks.stop_token();
    tasks.spawn("demo", OnPanic::Log, async move {
        if let Err(error) = turnwheel::demo::serve(listener, stop).await {
            warn!("the demo API has ended: {error}");
        }
    });
}

/// `<data_dir>/dev.json`: how the commands find the running `dev`.
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
        std::fs::write(&path, content.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for DevMarker {
    fn drop(&mut self) {
        // A marker that stays behind is harmless: the commands ask the gateway before they believe it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns at SIGTERM or SIGINT.
async fn signal() {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            Err(error) => {
                warn!("SIGTERM cannot be awaited: {error}");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = terminate => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
