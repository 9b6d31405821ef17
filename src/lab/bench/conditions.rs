//! The conditions of a measurement: build, machine and servers. Figures only compare under equal conditions.

use super::options::TargetOptions;
use super::servers::Servers;
use anyhow::Context;
use base::config::{Backend, Settings};
use bson::{Bson, doc};
use cluster::mongo::connect::HISTORY_WINDOW;
use cluster::nats;
use serde::Serialize;
use std::path::Path;

const GIB: f64 = 1_073_741_824.0;

/// Build, machine and servers of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// Version of Turnwheel.
    pub turnwheel: &'static str,
    /// `dist`, `release` or `debug`. The published figures are those of `dist` builds; compare only equal builds.
    pub build: &'static str,
    /// Processors available to this process. Servers, load and workers share them.
    pub cores: usize,
    /// Model name of the processor.
    pub cpu: String,
    /// Memory of the machine, in GiB.
    pub memory_gib: u64,
    /// Operating system and kernel release.
    pub os: String,
    /// Type of the file system that holds the data.
    pub file_system: String,
    /// `cluster` or `embedded`.
    pub backend: Backend,
    /// NATS and MongoDB; only on a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// When the embedded file is synced; only on the embedded backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedded_sync: Option<&'static str>,
}

/// Versions and durability settings of NATS and MongoDB.
#[derive(Clone, Debug, Serialize)]
pub struct Cluster {
    /// Version of nats-server.
    pub nats_server: String,
    /// Replicas of the streams.
    pub nats_replicas: usize,
    /// When nats-server syncs its files.
    pub nats_sync_interval: String,
    /// Version of mongod.
    pub mongod: String,
    /// Members of the replica set.
    pub mongodb_members: usize,
    /// Write concern of the commits.
    pub mongodb_write_concern: &'static str,
    /// Maximum size of the WiredTiger cache.
    pub mongodb_cache: String,
    /// For how long mongod keeps old versions of changed documents (`minSnapshotHistoryWindowInSeconds`).
    pub mongodb_history: String,
    /// Whether the benchmark started the servers, or the options named existing ones.
    pub servers: &'static str,
}

/// How this program was built.
const BUILD: &str = match (cfg!(debug_assertions), cfg!(feature = "dist")) {
    (true, _) => "debug",
    (false, false) => "release",
    (false, true) => "dist",
};

impl Conditions {
    /// Reads the conditions from the machine and the servers. Fails if a server is unreachable.
    pub(super) async fn find(
        options: &TargetOptions,
        settings: &Settings,
        servers: Option<&Servers>,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let cluster = match servers {
            Some(servers) => Some(Cluster::ask(options, settings, servers).await?),
            None => None,
        };
        Ok(Self {
            turnwheel: env!("CARGO_PKG_VERSION"),
            build: BUILD,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: line("/proc/cpuinfo", "model name"),
            memory_gib: memory_gib(),
            os: format!("Linux {}", line("/proc/sys/kernel/osrelease", "")),
            file_system: file_system(dir),
            backend: options.backend,
            cluster,
            embedded_sync: servers.is_none().then_some("before each acknowledgement (fsync)"),
        })
    }

    /// The conditions as text, printed above the table.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("turnwheel {} ({})", self.turnwheel, self.build),
            format!(
                "{} cores for servers, load and workers together, {}, {} GiB, {}, data on {}",
                self.cores, self.cpu, self.memory_gib, self.os, self.file_system
            ),
        ];
        if let Some(cluster) = &self.cluster {
            lines.push(format!(
                "nats-server {}, streams with {} replica(s), files synced {}",
                cluster.nats_server, cluster.nats_replicas, cluster.nats_sync_interval
            ));
            lines.push(format!(
                "mongod {}, {} member(s), write concern {}, cache {}, old versions kept for {}",
                cluster.mongod,
                cluster.mongodb_members,
                cluster.mongodb_write_concern,
                cluster.mongodb_cache,
                cluster.mongodb_history
            ));
            lines.push(format!("servers: {}", cluster.servers));
        }
        if let Some(sync) = self.embedded_sync {
            lines.push(format!("embedded file, synced {sync}"));
        }
        if self.build != "dist" {
            lines.push(format!(
                "this is a {} build: compare figures of `cargo run --profile dist --features dist -- bench`",
                self.build
            ));
        }
        lines
    }
}

impl Cluster {
    async fn ask(options: &TargetOptions, settings: &Settings, servers: &Servers) -> anyhow::Result<Self> {
        let nats = nats::connect(settings).await;
        let nats = nats.with_context(|| format!("nats-server at {} is unreachable", shown(&servers.nats_url)))?;
        let admin = mongodb::Client::with_uri_str(&servers.mongodb_uri).await?.database("admin");
        let build = admin.run_command(doc! {"buildInfo": 1}).await;
        let build = build.with_context(|| format!("mongod at {} is unreachable", shown(&servers.mongodb_uri)))?;
        let hello = admin.run_command(doc! {"hello": 1}).await?;
        let status = admin.run_command(doc! {"serverStatus": 1}).await?;
        let window = admin.run_command(doc! {"getParameter": 1, HISTORY_WINDOW: 1}).await.ok();
        let window = window.and_then(|answer| number(answer.get(HISTORY_WINDOW)?));
        let cache = status.get_document("wiredTiger").and_then(|engine| engine.get_document("cache")).ok();
        let bytes = cache.and_then(|cache| number(cache.get("maximum bytes configured")?));
        let sync = match (&servers.nats, options.nats_sync.as_deref()) {
            (None, _) => "as configured there".to_owned(),
            (Some(_), None) => "every 2m (its default)".to_owned(),
            (Some(_), Some("always")) => "before each acknowledgement".to_owned(),
            (Some(_), Some(interval)) => format!("every {interval}"),
        };
        Ok(Self {
            nats_server: nats.server_info().version,
            // Each measurement creates its streams with this setting.
            nats_replicas: settings.nats.replicas,
            nats_sync_interval: sync,
            mongod: build.get_str("version").unwrap_or("?").to_owned(),
            mongodb_members: hello.get_array("hosts").map_or(1, |hosts| hosts.len().max(1)),
            mongodb_write_concern: "majority, journal synced",
            mongodb_cache: bytes.map_or_else(|| "unknown".to_owned(), |bytes| format!("{:.0} GiB", bytes / GIB)),
            mongodb_history: window.map_or_else(|| "unknown".to_owned(), |seconds| format!("{seconds} s")),
            servers: match (&servers.nats, &servers.mongod) {
                (Some(_), Some(_)) => "started by the benchmark on this machine",
                (None, None) => "named by --nats and --mongodb",
                _ => "one named by an option, one started by the benchmark on this machine",
            },
        })
    }
}

/// Memory of the machine in GiB; 0 if `/proc/meminfo` does not report it.
pub(super) fn memory_gib() -> u64 {
    let kib = line("/proc/meminfo", "MemTotal").split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
    (kib.unwrap_or(0) + 512 * 1024) / (1024 * 1024)
}

/// The rest of the first line of a file that begins with `name`; empty if no line does.
fn line(path: &str, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    found.trim_start_matches([' ', '\t', ':']).to_owned()
}

/// Converts a number of any BSON type: the servers choose the type by the value.
fn number(value: &Bson) -> Option<f64> {
    value.as_f64().or_else(|| Some(value.as_i64()? as f64)).or_else(|| Some(f64::from(value.as_i32()?)))
}

fn shown(address: &str) -> String {
    base::config::secrets::masked_address(address)
}

/// Type of the file system that holds `dir`.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    let holding = mounts.lines().filter_map(mount).filter(|(point, _)| dir.starts_with(point));
    holding.max_by_key(|(point, _)| point.len()).map_or_else(|| "?".to_owned(), |(_, kind)| kind)
}
