//! NATS and MongoDB for tests: the shared servers that `tests/run` has started, or those of this test binary, and
//! private servers that a test may stop.

use base::config::{Backend, Settings, Streams};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

/// Time limit for a server to start.
const START: Duration = Duration::from_secs(60);

/// Addresses of the servers, with a namespace and a database for one test.
pub struct ClusterHandles {
    pub nats_url: String,
    pub mongodb_uri: String,
    pub namespace: String,
    pub database: String,
}

impl ClusterHandles {
    pub fn settings(&self) -> Settings {
        let mut settings =
            Settings { namespace: self.namespace.clone(), backend: Backend::Cluster, ..Settings::default() };
        settings.nats.url.clone_from(&self.nats_url);
        settings.mongodb.uri.clone_from(&self.mongodb_uri);
        settings.mongodb.database.clone_from(&self.database);
        // nats-server reserves the maximum size of each stream, and hundreds of tests share one server.
        settings.streams = Streams { jobs_max_mib: 0, out_max_mib: 0, dead_max_mib: 0 };
        settings
    }
}

/// The shared servers.
pub async fn cluster() -> ClusterHandles {
    let (nats_url, mongodb_uri) = match (variable("TURNWHEEL_TEST_NATS"), variable("TURNWHEEL_TEST_MONGODB")) {
        (Some(nats), Some(mongodb)) => (nats, mongodb),
        _ => {
            static OWN: OnceLock<(Server, Server)> = OnceLock::new();
            let (nats, mongod) = OWN.get_or_init(|| (Server::nats(), Server::mongod()));
            (nats.address(), mongod.address())
        }
    };
    initiate(&mongodb_uri).await;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let name = format!("t{}", &id[..10]);
    ClusterHandles { nats_url, mongodb_uri, namespace: name.clone(), database: name }
}

/// Servers for one test alone.
pub async fn private() -> (Server, Server, ClusterHandles) {
    let (nats, mongod) = (Server::nats(), Server::mongod());
    let handles = ClusterHandles {
        nats_url: nats.address(),
        mongodb_uri: mongod.address(),
        namespace: "tw".into(),
        database: "turnwheel".into(),
    };
    initiate(&handles.mongodb_uri).await;
    (nats, mongod, handles)
}

/// Creates the replica set unless it exists, and waits for its primary.
async fn initiate(uri: &str) {
    use bson::doc;
    super::eventually(START, "MongoDB has a primary", || async {
        let client = mongodb::Client::with_uri_str(uri).await.ok()?;
        let admin = client.database("admin");
        let hello = admin.run_command(doc! {"hello": 1}).await.ok()?;
        if hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return Some(());
        }
        if !hello.contains_key("setName") {
            let host = uri.trim_start_matches("mongodb://").split('/').next().unwrap_or_default().to_owned();
            let config = doc! {"_id": "rs0", "members": [{"_id": 0, "host": host}]};
            // Fails if another test has created it first.
            let _ = admin.run_command(doc! {"replSetInitiate": config}).await;
        }
        None
    })
    .await;
}

/// A server process. It ends with the test binary at the latest.
pub struct Server {
    program: PathBuf,
    args: Vec<String>,
    port: u16,
    scheme: &'static str,
    suffix: &'static str,
    envs: Vec<(String, String)>,
    child: std::sync::Mutex<Option<std::process::Child>>,
    dir: TempDir,
}

impl Server {
    /// Data folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn nats() -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let store = dir.path().display().to_string();
        let args = ["-js", "-sd", &store, "-a", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned).to_vec();
        Self::start(binary("NATS_SERVER_BIN", "nats-server"), args, port, ("nats", ""), dir)
    }

    /// Three servers in a cluster, ready for streams with three replicas.
    pub async fn nats_cluster() -> [Self; 3] {
        let routes: [u16; 3] = std::array::from_fn(|_| free_port());
        let routed = routes.map(|port| format!("nats://127.0.0.1:{port}")).join(",");
        let servers = std::array::from_fn(|place| {
            let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
            let args = format!(
                "-js -sd {} -a 127.0.0.1 -p {port} -n n{place} --cluster_name test --cluster nats://127.0.0.1:{} --routes {routed}",
                dir.path().display(),
                routes[place],
            );
            let args = args.split(' ').map(str::to_owned).collect();
            Self::start(binary("NATS_SERVER_BIN", "nats-server"), args, port, ("nats", ""), dir)
        });
        super::eventually(START, "the cluster has a leader and three members", || async {
            let client = async_nats::connect(servers[0].address()).await.ok()?;
            let context = async_nats::jetstream::new(client);
            let probe =
                async_nats::jetstream::stream::Config { name: "PROBE".into(), num_replicas: 3, ..Default::default() };
            context.create_stream(probe).await.ok()?;
            context.delete_stream("PROBE").await.ok().map(|_| ())
        })
        .await;
        servers
    }

    /// A server with JetStream and this additional text in its configuration file.
    pub fn nats_with(text: &str) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let (config, port_text) = (configured(&dir, text).display().to_string(), port.to_string());
        let args = ["-c", &config, "-a", "127.0.0.1", "-p", &port_text].map(str::to_owned).to_vec();
        Self::start(binary("NATS_SERVER_BIN", "nats-server"), args, port, ("nats", ""), dir)
    }

    /// A server with this configuration file and environment, on ports of its own, that logs to this file.
    pub fn nats_from(config: &Path, log: &Path, envs: Vec<(String, String)>) -> Self {
        let (dir, port, monitor) = (tempfile::tempdir().unwrap(), free_port(), free_port().to_string());
        let [config, log, store] = [config, log, dir.path()].map(|path| path.display().to_string());
        let port_text = port.to_string();
        let args = ["-c", &config, "-a", "127.0.0.1", "-p", &port_text, "-m", &monitor, "-sd", &store, "-l", &log];
        let args = args.map(str::to_owned).to_vec();
        let program = binary("NATS_SERVER_BIN", "nats-server");
        let child = std::sync::Mutex::new(None);
        let server = Self { program, args, port, scheme: "nats", suffix: "", envs, child, dir };
        server.restart();
        server
    }

    /// Replaces the text in the configuration file of a server from [`Server::nats_with`]. Takes effect with the next
    /// start.
    pub fn configure(&self, text: &str) {
        configured(&self.dir, text);
    }

    /// A server that syncs before it acknowledges, and the address of its monitoring port.
    pub fn nats_monitored() -> (Self, String) {
        let (dir, port, monitor) = (tempfile::tempdir().unwrap(), free_port(), free_port());
        let config = dir.path().join("nats.conf");
        let text = format!("jetstream {{ store_dir: {:?}, sync_interval: always }}", dir.path().join("store"));
        std::fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let (port_text, monitor_text) = (port.to_string(), monitor.to_string());
        let args =
            ["-c", &config, "-a", "127.0.0.1", "-p", &port_text, "-m", &monitor_text].map(str::to_owned).to_vec();
        let server = Self::start(binary("NATS_SERVER_BIN", "nats-server"), args, port, ("nats", ""), dir);
        (server, format!("http://127.0.0.1:{monitor}"))
    }

    /// A server whose streams may hold this many bytes in total.
    pub fn nats_holding(bytes: u64) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let config = dir.path().join("nats.conf");
        let store = dir.path().join("store");
        std::fs::write(&config, format!("jetstream {{ store_dir: {store:?}, max_file_store: {bytes} }}")).unwrap();
        let config = config.display().to_string();
        let args = ["-c", &config, "-a", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned).to_vec();
        Self::start(binary("NATS_SERVER_BIN", "nats-server"), args, port, ("nats", ""), dir)
    }

    pub fn mongod() -> Self {
        Self::mongod_with(&[])
    }

    /// A mongod with additional arguments.
    pub fn mongod_with(more: &[&str]) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let path = dir.path().display().to_string();
        let port_text = port.to_string();
        let args = [
            "--replSet",
            "rs0",
            "--dbpath",
            &path,
            "--port",
            &port_text,
            "--bind_ip",
            "127.0.0.1",
            "--wiredTigerCacheSizeGB",
            "0.25",
        ];
        let args = args.iter().chain(more).map(|arg| (*arg).to_owned()).collect();
        Self::start(binary("MONGOD_BIN", "mongod"), args, port, ("mongodb", "/?directConnection=true"), dir)
    }

    fn start(program: PathBuf, args: Vec<String>, port: u16, form: (&'static str, &'static str), dir: TempDir) -> Self {
        let (scheme, suffix) = form;
        let child = std::sync::Mutex::new(None);
        let server = Self { program, args, port, scheme, suffix, envs: Vec::new(), child, dir };
        server.restart();
        server
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn address(&self) -> String {
        format!("{}://127.0.0.1:{}{}", self.scheme, self.port, self.suffix)
    }

    /// Restarts the server on the same port and folder.
    pub fn restart(&self) {
        // The shell kills the server when the test binary ends for any reason.
        let script = "\"$@\" & child=$!; trap 'kill -9 $child' TERM; while kill -0 \"$PARENT\" 2>/dev/null && kill -0 $child 2>/dev/null; do sleep 0.2; done; kill -9 $child 2>/dev/null";
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&self.program)
            .args(&self.args)
            .env("PARENT", std::process::id().to_string())
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        *self.child.lock().unwrap() = Some(child);
        let deadline = std::time::Instant::now() + START;
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(std::time::Instant::now() < deadline, "{} failed to start", self.program.display());
            std::thread::yield_now();
        }
    }

    /// Sends SIGSTOP. The server hangs until it is killed, or until [`Self::resume`].
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let shell = self.child.lock().unwrap().as_ref().unwrap().id();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        let is_ours = |pid: &&str| {
            std::fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| Some(exe.as_path()) == self.program.canonicalize().ok().as_deref())
        };
        let pid = children.split_whitespace().find(is_ours).unwrap();
        assert!(Command::new("kill").args([signal, pid]).status().unwrap().success(), "{signal}");
    }

    /// Sends SIGKILL.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            // The shell kills the server when it gets this signal.
            let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            let _ = child.wait();
        }
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the configuration file of a nats-server with this text.
fn configured(dir: &TempDir, text: &str) -> PathBuf {
    let config = dir.path().join("nats.conf");
    let text = format!("jetstream {{ store_dir: {:?} }}\n{text}", dir.path().join("store"));
    std::fs::write(&config, text).unwrap();
    config
}

pub fn free_port() -> u16 {
    lab::port::free_port().unwrap()
}

/// Path of a program: by the environment variable, else as installed by `tests/run`, else on the PATH.
pub fn binary(name: &str, program: &str) -> PathBuf {
    if let Some(path) = variable(name) {
        return path.into();
    }
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/servers");
    let found = std::fs::read_dir(installed).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(program));
    found.into_iter().find(ours).unwrap_or_else(|| program.into())
}

#[allow(clippy::disallowed_methods)] // Variables of the tests are not settings.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
