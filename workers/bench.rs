//! `turnwheel bench`: what this machine and these settings are good for.

use crate::failure::Failure;
use crate::table::{print, print_json, print_table, table};
use base::config::load::Loaded;
use clap::{Args, Subcommand};
use lab::bench::options::{
    InflightOptions, RecoveryOptions, SessionsOptions, StreamOptions, TimersOptions, TurnsOptions, WorkflowsOptions,
};
use lab::bench::report::Report;
use lab::bench::{self, Problem, Progress};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const TURNS: &str = "\
Examples:
  turnwheel bench turns                                     closed loop with 1, 64 and 256 users
  turnwheel bench turns --actions 0,1,3 --concurrency 256   rows for turns with 0, 1 and 3 actions
  turnwheel bench turns --rate 500 --seconds 60             open loop: 500 messages a second
  turnwheel bench turns --hot --concurrency 64              all messages in one session
  turnwheel bench turns --stored 1000000                    beside a million sessions that are idle
  turnwheel bench turns --backend embedded --json           the embedded file; JSON
  turnwheel --set worker.concurrency=1024 bench turns --concurrency 1024

The latency is from the message's publication (open loop: from when it was due) until its reply is seen on the out \
stream. The floor is the same number of queue and store commands in the same groups with no engine between them, measured \
in turns with the engine under the same load, since the speed of most machines drifts; the ratio is how much of it the \
engine reaches.";

const INFLIGHT: &str = "\
Examples:
  turnwheel bench inflight                                     10,000 wait for a model of 2 s
  turnwheel bench inflight --turns 2000 --model-latency 10s    fewer, longer
  turnwheel bench inflight --backend embedded

Each of so many users writes again as soon as the reply is there. `waiting at once` is how many turns had begun and not \
replied at the same time; `added` is the latency beyond the model's; the memory is the worker's.";

const TIMERS: &str = "\
Examples:
  turnwheel bench timers                                          100,000 wait, 2,000/s fire
  turnwheel bench timers --pending 1000000 --fire-rate 2000,5000
  turnwheel bench timers --backend embedded --pending 10000 --fire-rate 500

Timers are armed as the commit of a turn arms them. A timer is as late as its turn begins after its due time, by the \
store's clock. Then 200 fire each second while the leading scheduler is killed: the latest of them is the take-over time.";

const SESSIONS: &str = "\
Examples:
  turnwheel bench sessions                    100,000 sessions
  turnwheel bench sessions --sessions 10000 --backend embedded

Sessions have had one turn each. `store` is the session documents, `on disk` everything that there is, with the turns and \
events of the retention. The growth is what more turns leave behind once their turns and events have expired, in sessions \
whose histories are full.";

const RECOVERY: &str = "\
Examples:
  turnwheel bench recovery                                      1,000 turns in hand, three times
  turnwheel --set worker.ack_wait=2s bench recovery --rounds 1

A worker that waits for its model in every turn is killed (SIGKILL) while a second one is idle; the latency is from there \
to each turn's reply. The second worker's model answers at once.";

const WORKFLOWS: &str = "\
Examples:
  turnwheel bench workflows                         pipelines of 100 and 1,000 stages, 1,000 of 5
  turnwheel bench workflows --stages 5000 --runs 0      one pipeline alone
  turnwheel bench workflows --backend embedded --json

Every stage is an agent whose model answers at once. The time is from the first request to the last run's end; the bytes \
are what runs, steps and events take, as data.";

const STREAM: &str = "\
Examples:
  turnwheel bench stream                                  1 and 16 users
  turnwheel bench stream --users 64 --turns 1000          more at once
  turnwheel bench stream --backend embedded --json

A FLOW says its text while the model makes it. `model` is the time from the question to the first words when the model's stand-in \
is asked directly, `queue` and `SSE` that to the first chunk at a reader of the out stream and of a gateway's events; what is \
with a plus is theirs beyond the model's own.";

const EXAMPLES: &str = "\
Examples:
  turnwheel bench turns                      turns a second and latency, beside the floor
  turnwheel bench turns --backend embedded   the same on the embedded file
  turnwheel bench timers --json              JSON: {\"environment\": {…}, \"rows\": […]}

Without --nats and --mongodb, servers of the benchmark's own are started in a temporary folder: from NATS_SERVER_BIN and \
MONGOD_BIN, else the PATH, else target/servers. Use a release build, and leave the machine to it.";

/// Measure throughput, latency, memory and recovery
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Turns a second and latency from message to reply, beside the floor of the servers
    #[command(after_help = TURNS)]
    Turns(TurnsOptions),
    /// Thousands of turns at once that wait for a slow model, in one worker: throughput, added latency, memory
    #[command(after_help = INFLIGHT)]
    Inflight(InflightOptions),
    /// Arming timers, how late they fire while many wait, and the scheduler's take-over
    #[command(after_help = TIMERS)]
    Timers(TimersOptions),
    /// What idle sessions cost, what a turn writes, and what grows with retention on
    #[command(after_help = SESSIONS)]
    Sessions(SessionsOptions),
    /// From the death of a worker to the replies of the turns that it had in hand
    #[command(after_help = RECOVERY)]
    Recovery(RecoveryOptions),
    /// Stages a second of workflows, and what a stage leaves behind
    #[command(after_help = WORKFLOWS)]
    Workflows(WorkflowsOptions),
    /// From the model's first words to the first chunk at readers of the queue and of server-sent events
    #[command(after_help = STREAM)]
    Stream(StreamOptions),
    /// A process of a running benchmark
    #[command(hide = true)]
    Member { orders: PathBuf },
}

impl Bench {
    pub async fn run(self, loaded: &Loaded) -> anyhow::Result<()> {
        let (progress, settings, env) = (Shown::default(), &loaded.settings, &loaded.env);
        let json = self.what.json();
        let work = async {
            let report = match &self.what {
                What::Turns(options) => Box::pin(bench::turns::run(options, settings, env, &progress)).await?,
                What::Inflight(options) => Box::pin(bench::inflight::run(options, settings, env, &progress)).await?,
                What::Timers(options) => Box::pin(bench::timers::run(options, settings, env, &progress)).await?,
                What::Sessions(options) => Box::pin(bench::sessions::run(options, settings, env, &progress)).await?,
                What::Recovery(options) => Box::pin(bench::recovery::run(options, settings, env, &progress)).await?,
                What::Workflows(options) => Box::pin(bench::workflows::run(options, settings, env, &progress)).await?,
                What::Stream(options) => Box::pin(bench::stream::run(options, settings, env, &progress)).await?,
                What::Member { orders } => return Box::pin(bench::crew::serve(orders)).await.map(|()| None),
            };
            Ok(Some(report))
        };
        // An interrupted benchmark still ends its servers and removes its folder.
        let done: anyhow::Result<Option<Report>> = tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        };
        progress.end();
        match done.map_err(with_hint)? {
            Some(report) if json => print_json(&report),
            Some(report) => {
                show(&report);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl What {
    const fn json(&self) -> bool {
        match self {
            Self::Turns(options) => options.site.json,
            Self::Inflight(options) => options.site.json,
            Self::Timers(options) => options.site.json,
            Self::Sessions(options) => options.site.json,
            Self::Recovery(options) => options.site.json,
            Self::Workflows(options) => options.site.json,
            Self::Stream(options) => options.site.json,
            Self::Member { .. } => false,
        }
    }
}

fn with_hint(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Problem>() {
        Some(problem) => Failure::new(&problem.message, &problem.hint).into(),
        None => error,
    }
}

fn show(report: &Report) {
    for line in report.conditions() {
        print(line);
    }
    print("");
    let mut table = table(&report.columns.iter().map(|(heading, _)| *heading).collect::<Vec<_>>());
    for row in &report.rows {
        table.add_row(report.cells(row));
    }
    print_table(&table);
}

/// Progress on stderr: phases as lines, what they have come to in a line that is written over.
struct Shown {
    ticked: Mutex<Option<Instant>>,
}

impl Default for Shown {
    fn default() -> Self {
        Self { ticked: Mutex::new(None) }
    }
}

impl Shown {
    /// Clears the line that is written over.
    fn end(&self) {
        if std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Progress for Shown {
    fn phase(&self, text: &str) {
        self.end();
        let _ = writeln!(std::io::stderr(), "bench: {text}");
    }

    fn tick(&self, text: &str) {
        let Ok(mut ticked) = self.ticked.lock() else { return };
        if std::io::stderr().is_terminal() && ticked.is_none_or(|at| at.elapsed() > Duration::from_millis(100)) {
            *ticked = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r\x1b[K  {text}");
            let _ = std::io::stderr().flush();
        }
    }
}
