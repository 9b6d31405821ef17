//! NATS and MongoDB of a run: found, started, taken down.

use super::error::{self, ChaosError};
use super::ground::Ground;
use super::process::{Process, free_port};
use crate::config::Environment;
use bson::{Document, doc};
use mongodb::Client;
use mongodb::options::ClientOptions;
use std::future::IntoFuture;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long the members may take to agree on a primary.
const ELECTION: Duration = Duration::from_secs(60);
/// How long a member may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How long NATS may take to stop when it is asked to.
const ORDERLY: Duration = Duration::from_secs(15);

/// The programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `nats-server`.
    pub nats_server: PathBuf,
    /// `mongod`.
    pub mongod: PathBuf,
}

impl Programs {
    /// Those that are named, else by environment variable, else from the path, else from `target/servers`.
    pub fn find(nats_server: Option<PathBuf>, mongod: Option<PathBuf>, env: &Environment) -> Result<Self, ChaosError> {
        Ok(Self {
            nats_server: find("nats-server", "NATS_SERVER_BIN", nats_server, env)?,
            mongod: find("mongod", "MONGOD_BIN", mongod, env)?,
        })
    }
}

fn find(
    program: &'static str,
    variable: &str,
    named: Option<PathBuf>,
    env: &Environment,
) -> Result<PathBuf, ChaosError> {
    if let Some(path) = named.or_else(|| env.get(variable).map(PathBuf::from)) {
        let missing = || ChaosError::Missing { program, looked: format!("at {}", path.display()) };
        return path.canonicalize().ok().filter(|path| path.is_file()).ok_or_else(missing);
    }
    let on_path = std::env::split_paths(env.get("PATH").unwrap_or_default())
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    // Beside the program itself, should it run from the source tree's target folder.
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("servers")));
    let folders = [Some(PathBuf::from("target/servers")), beside];
    let installed = || folders.iter().flatten().find_map(|folder| pinned(folder, program));
    on_path.or_else(installed).ok_or_else(|| ChaosError::Missing {
        program,
        looked: format!("in {variable}, on the path, and in target/servers"),
    })
}

fn pinned(folder: &Path, program: &str) -> Option<PathBuf> {
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(program));
    std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(is_ours)?.canonicalize().ok()
}

/// A NATS server with JetStream that syncs what it acknowledges.
pub(super) struct Nats {
    process: Process,
    port: u16,
}

impl Nats {
    pub(super) async fn start(ground: &Ground, program: &Path) -> Result<Self, ChaosError> {
        let port = free_port()?;
        let config = ground.path().join("nats.conf");
        let store = ground.path().join("nats");
        let text = format!(
            "listen: 127.0.0.1:{port}\njetstream {{\n  store_dir: {:?}\n  sync_interval: always\n}}\n",
            store.display().to_string()
        );
        std::fs::write(&config, text).map_err(error::file(&config))?;
        let process = ground.process("nats", program, vec!["-c".into(), config.display().to_string()]);
        let mut nats = Self { process, port };
        nats.go_on().await?;
        Ok(nats)
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(super) async fn stop(&mut self) {
        self.process.terminate(ORDERLY).await;
    }

    pub(super) async fn kill(&mut self) {
        self.process.kill().await;
    }

    pub(super) fn pause(&self) {
        self.process.pause();
    }

    /// Starts or resumes it.
    pub(super) async fn go_on(&mut self) -> Result<(), ChaosError> {
        self.process.go_on(self.port).await
    }
}

/// A replica set.
pub(super) struct Mongo {
    members: Vec<Member>,
    client: Client,
}

struct Member {
    process: Process,
    port: u16,
}

impl Mongo {
    /// Starts `count` members and waits until they have a primary.
    pub(super) async fn start(ground: &Ground, program: &Path, count: usize) -> Result<Self, ChaosError> {
        let mut members = Vec::new();
        for number in 1..=count {
            members.push(member(ground, program, number)?);
        }
        for member in &mut members {
            member.process.listens(member.port).await?;
        }
        initiate(&members).await.map_err(|error| ChaosError::failed("the replica set cannot be made", error))?;
        let client = client(&uri(&members)).await.map_err(|error| ChaosError::failed("MongoDB", error))?;
        let mongo = Self { members, client };
        mongo.has_primary().await?;
        Ok(mongo)
    }

    pub(super) fn uri(&self) -> String {
        uri(&self.members)
    }

    /// A client of the run's own. It gives up soon while there is no primary.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Waits for a primary.
    pub(super) async fn has_primary(&self) -> Result<usize, ChaosError> {
        self.has_primary_beside(usize::MAX).await
    }

    /// Waits for a primary other than this one.
    pub(super) async fn has_primary_beside(&self, other: usize) -> Result<usize, ChaosError> {
        let deadline = Instant::now() + ELECTION;
        let (admin, mut problem) = (self.client.database("admin"), String::new());
        while Instant::now() < deadline {
            // A paused primary does not answer, but is not gone either.
            let hello = timeout(ANSWER, admin.run_command(doc! {"hello": 1}).into_future());
            match hello.await {
                Ok(Ok(hello)) => match self.primary_of(&hello).filter(|primary| *primary != other) {
                    Some(primary) => return Ok(primary),
                    None => problem = hello.to_string(),
                },
                Ok(Err(error)) => problem = error.to_string(),
                Err(_) => "no answer".clone_into(&mut problem),
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(ChaosError::failed("MongoDB has no primary", problem))
    }

    fn primary_of(&self, hello: &Document) -> Option<usize> {
        if !hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return None;
        }
        let me = hello.get_str("me").ok()?;
        self.members.iter().position(|member| host(member) == me)
    }

    /// Has the primary hand over to another member.
    pub(super) async fn step_down(&self) {
        let command = doc! {"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 3};
        // Refused when nobody could take over: then there is no fault either.
        let _ = self.client.database("admin").run_command(command).await;
    }

    pub(super) async fn kill(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.process.kill().await;
        }
    }

    pub(super) fn pause(&self, member: usize) {
        if let Some(member) = self.members.get(member) {
            member.process.pause();
        }
    }

    /// Starts or resumes a member, unless it runs.
    pub(super) async fn go_on(&mut self, member: usize) -> Result<(), ChaosError> {
        let Some(member) = self.members.get_mut(member) else { return Ok(()) };
        member.process.go_on(member.port).await
    }
}

fn member(ground: &Ground, program: &Path, number: usize) -> Result<Member, ChaosError> {
    let (name, port) = (format!("mongod-{number}"), free_port()?);
    let path = ground.path().join(&name);
    std::fs::create_dir(&path).map_err(error::file(&path))?;
    let args = format!(
        "--replSet chaos --port {port} --bind_ip 127.0.0.1 --nounixsocket --wiredTigerCacheSizeGB 0.25 \
         --oplogSize 128 --quiet --setParameter diagnosticDataCollectionEnabled=false --dbpath"
    );
    let mut args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    args.push(path.display().to_string());
    let mut process = ground.process(name, program, args);
    process.start()?;
    Ok(Member { process, port })
}

fn host(member: &Member) -> String {
    format!("127.0.0.1:{}", member.port)
}

fn uri(members: &[Member]) -> String {
    format!("mongodb://{}/?replicaSet=chaos", members.iter().map(host).collect::<Vec<_>>().join(","))
}

async fn client(uri: &str) -> mongodb::error::Result<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    options.server_selection_timeout = Some(Duration::from_secs(2));
    Client::with_options(options)
}

/// A primary that is gone is missed after three seconds, not after the usual ten: more faults fit into a run.
async fn initiate(members: &[Member]) -> mongodb::error::Result<()> {
    let first = client(&format!("mongodb://{}/?directConnection=true", host(&members[0]))).await?;
    let hosts = members.iter().enumerate();
    let hosts: Vec<Document> =
        hosts.map(|(id, member)| doc! {"_id": i32::try_from(id).unwrap_or(0), "host": host(member)}).collect();
    let settings = doc! {"electionTimeoutMillis": 3_000, "heartbeatIntervalMillis": 1_000};
    let config = doc! {"_id": "chaos", "members": hosts, "settings": settings};
    first.database("admin").run_command(doc! {"replSetInitiate": config}).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_what_to_do() {
        let env: Environment = [("PATH", "/nowhere"), ("MONGOD_BIN", "/nowhere/mongod")].into_iter().collect();
        let error = find("mongod", "MONGOD_BIN", None, &env).unwrap_err();
        assert_eq!(error.to_string(), "there is no `mongod`; looked for it at /nowhere/mongod");
        assert!(error.hint().contains("--mongod"));
        assert!(find("no-such-server", "NO_SUCH", None, &env).unwrap_err().to_string().contains("target/servers"));
    }
}
