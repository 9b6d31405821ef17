//! The MongoDB replica set of a run.

use super::members::{Member, Members, ServerGroup};
use super::network::Network;
use crate::chaos::environment::RunEnvironment;
use crate::chaos::error::{self, ChaosError};
use crate::port::free_port;
use base::tasks::Tasks;
use bson::{Document, doc};
use mongodb::Client;
use mongodb::options::ClientOptions;
use std::future::IntoFuture;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time limit for the election of a primary, and for the members to catch up with it.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a command.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The replica set, with a client for the run's own commands.
pub(in crate::chaos) struct Mongo {
    members: Members,
    /// Address of each member for other members and clients: the proxy, if the network can be cut.
    hosts: Vec<String>,
    client: Client,
}

impl Mongo {
    /// Starts `count` members and waits for a primary. With `cuttable`, all connections go through proxies.
    pub(in crate::chaos) async fn start(
        environment: &RunEnvironment,
        program: &Path,
        count: usize,
        cuttable: bool,
        tasks: &Tasks,
    ) -> Result<Self, ChaosError> {
        let network = cuttable.then(|| Network::new(count, tasks));
        let (mut all, mut hosts) = (Vec::new(), Vec::new());
        for place in 0..count {
            let member = member(environment, program, place + 1)?;
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
        initiate(&hosts).await.map_err(|error| ChaosError::failed("cannot create the replica set", error))?;
        let client =
            client(&uri(&hosts)).await.map_err(|error| ChaosError::failed("cannot connect to MongoDB", error))?;
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
        // A paused primary does not respond, but its connections stay open.
        match timeout(RESPONSE_TIMEOUT, self.client.database("admin").run_command(command).into_future()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("timed out".to_owned()),
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

impl ServerGroup for Mongo {
    fn members(&mut self) -> &mut Members {
        &mut self.members
    }

    async fn leader(&self, _lot: usize) -> Result<usize, ChaosError> {
        let (deadline, mut problem) = (Instant::now() + ELECTION_TIMEOUT, String::new());
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
        // MongoDB refuses if no secondary can take over. Then this fault has no effect.
        let _ = self.client.database("admin").run_command(command).await;
    }

    async fn is_whole(&mut self) -> Result<(), ChaosError> {
        let (deadline, mut problem) = (Instant::now() + ELECTION_TIMEOUT, String::new());
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

/// True if there is one primary and all other members are secondaries.
fn is_whole(status: &Document) -> bool {
    let count = |wanted: &[i32]| {
        members_of(status).filter(|member| member.get_i32("state").is_ok_and(|state| wanted.contains(&state))).count()
    };
    count(&[1]) == 1 && count(&[1, 2]) == members_of(status).count()
}

fn states(status: &Document) -> String {
    members_of(status).map(|member| member.get_str("stateStr").unwrap_or("?")).collect::<Vec<_>>().join(", ")
}

fn member(environment: &RunEnvironment, program: &Path, number: usize) -> Result<Member, ChaosError> {
    let (name, port) = (format!("mongod-{number}"), free_port()?);
    let path = environment.path().join(&name);
    std::fs::create_dir(&path).map_err(error::file(&path))?;
    // By default a primary waits 15 seconds for its clients before it shuts down.
    let args = format!(
        "--replSet chaos --port {port} --bind_ip 127.0.0.1 --nounixsocket --wiredTigerCacheSizeGB 0.25 --oplogSize 128 \
         --quiet --setParameter diagnosticDataCollectionEnabled=false \
         --setParameter shutdownTimeoutMillisForSignaledShutdown=500 --dbpath"
    );
    let mut args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    args.push(path.display().to_string());
    Ok(Member { process: environment.process(name, program, args), port })
}

fn uri(hosts: &[String]) -> String {
    format!("mongodb://{}/?replicaSet=chaos", hosts.join(","))
}

async fn client(uri: &str) -> mongodb::error::Result<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    options.server_selection_timeout = Some(Duration::from_secs(2));
    Client::with_options(options)
}

/// Initiates the replica set. It elects a new primary after three seconds without the old one, not after the default of
/// ten, so that more faults fit into a run.
async fn initiate(hosts: &[String]) -> mongodb::error::Result<()> {
    let first = client(&format!("mongodb://{}/?directConnection=true", hosts[0])).await?;
    let members = hosts.iter().enumerate();
    let members: Vec<Document> =
        members.map(|(id, host)| doc! {"_id": i32::try_from(id).unwrap_or(0), "host": host}).collect();
    let settings = doc! {"electionTimeoutMillis": 3_000, "heartbeatIntervalMillis": 1_000};
    let config = doc! {"_id": "chaos", "members": members, "settings": settings};
    first.database("admin").run_command(doc! {"replSetInitiate": config}).await.map(|_| ())
}
