//! The NATS servers of a run: one server that syncs before it acknowledges, or a cluster in which every server has
//! every stream.

use super::members::{Member, Members, ServerGroup};
use super::monitors::Monitors;
use super::network::Network;
use crate::chaos::environment::RunEnvironment;
use crate::chaos::error::{self, ChaosError};
use crate::port::free_port;
use async_nats::jetstream::{self, Context};
use base::tasks::Tasks;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time limit for the election of a leader.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limits: for a server to become healthy, and for all servers to have the same messages when nothing is
/// published.
const HEALING_TIMEOUT: Duration = Duration::from_secs(30);
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(15);
/// Number of restarts of lagging servers before the run fails.
const MAX_MENDS: usize = 3;
/// Time limit for a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
// Names of streams and consumer in the default namespace.
const JOBS: &str = "TW_JOBS";
const OUT: &str = "TW_OUT";
const WORKERS: &str = "workers";

/// The NATS servers of a run.
pub(in crate::chaos) struct Nats {
    members: Members,
    monitors: Monitors,
    mended: u64,
}

/// The ports of one server.
struct Ports {
    clients: u16,
    monitor: u16,
    routes: u16,
    /// Port of the proxy in front of `routes`.
    advertised: u16,
}

impl Nats {
    /// Starts `count` servers and waits until all are healthy.
    pub(in crate::chaos) async fn start(
        environment: &RunEnvironment,
        program: &Path,
        count: usize,
        tasks: &Tasks,
    ) -> Result<Self, ChaosError> {
        let network = (count > 1).then(|| Network::new(count, tasks));
        let mut ports = Vec::new();
        for place in 0..count {
            let (clients, monitor, routes) = (free_port()?, free_port()?, free_port()?);
            let advertised = match &network {
                Some(network) => network.listen(place, routes).await?,
                None => routes,
            };
            ports.push(Ports { clients, monitor, routes, advertised });
        }
        let mut all = Vec::new();
        for place in 0..count {
            let name = if count == 1 { "nats".to_owned() } else { format!("nats-{}", place + 1) };
            let config = environment.path().join(format!("{name}.conf"));
            let text = configuration(&ports, place, &name, &environment.path().join(&name));
            std::fs::write(&config, text).map_err(error::file(&config))?;
            let process = environment.process(name, program, vec!["-c".into(), config.display().to_string()]);
            all.push(Member { process, port: ports[place].clients });
        }
        let members = Members { all, network };
        let monitors = Monitors::new(ports.iter().map(|ports| ports.monitor).collect())?;
        let mut nats = Self { members, monitors, mended: 0 };
        for member in 0..count {
            nats.members.go_on(member).await?;
        }
        nats.is_whole().await?;
        Ok(nats)
    }

    /// The addresses of all servers, in the format of the setting `nats.url`.
    pub(in crate::chaos) fn url(&self) -> String {
        let urls: Vec<String> = self.members.all.iter().map(url).collect();
        urls.join(",")
    }

    /// Waits until all servers have the same messages in their streams, because any of them may serve a reader.
    pub(in crate::chaos) async fn agree(&mut self) -> Result<(), ChaosError> {
        self.mend(AGREEMENT_TIMEOUT, async |monitors| monitors.disagreeing().await).await
    }

    /// Number of servers that caught up only after a restart.
    pub(in crate::chaos) fn mended(&self) -> u64 {
        self.mended
    }

    /// Waits until `amiss` finds no problem. A replica may permanently stop following its leader, a defect of the
    /// server. Then the run restarts that server, as its operator would.
    async fn mend(
        &mut self,
        limit: Duration,
        amiss: impl AsyncFn(&Monitors) -> Option<(usize, String)>,
    ) -> Result<(), ChaosError> {
        if self.members.count() == 1 {
            return Ok(());
        }
        let mut problem = String::new();
        for restarts in 0..=MAX_MENDS {
            let deadline = Instant::now() + limit;
            let member = loop {
                let Some((member, found)) = amiss(&self.monitors).await else { return Ok(()) };
                problem = format!("{}: {found}", self.members.name(member));
                if Instant::now() > deadline {
                    break member;
                }
                sleep(Duration::from_millis(200)).await;
            };
            if restarts == MAX_MENDS {
                break;
            }
            self.mended += 1;
            self.members.stop(member).await;
            self.members.go_on(member).await?;
        }
        Err(ChaosError::failed("a NATS server does not catch up", problem))
    }

    /// Name of the leader, from the first server that knows it.
    async fn leader_name(&self, lot: usize) -> Option<String> {
        for member in &self.members.all {
            let asked = async { leader_of(&connected(member).await?, lot).await };
            if let Ok(Some(name)) = timeout(RESPONSE_TIMEOUT, asked).await {
                return Some(name);
            }
        }
        None
    }
}

async fn connected(member: &Member) -> Option<Context> {
    Some(jetstream::new(async_nats::connect(url(member)).await.ok()?))
}

fn url(member: &Member) -> String {
    format!("nats://127.0.0.1:{}", member.port)
}

/// The configuration file of one server. Frequent pings let servers and clients quickly detect a connection that a
/// fault has silenced.
fn configuration(ports: &[Ports], place: usize, name: &str, store: &Path) -> String {
    let Ports { clients, monitor, routes, advertised } = &ports[place];
    let alone = ports.len() == 1;
    // In a cluster, three copies replace the sync to disk.
    let sync = if alone { "  sync_interval: always\n" } else { "" };
    let mut text = format!(
        "server_name: {name}\nlisten: 127.0.0.1:{clients}\nhttp: 127.0.0.1:{monitor}\nping_interval: 2\nping_max: 2\n\
         jetstream {{\n  store_dir: {:?}\n{sync}}}\n",
        store.display().to_string()
    );
    if !alone {
        let others = ports.iter().enumerate().filter(|(other, _)| *other != place);
        let others: Vec<String> =
            others.map(|(_, other)| format!("nats-route://127.0.0.1:{}", other.advertised)).collect();
        text.push_str(&format!(
            "cluster {{\n  name: chaos\n  listen: 127.0.0.1:{routes}\n  advertise: \"127.0.0.1:{advertised}\"\n  \
             ping_interval: 2\n  routes: [{}]\n}}\n",
            others.join(", ")
        ));
    }
    text
}

/// The leader of the jobs stream, of its consumer or of the events stream; `lot` picks one.
async fn leader_of(context: &Context, lot: usize) -> Option<String> {
    let stream = context.get_stream(if lot % 3 == 2 { OUT } else { JOBS }).await.ok()?;
    let group = match lot % 3 {
        1 => stream.consumer_info(WORKERS).await.ok()?.cluster,
        _ => stream.cached_info().cluster.clone(),
    };
    group?.leader
}

impl ServerGroup for Nats {
    fn members(&mut self) -> &mut Members {
        &mut self.members
    }

    async fn leader(&self, lot: usize) -> Result<usize, ChaosError> {
        if self.members.count() == 1 {
            return Ok(0);
        }
        let deadline = Instant::now() + ELECTION_TIMEOUT;
        while Instant::now() < deadline {
            let name = self.leader_name(lot).await;
            let place = (0..self.members.count()).find(|place| name.as_deref() == Some(self.members.name(*place)));
            if let Some(place) = place {
                return Ok(place);
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(ChaosError::failed(
            "NATS has no leader",
            format!("no leader was elected within {} s", ELECTION_TIMEOUT.as_secs()),
        ))
    }

    async fn hand_over(&self, lot: usize) {
        let subject = match lot % 3 {
            0 => format!("STREAM.LEADER.STEPDOWN.{JOBS}"),
            1 => format!("CONSUMER.LEADER.STEPDOWN.{JOBS}.{WORKERS}"),
            _ => format!("STREAM.LEADER.STEPDOWN.{OUT}"),
        };
        for member in &self.members.all {
            let asked =
                async { connected(member).await?.request::<_, _, serde_json::Value>(subject.clone(), &()).await.ok() };
            // If the server refuses, this fault has no effect.
            if let Ok(Some(_)) = timeout(RESPONSE_TIMEOUT, asked).await {
                return;
            }
        }
    }

    async fn is_whole(&mut self) -> Result<(), ChaosError> {
        self.mend(HEALING_TIMEOUT, async |monitors| monitors.ill().await).await
    }
}
