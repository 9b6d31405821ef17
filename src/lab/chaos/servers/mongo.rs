//! MongoDB of a run: a replica set.

use super::members::{Group, Member, Members};
use super::network::Network;
use crate::chaos::error::{self, ChaosError};
use crate::chaos::ground::Ground;
use crate::chaos::process::free_port;
use base::tasks::Tasks;
use bson::{Document, doc};
use mongodb::Client;
use mongodb::options::ClientOptions;
use std::future::IntoFuture;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long the members may take to agree on a primary, and to catch up with it.
const ELECTION: Duration = Duration::from_secs(60);
/// How long a member may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The replica set, and the run's own client of it.
pub(in crate::chaos) struct Mongo {
    members: Members,
    /// Where members and clients find each member: the proxy, if there is one.
    hosts: Vec<String>,
    client: Client,
}

impl Mongo {
    /// Starts `count` members and waits until they have a primary. With `cuttable` they reach each other by proxies.
    pub(in crate::chaos) async fn start(
        ground: &Ground,
        program: &Path,
        count: usize,
        cuttable: bool,
        tasks: &Tasks,
    ) -> Result<Self, ChaosError> {
        let network = cuttable.then(|| Network::new(count, tasks));
        let (mut all, mut hosts) = (Vec::new(), Vec::new());
        for place in 0..count {
            let member = member(ground, program, place + 1)?;
            let port = match &network {
                Some(network) => network.listen(place, member.port).await?,
                None => member.port,
            };
            hosts.push(format!("127.0.0.1:{port}"));
            all.push(member);
        }
        let mut members = Members { all, network };
        for place in 0..count {
            members.go_on(place).await?;
        }
        initiate(&hosts).await.map_err(|error| ChaosError::failed("the replica set cannot be made", error))?;
        let client = client(&uri(&hosts)).await.map_err(|error| ChaosError::failed("MongoDB", error))?;
        let mut mongo = Self { members, hosts, client };
        mongo.leader(0).await?;
        mongo.is_whole().await?;
        Ok(mongo)
    }

    pub(in crate::chaos) fn uri(&self) -> String {
        uri(&self.hosts)
    }

    /// The run's own client. Without a primary its calls fail within two seconds.
    pub(in crate::chaos) fn client(&self) -> Client {
        self.client.clone()
    }

    async fn ask(&self, command: Document) -> Result<Document, String> {
        // A paused primary does not answer, but is not gone either.
        match timeout(ANSWER, self.client.database("admin").run_command(command).into_future()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("no answer".to_owned()),
        }
    }

    fn primary_of(&self, hello: &Document) -> Option<usize> {
        if !hello.get_bool("isWritablePrimary").unwrap_or(false) {
            return None;
        }
        let me = hello.get_str("me").ok()?;
        self.hosts.iter().position(|host| host == me)
    }
}

impl Group for Mongo {
    fn members(&mut self) -> &mut Members {
        &mut self.members
    }

    async fn leader(&self, _lot: usize) -> Result<usize, ChaosError> {
        let (deadline, mut problem) = (Instant::now() + ELECTION, String::new());
        while Instant::now() < deadline {
            match self.ask(doc! {"hello": 1}).await {
                Ok(hello) => match self.primary_of(&hello) {
                    Some(primary) => return Ok(primary),
                    None => problem = hello.to_string(),
                },
                Err(error) => problem = error,
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(ChaosError::failed("MongoDB has no primary", problem))
    }

    async fn hand_over(&self, _lot: usize) {
        let command = doc! {"replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 3};
        // MongoDB refuses when no secondary can take over: then there is no fault either.
        let _ = self.client.database("admin").run_command(command).await;
    }

    async fn is_whole(&mut self) -> Result<(), ChaosError> {
        let (deadline, mut problem) = (Instant::now() + ELECTION, String::new());
        while Instant::now() < deadline {
            match self.ask(doc! {"replSetGetStatus": 1}).await {
                Ok(status) if is_whole(&status) => return Ok(()),
                Ok(status) => problem = states(&status),
                Err(error) => problem = error,
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(ChaosError::failed("a member of the replica set does not catch up", problem))
    }
}

fn members_of(status: &Document) -> impl Iterator<Item = &Document> {
    status.get_array("members").into_iter().flatten().filter_map(bson::Bson::as_document)
}

/// One primary, and secondaries.
fn is_whole(status: &Document) -> bool {
    let count = |wanted: &[i32]| {
        members_of(status).filter(|member| member.get_i32("state").is_ok_and(|state| wanted.contains(&state))).count()
    };
    count(&[1]) == 1 && count(&[1, 2]) == members_of(status).count()
}

fn states(status: &Document) -> String {
    members_of(status).map(|member| member.get_str("stateStr").unwrap_or("?")).collect::<Vec<_>>().join(", ")
}

fn member(ground: &Ground, program: &Path, number: usize) -> Result<Member, ChaosError> {
    let (name, port) = (format!("mongod-{number}"), free_port()?);
    let path = ground.path().join(&name);
    std::fs::create_dir(&path).map_err(error::file(&path))?;
    // A primary that is asked to end waits for so long, since clients might still have something to ask.
    let args = format!(
        "--replSet chaos --port {port} --bind_ip 127.0.0.1 --nounixsocket --wiredTigerCacheSizeGB 0.25 --oplogSize 128 \
         --quiet --setParameter diagnosticDataCollectionEnabled=false \
         --setParameter shutdownTimeoutMillisForSignaledShutdown=500 --dbpath"
    );
    let mut args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    args.push(path.display().to_string());
    Ok(Member { process: ground.process(name, program, args), port })
}

fn uri(hosts: &[String]) -> String {
    format!("mongodb://{}/?replicaSet=chaos", hosts.join(","))
}

async fn client(uri: &str) -> mongodb::error::Result<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    options.server_selection_timeout = Some(Duration::from_secs(2));
    Client::with_options(options)
}

/// A primary that is gone is missed after three seconds, not after the usual ten: more faults fit into a run.
async fn initiate(hosts: &[String]) -> mongodb::error::Result<()> {
    let first = client(&format!("mongodb://{}/?directConnection=true", hosts[0])).await?;
    let members = hosts.iter().enumerate();
    let members: Vec<Document> =
        members.map(|(id, host)| doc! {"_id": i32::try_from(id).unwrap_or(0), "host": host}).collect();
    let settings = doc! {"electionTimeoutMillis": 3_000, "heartbeatIntervalMillis": 1_000};
    let config = doc! {"_id": "chaos", "members": members, "settings": settings};
    first.database("admin").run_command(doc! {"replSetInitiate": config}).await.map(|_| ())
}
