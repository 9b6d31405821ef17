//! `turnwheel chaos`: the guarantees, tried on real servers that the command starts and ends itself.

use crate::failure::Failure;
use crate::table::print;
use base::config::load::Loaded;
use clap::Args;
use lab::chaos::{self, ChaosError, Fault, Options, Programs, Verdict};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  turnwheel chaos                                       five minutes of everything
  turnwheel chaos --minutes 1 --seed 42                 says and breaks the same things again
  turnwheel chaos --replicas 3                          three servers of each kind, and network cuts
  turnwheel chaos --faults worker-kill,mongodb-kill     only these
  turnwheel chaos --json > verdict.json                 for a build server; progress goes to stderr
  turnwheel --set worker.ack_wait=3s chaos              with settings of `worker` and `lane`

It starts nats-server (JetStream, sync_interval: always), a MongoDB replica set, workers, two schedulers and a gateway on \
free ports in a temporary folder, and plays the users, the model and the API behind the actions. While hundreds of \
conversations go on it kills, pauses and restarts all of them. Then it waits until all is quiet, and checks that
  every accepted message is answered or in the dead letters, once;
  replies come in order, under ids that tell a repeat;
  the recorded conversations are what was said;
  every action took effect once, and repeats came under the same key;
  there were only legal status transitions;
  no timer was early, lost or fired after its cancellation;
  no lane is left with work.
Recovery is the time from the SIGKILL of a worker to the commit of each turn that it had in hand.

Exit status: 0 all promises kept, 1 not, 2 wrong use. After a failure the logs of all processes \
(as TURNWHEEL_LOG says) and all facts are kept.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Chaos {
    /// How long things go wrong
    #[arg(long, default_value_t = 5.0, value_parser = positive)]
    minutes: f64,
    /// Decides what is said and what goes wrong; printed, so that a failure can be tried again
    #[arg(long)]
    seed: Option<u64>,
    /// Messages a second; held back while the queue is too long
    #[arg(long, default_value_t = 20.0, value_parser = positive)]
    rate: f64,
    /// Worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=32))]
    workers: u8,
    /// NATS servers in a cluster, each with a copy of every stream; with several, servers also lead, follow and are cut off
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Members of the MongoDB replica set; with one there is nobody to fail over to [default: as many as --replicas, but 3 at least]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=7))]
    mongodb_members: Option<u8>,
    /// Only these faults, with commas between them; all unless given
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', value_parser = fault)]
    faults: Vec<Fault>,
    /// The nats-server program; else NATS_SERVER_BIN, else from the path, else from target/servers
    #[arg(long, value_name = "PROGRAM")]
    nats_server: Option<PathBuf>,
    /// The mongod program; else MONGOD_BIN, else from the path, else from target/servers
    #[arg(long, value_name = "PROGRAM")]
    mongod: Option<PathBuf>,
    /// Fail, too, when the recovery of killed workers' turns takes longer at p99, where nothing else failed meanwhile
    #[arg(long, value_name = "DURATION", value_parser = types::duration::parse)]
    max_recovery: Option<Duration>,
    /// Keep the folder with the logs and all facts, also when all went well
    #[arg(long)]
    keep: bool,
    /// Print the verdict as JSON, with every fault
    #[arg(long)]
    json: bool,
}

impl Chaos {
    pub async fn run(self, loaded: Loaded) -> anyhow::Result<ExitCode> {
        let programs = Programs::find(self.nats_server, self.mongod, &loaded.env).map_err(|error| failure(&error))?;
        let options = Options {
            // Short enough to be typed again.
            seed: self.seed.unwrap_or_else(|| rand::random_range(0..1_000_000)),
            duration: Duration::from_secs_f64(self.minutes * 60.0),
            rate: self.rate,
            workers: self.workers.into(),
            replicas: self.replicas.into(),
            members: self.mongodb_members.unwrap_or(self.replicas.max(3)).into(),
            faults: self.faults,
            programs,
            turnwheel: std::env::current_exe()?,
            log: loaded.env.get("TURNWHEEL_LOG").map(str::to_owned),
            settings: loaded.settings,
            keep: self.keep,
        };
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let running = chaos::run(options, stop.clone(), |line| eprintln!("{line}"));
        tokio::pin!(running);
        let verdict = tokio::select! {
            verdict = &mut running => verdict,
            _ = tokio::signal::ctrl_c() => { stop.cancel(); running.await }
            _ = terminate.recv() => { stop.cancel(); running.await }
        };
        let verdict = verdict.map_err(|error| failure(&error))?;
        let slow = self.max_recovery.is_some_and(|limit| is_slower(&verdict, limit));
        if self.json {
            print(&serde_json::to_string_pretty(&verdict)?);
        } else {
            print(verdict.to_string().trim_end());
        }
        if slow {
            eprintln!("error: the recovery of killed workers' turns took longer than --max-recovery");
        }
        Ok(if verdict.clean && !slow { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn is_slower(verdict: &Verdict, limit: Duration) -> bool {
    Duration::from_millis(verdict.recovery.undisturbed.p99_ms) > limit
}

fn failure(error: &ChaosError) -> Failure {
    let hint = error.hint();
    Failure::new(error.to_string(), hint)
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0 && *number <= 100_000.0)
        .ok_or_else(|| "give a number above 0".to_owned())
}

fn fault(text: &str) -> Result<Fault, String> {
    text.parse().map_err(|error: ChaosError| error.to_string())
}
