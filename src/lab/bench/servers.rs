//! Starts nats-server and mongod for a benchmark.

use super::Problem;
use super::conditions::memory_gib;
use super::options::TargetOptions;
use super::process::ChildProcess;
use crate::port::free_port;
use anyhow::Context;
use base::config::Environment;
use bson::doc;
use cluster::mongo::connect::HISTORY_WINDOW;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit for a server to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The servers' addresses, and the processes of those that the benchmark started.
pub(super) struct Servers {
    pub(super) nats_url: String,
    pub(super) mongodb_uri: String,
    pub(super) nats: Option<ChildProcess>,
    pub(super) mongod: Option<ChildProcess>,
}

impl Servers {
    /// Starts each server that the options do not name, with its data in `dir`.
    pub(super) async fn start(options: &TargetOptions, env: &Environment, dir: &Path) -> anyhow::Result<Self> {
        let (nats_url, nats) = match &options.nats {
            Some(url) => (url.clone(), None),
            None => nats(options, env, dir)?,
        };
        let (mongodb_uri, mongod) = match &options.mongodb {
            Some(uri) => (uri.clone(), None),
            None => mongod(env, dir).await?,
        };
        Ok(Self { nats_url, mongodb_uri, nats, mongod })
    }
}

fn nats(options: &TargetOptions, env: &Environment, dir: &Path) -> anyhow::Result<(String, Option<ChildProcess>)> {
    let binary = find("nats-server", "NATS_SERVER_BIN", "--nats URL", env)?;
    let (port, config, log) = (free_port()?, dir.join("nats.conf"), dir.join("nats.log"));
    let sync = options.nats_sync.as_ref().map(|sync| format!("sync_interval: {sync}")).unwrap_or_default();
    let store = dir.join("nats");
    let settings =
        format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {:?}\n{sync} }}\n", store.display().to_string());
    std::fs::write(&config, settings)?;
    let args = ["-c".to_owned(), config.display().to_string()];
    let process = ChildProcess::program(&binary, &args, &log)?;
    await_port(port, &process, &binary, &log)?;
    Ok((format!("nats://127.0.0.1:{port}"), Some(process)))
}

async fn mongod(env: &Environment, dir: &Path) -> anyhow::Result<(String, Option<ChildProcess>)> {
    let binary = find("mongod", "MONGOD_BIN", "--mongodb URI", env)?;
    let (port, data, log) = (free_port()?, dir.join("mongo"), dir.join("mongod.log"));
    std::fs::create_dir_all(&data)?;
    let (data, port_text) = (data.display().to_string(), port.to_string());
    let args =
        ["--replSet", "rs0", "--dbpath", &data, "--port", &port_text, "--bind_ip", "127.0.0.1", "--nounixsocket"];
    // By default mongod takes half of the memory for its cache. The load, the workers and the page cache need memory,
    // too.
    let gib = (memory_gib() / 4).max(1).to_string();
    let cache = ["--wiredTigerCacheSizeGB", gib.as_str()];
    // mongod removes expired turns every five seconds, so that growth can be measured within minutes.
    let expiry = ["--setParameter", "ttlMonitorSleepSecs=5"];
    // As docs/operations.md recommends.
    let window = format!("{HISTORY_WINDOW}=0");
    let history = ["--setParameter", window.as_str()];
    let args: Vec<String> = args.into_iter().chain(cache).chain(expiry).chain(history).map(str::to_owned).collect();
    let process = ChildProcess::program(&binary, &args, &log)?;
    await_port(port, &process, &binary, &log)?;
    let uri = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
    initiate(&uri, port).await.with_context(|| format!("{} does not become a replica set", binary.display()))?;
    Ok((uri, Some(process)))
}

/// Creates a replica set with one node, and waits until it accepts writes.
async fn initiate(uri: &str, port: u16) -> anyhow::Result<()> {
    let admin = mongodb::Client::with_uri_str(uri).await?.database("admin");
    let members = [doc! {"_id": 0, "host": format!("127.0.0.1:{port}")}];
    admin.run_command(doc! {"replSetInitiate": {"_id": "rs0", "members": &members[..]}}).await?;
    let begun = Instant::now();
    loop {
        let hello = admin.run_command(doc! {"hello": 1}).await?;
        if hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < START_TIMEOUT, "no primary within {} s", START_TIMEOUT.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Finds a server's binary: by the environment variable, then on the PATH, then in `target/servers`, where the tests
/// keep pinned builds.
fn find(program: &str, variable: &str, flag: &str, env: &Environment) -> anyhow::Result<PathBuf> {
    if let Some(path) = env.get(variable).map(PathBuf::from) {
        let hint = format!("set {variable} to the program, or leave it empty");
        return if path.is_file() {
            Ok(path)
        } else {
            Err(Problem::new(format!("{variable} = {} is not a file", path.display()), hint).into())
        };
    }
    let on_path = env.get("PATH").into_iter().flat_map(|path| std::env::split_paths(path).collect::<Vec<_>>());
    if let Some(path) = on_path.map(|folder| folder.join(program)).find(|path| path.is_file()) {
        return Ok(path);
    }
    let pinned = std::fs::read_dir("target/servers").into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(program)) && path.is_file()
    };
    if let Some(path) = pinned.into_iter().find(ours) {
        return Ok(path);
    }
    let hint = format!(
        "install it, set {variable} to its path, or name a running server with {flag}; in a checkout, `tests/run` downloads a pinned build to target/servers; `--backend embedded` needs no servers"
    );
    Err(Problem::new(format!("cannot find {program}"), hint).into())
}

fn await_port(port: u16, process: &ChildProcess, binary: &Path, log: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if !process.is_running() || begun.elapsed() > START_TIMEOUT {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<&str> = said.lines().rev().take(5).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            anyhow::bail!("{} failed to start; the end of its log:\n{}", binary.display(), tail.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
