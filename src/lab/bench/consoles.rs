//! Open consoles of a benchmark: readers of the events of all sessions, which a gateway in a process of its own serves.

use super::member::{self, MemberProfile, Role};
use super::process::ChildProcess;
use super::test_cluster::TestNamespace;
use anyhow::Context;
use base::config::Backend;
use base::http_client;
use base::tasks::{OnPanic, Tasks};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Time limit for the gateway to accept readers.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// The readers and their gateway. Dropping it stops both.
pub(super) struct Consoles {
    gateway: Option<ChildProcess>,
    tasks: Tasks,
    received: Arc<AtomicU64>,
}

impl Drop for Consoles {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl Consoles {
    /// Starts a gateway on the namespace and opens `count` readers. On the embedded file the gateway is in this
    /// process.
    pub(super) async fn open(
        namespace: &TestNamespace,
        profile: &MemberProfile,
        count: usize,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let mut consoles = Self { gateway: None, tasks: Tasks::new(), received: Arc::default() };
        if count == 0 {
            return Ok(consoles);
        }
        let mut settings = namespace.settings.clone();
        // A port that was free a moment ago.
        settings.gateway.listen = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let url = format!("http://{}/api/v1/events", settings.gateway.listen);
        if settings.backend == Backend::Embedded {
            let (queue, store) = (Arc::clone(&namespace.queue), Arc::clone(&namespace.store));
            let served = member::gateway(queue, store, settings, consoles.tasks.stop_token());
            consoles.tasks.spawn("gateway", OnPanic::Log, async move {
                let _ = served.await;
            });
        } else {
            let profile = MemberProfile { role: Role::Gateway, ..profile.clone() };
            consoles.gateway = Some(member::start(&profile, &settings, 0, dir)?);
        }
        for _ in 0..count {
            let response = connect(&url).await?;
            let read = follow(response, Arc::clone(&consoles.received), consoles.tasks.stop_token());
            consoles.tasks.spawn("console", OnPanic::Log, read);
        }
        Ok(consoles)
    }

    /// Process id of the gateway, if it has a process of its own.
    pub(super) fn pid(&self) -> Option<u32> {
        self.gateway.as_ref().map(ChildProcess::pid)
    }

    /// Bytes that all consoles together have received so far.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Opens a reader, as soon as the gateway accepts it.
async fn connect(url: &str) -> anyhow::Result<reqwest::Response> {
    let client = http_client::builder().no_proxy().build()?;
    let until = Instant::now() + READY_TIMEOUT;
    loop {
        match client.get(url).send().await.and_then(reqwest::Response::error_for_status) {
            Ok(response) => return Ok(response),
            Err(error) if Instant::now() > until => return Err(error).context("the gateway accepts no reader"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn follow(mut response: reqwest::Response, received: Arc<AtomicU64>, stop: CancellationToken) {
    let read = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    };
    stop.run_until_cancelled(read).await;
}
