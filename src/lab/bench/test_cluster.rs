//! The servers of one command, and a fresh namespace for each measurement.

use super::conditions::Conditions;
use super::options::TargetOptions;
use super::replies::{self, SeenEvent, Tapped};
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

/// Value of `lane.max_depth`: a benchmark floods one session on purpose.
const LANE_DEPTH: u64 = 100_000;

/// The servers of one command, or a folder for embedded files.
pub(super) struct TestCluster {
    pub(super) conditions: Conditions,
    pub(super) servers: Option<Servers>,
    settings: Settings,
    namespaces: AtomicU32,
    /// Declared last, so that it is dropped after the servers that write to it.
    dir: TempDir,
}

impl TestCluster {
    /// Starts the servers that the options do not name, and reads the conditions.
    pub(super) async fn prepare(
        options: &TargetOptions,
        settings: &Settings,
        env: &Environment,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let dir = tempfile::Builder::new().prefix("turnwheel-bench-").tempdir_in(&parent);
        let dir = dir.map_err(|error| {
            Problem::new(
                format!("cannot create a folder in {}: {error}", parent.display()),
                "name another folder with --dir",
            )
        })?;
        let servers = match options.backend {
            Backend::Embedded if options.nats.is_some() || options.mongodb.is_some() => {
                let hint = "omit --nats and --mongodb, or omit --backend embedded";
                return Err(Problem::new("the embedded backend does not use NATS or MongoDB", hint).into());
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
                // The server that the benchmark started has no credentials.
                settings.nats = config::Nats::default();
            }
            settings.nats.url.clone_from(&servers.nats_url);
            settings.mongodb.uri.clone_from(&servers.mongodb_uri);
        }
        let conditions = Conditions::find(options, &settings, servers.as_ref(), dir.path()).await?;
        Ok(Self { conditions, servers, settings, namespaces: AtomicU32::new(0), dir })
    }

    /// Opens a fresh namespace and database, or a fresh file. `adjust` may change the settings first.
    pub(super) async fn open_namespace(&self, adjust: impl FnOnce(&mut Settings)) -> anyhow::Result<TestNamespace> {
        TestNamespace::open(self.fresh_settings(adjust)).await
    }

    /// The settings of a fresh namespace and database, or of a fresh file, for a process that opens it.
    pub(super) fn fresh_settings(&self, adjust: impl FnOnce(&mut Settings)) -> Settings {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        // Another benchmark may use the same servers, so the name contains the process id.
        let name = format!("bench{:x}x{number}", std::process::id());
        let mut settings = self.settings.clone();
        settings.namespace.clone_from(&name);
        settings.mongodb.database.clone_from(&name);
        settings.data_dir = self.dir.path().join(&name);
        adjust(&mut settings);
        settings
    }

    pub(super) fn worker_concurrency(&self) -> usize {
        self.settings.worker.concurrency
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Empty queue and store for one measurement.
pub(super) struct TestNamespace {
    pub(super) settings: Settings,
    pub(super) queue: Arc<dyn Queue>,
    pub(super) store: Arc<dyn Store>,
    /// The embedded backend's file.
    pub(super) file: Option<Arc<EmbeddedFile>>,
    tap: Option<Arc<Tapped>>,
    tasks: Tasks,
}

impl TestNamespace {
    pub(super) async fn open(settings: Settings) -> anyhow::Result<Self> {
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

    /// Waits until MongoDB has synced its files. After a bulk write mongod writes to its files for up to a minute,
    /// which would disturb the next measurement.
    pub(super) async fn settle(&self, progress: &dyn Progress) -> anyhow::Result<()> {
        if self.settings.backend == Backend::Cluster {
            progress.tick("waiting until MongoDB has synced its files");
            let client = client(&self.settings).await?;
            client.database("admin").run_command(doc! {"fsync": 1}).await.context("MongoDB cannot sync its files")?;
        }
        Ok(())
    }

    /// Watches for replies from now on, and with `begun` also for turns that begin.
    pub(super) async fn watch(&self, begun: bool) -> anyhow::Result<mpsc::UnboundedReceiver<SeenEvent>> {
        match &self.tap {
            Some(tap) => Ok(tap.watch()),
            None => replies::subscribe(&self.settings, begun, &self.tasks).await,
        }
    }

    /// Deletes the streams and the database, or the embedded file.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        self.tasks.shutdown(Duration::from_secs(5)).await;
        if self.settings.backend == Backend::Embedded {
            drop((self.queue, self.store, self.file, self.tap));
            // The file may be large, and the folder of the cluster exists until the command ends.
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
