//! `turnwheel chaos`: tests the guarantees on real servers, which the command starts and stops itself.

use crate::failure::Failure;
use crate::table::print;
use base::config::load::LoadedSettings;
use clap::Args;
use lab::chaos::{self, ChaosError, Fault, Options, Programs, Verdict};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  turnwheel chaos                                       all faults for five minutes
  turnwheel chaos --minutes 1 --seed 42                 repeat the same conversations and faults
  turnwheel chaos --replicas 3                          three servers of each kind, and network cuts
  turnwheel chaos --faults worker-kill,mongodb-kill     only these faults
  turnwheel chaos --json > verdict.json                 for a build server; progress goes to stderr
  turnwheel --set worker.ack_wait=3s chaos              with other settings of `worker` and `lane`

It starts nats-server (JetStream, sync_interval: always), a MongoDB replica set, workers, two schedulers and a gateway \
on free ports in a temporary folder, and plays the users, the model and the API behind the actions. It kills, pauses \
and restarts all of them during hundreds of conversations. Then it waits until all work is done, and checks that
  every accepted message leads to one turn or one dead letter;
  replies arrive in order, and repeats have the same id;
  the recorded conversations match the messages and replies;
  every action took effect once, and repeated calls had the same idempotency key;
  all status transitions were legal;
  every authoring dialogue has one state with every message once, and published each document once;
  no timer fired early, was lost, or fired after its cancellation;
  no lane has unprocessed work.
The recovery time of a turn is the time from the SIGKILL of its worker to its commit.

Exit status: 0 all checks passed, 1 a check failed, 2 wrong usage. After a failure the logs of all processes (at the \
level of TURNWHEEL_LOG) and all recorded evidence are kept.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Chaos {
    /// How long faults are injected, in minutes
    #[arg(long, default_value_t = 5.0, value_parser = positive)]
    minutes: f64,
    /// Seed of the conversations and faults; printed, so that a failure can be repeated [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Messages per second; fewer while the queue is too long
    #[arg(long, default_value_t = 20.0, value_parser = positive)]
    rate: f64,
    /// Worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=32))]
    workers: u8,
    /// NATS servers in a cluster, each with a copy of every stream; from two on, faults also cut the network between them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Members of the MongoDB replica set; a set of one has no failover [default: as many as --replicas, at least 3]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=7))]
    mongodb_members: Option<u8>,
    /// Only these faults, separated by commas [default: all]
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', value_parser = fault)]
    faults: Vec<Fault>,
    /// The nats-server program [default: NATS_SERVER_BIN, else from the PATH, else from target/servers]
    #[arg(long, value_name = "PROGRAM")]
    nats_server: Option<PathBuf>,
    /// The mongod program [default: MONGOD_BIN, else from the PATH, else from target/servers]
    #[arg(long, value_name = "PROGRAM")]
    mongod: Option<PathBuf>,
    /// Fail if recovery takes longer: p99 over the turns of killed workers that no other fault has hit
    #[arg(long, value_name = "DURATION", value_parser = types::duration::parse)]
    max_recovery: Option<Duration>,
    /// Keep the folder with logs and evidence even if all checks pass
    #[arg(long)]
    keep: bool,
    /// Print the verdict as JSON, with every fault
    #[arg(long)]
    json: bool,
}

impl Chaos {
    pub async fn run(self, loaded: LoadedSettings) -> anyhow::Result<ExitCode> {
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
