//! Where measurements are made: the servers of one command, and a namespace of its own for each measurement.

use super::conditions::Conditions;
use super::options::SiteOptions;
use super::replies::{self, Seen, Tapped};
use super::servers::Servers;
use super::{Problem, Progress};
use anyhow::Context;
use base::config::{self, Backend, Environment, Settings};
use base::tasks::Tasks;
use bson::doc;
use cluster::mongo::MongoStore;
use cluster::mongo::connect::client;
use cluster::nats::{self, NatsQueue};
use embedded::queue::EmbeddedQueue;
use embedded::store::{EmbeddedFile, EmbeddedStore};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use storage::queue::Queue;
use storage::store::Store;
use tempfile::TempDir;
use tokio::sync::mpsc;

/// Messages that may wait in one session: a benchmark floods one on purpose.
const LANE_DEPTH: u64 = 100_000;

/// The servers of one command, or a folder for embedded files.
pub(super) struct Site {
    pub(super) conditions: Conditions,
    pub(super) servers: Option<Servers>,
    settings: Settings,
    grounds: AtomicU32,
    /// Dropped last: the servers write into it.
    dir: TempDir,
}

impl Site {
    /// Starts the servers that are wanted.
    pub(super) async fn prepare(
        options: &SiteOptions,
        settings: &Settings,
        env: &Environment,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let dir = tempfile::Builder::new().prefix("turnwheel-bench-").tempdir_in(&parent);
        let dir = dir.map_err(|error| {
            Problem::new(
                format!("cannot make a folder in {}: {error}", parent.display()),
                "name another one with --dir",
            )
        })?;
        let servers = match options.backend {
            Backend::Embedded if options.nats.is_some() || options.mongodb.is_some() => {
                let hint = "leave --nats and --mongodb out, or --backend embedded";
                return Err(Problem::new("the embedded backend has no servers", hint).into());
            }
            Backend::Embedded => None,
            Backend::Cluster => {
                progress.phase("starting servers");
                Some(Servers::start(options, env, dir.path()).await?)
            }
        };
        let mut settings = Settings { backend: options.backend, ..settings.clone() };
        settings.lane.max_depth = settings.lane.max_depth.max(LANE_DEPTH);
        if let Some(servers) = &servers {
            if servers.nats.is_some() {
                // The benchmark's own server knows no credentials.
                settings.nats = config::Nats::default();
            }
            settings.nats.url.clone_from(&servers.nats_url);
            settings.mongodb.uri.clone_from(&servers.mongodb_uri);
        }
        let conditions = Conditions::find(options, &settings, servers.as_ref(), dir.path()).await?;
        Ok(Self { conditions, servers, settings, grounds: AtomicU32::new(0), dir })
    }

    /// A fresh namespace, database or file, whose settings `adjust` may change.
    pub(super) async fn ground(&self, adjust: impl FnOnce(&mut Settings)) -> anyhow::Result<Ground> {
        let number = self.grounds.fetch_add(1, Ordering::Relaxed);
        // Given servers may be shared with another run.
        let name = format!("bench{:x}x{number}", std::process::id());
        let mut settings = self.settings.clone();
        settings.namespace.clone_from(&name);
        settings.mongodb.database.clone_from(&name);
        settings.data_dir = self.dir.path().join(&name);
        adjust(&mut settings);
        Ground::open(settings).await
    }

    pub(super) fn worker_concurrency(&self) -> usize {
        self.settings.worker.concurrency
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Queue and store of one measurement, with nothing in them.
pub(super) struct Ground {
    pub(super) settings: Settings,
    pub(super) queue: Arc<dyn Queue>,
    pub(super) store: Arc<dyn Store>,
    /// The embedded backend's file.
    pub(super) file: Option<Arc<EmbeddedFile>>,
    tap: Option<Arc<Tapped>>,
    tasks: Tasks,
}

impl Ground {
    async fn open(settings: Settings) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        let (queue, store, file, tap): (Arc<dyn Queue>, Arc<dyn Store>, _, _) = match settings.backend {
            Backend::Embedded => {
                let file = EmbeddedFile::open(&embedded::store::path(&settings))?;
                let queue = EmbeddedQueue::new(Arc::clone(&file), &settings, &tasks).await?;
                let tap = Arc::new(Tapped::new(queue));
                let store = EmbeddedStore::new(Arc::clone(&file), &settings)?;
                (Arc::clone(&tap) as Arc<dyn Queue>, store, Some(file), Some(tap))
            }
            Backend::Cluster => {
                let queue = NatsQueue::connect(&settings, tasks.stop_token()).await?;
                let store = MongoStore::connect(&settings, &tasks).await?;
                (Arc::new(queue), Arc::new(store), None, None)
            }
        };
        Ok(Self { settings, queue, store, file, tap, tasks })
    }

    /// Waits until what was written in bulk is where it stays: a server that has just been filled writes it to its files for a
    /// minute, which is not what is measured next.
    pub(super) async fn settle(&self, progress: &dyn Progress) -> anyhow::Result<()> {
        if self.settings.backend == Backend::Cluster {
            progress.tick("waiting for MongoDB's files");
            let client = client(&self.settings).await?;
            client.database("admin").run_command(doc! {"fsync": 1}).await.context("MongoDB cannot sync its files")?;
        }
        Ok(())
    }

    /// What is published from now on: replies, and turns that begin if `begun`.
    pub(super) async fn watch(&self, begun: bool) -> anyhow::Result<mpsc::UnboundedReceiver<Seen>> {
        match &self.tap {
            Some(tap) => Ok(tap.watch()),
            None => replies::subscribe(&self.settings, begun, &self.tasks).await,
        }
    }

    /// Leaves nothing behind on servers that were given.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        self.tasks.shutdown(Duration::from_secs(5)).await;
        if self.settings.backend == Backend::Embedded {
            drop((self.queue, self.store, self.file, self.tap));
            // It may have grown large.
            return std::fs::remove_dir_all(&self.settings.data_dir).context("cannot remove the embedded file");
        }
        let jetstream = async_nats::jetstream::new(nats::connect(&self.settings).await?);
        let namespace = self.settings.namespace.to_uppercase();
        for stream in ["JOBS", "OUT", "DEAD"] {
            jetstream.delete_stream(format!("{namespace}_{stream}")).await?;
        }
        let client = mongodb::Client::with_uri_str(&self.settings.mongodb.uri).await?;
        client.database(&self.settings.mongodb.database).drop().await?;
        Ok(())
    }
}
