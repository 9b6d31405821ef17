//! `turnwheel bench`: measures this machine with these settings.

use crate::failure::Failure;
use crate::table::{print, print_json, print_table, table};
use base::config::load::LoadedSettings;
use clap::{Args, Subcommand};
use lab::bench::options::{
    AuthoringOptions, GraphOptions, InflightOptions, PythonOptions, RecoveryOptions, SessionsOptions, StreamOptions,
    TimersOptions, TurnsOptions, WorkflowsOptions,
};
use lab::bench::report::Report;
use lab::bench::{self, Problem, Progress};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use turnwheel::Engine;

const TURNS: &str = "\
Examples:
  turnwheel bench turns                                     closed loop with 1, 64 and 256 users
  turnwheel bench turns --actions 0,1,3 --concurrency 256   rows for turns with 0, 1 and 3 actions
  turnwheel bench turns --coordinator --no-floor            each turn decides one RESPOND
  turnwheel bench turns --rate 500 --seconds 60             open loop: 500 messages per second
  turnwheel bench turns --hot --concurrency 64              all messages in one session
  turnwheel bench turns --stored 1000000                    with a million idle sessions
  turnwheel bench turns --backend embedded --json           on the embedded file, as JSON
  turnwheel --set worker.concurrency=1024 bench turns --concurrency 1024

Latency is the time from a message's publication (open loop: from its intended time) until its reply is read from the \
stream of events. The floor makes the same queue and store commands in the same groups, without the engine. Floor and \
engine alternate under the same load, because the speed of most machines drifts. The ratio is the engine's throughput \
divided by the floor's.";

const INFLIGHT: &str = "\
Examples:
  turnwheel bench inflight                                     10,000 turns wait 2 s for the model
  turnwheel bench inflight --turns 2000 --model-latency 10s    fewer and longer turns
  turnwheel bench inflight --backend embedded

Each user writes the next message when the reply arrives. `peak waiting` is the largest number of concurrent turns, \
`added` the latency of a turn minus the latency of the model. The memory is the worker's.";

const TIMERS: &str = "\
Examples:
  turnwheel bench timers                                          100,000 wait, 2,000/s fire
  turnwheel bench timers --pending 1000000 --fire-rate 2000,5000
  turnwheel bench timers --backend embedded --pending 10000 --fire-rate 500

Timers are armed by commits of turns, as usual. The lateness of a timer is the time from its due time to the start of \
its turn, by the store's clock. Afterwards 200 timers fire per second while the leading scheduler is killed: the \
largest lateness is the take-over time.";

const SESSIONS: &str = "\
Examples:
  turnwheel bench sessions                    100,000 sessions
  turnwheel bench sessions --sessions 10000 --backend embedded

Each session has had one turn. `store` is the size of the session documents, `on disk` the size of everything, with \
turns and events within their retention. The growth is the size that further turns leave behind after their turns and \
events have expired, in sessions with full histories.";

const RECOVERY: &str = "\
Examples:
  turnwheel bench recovery                                      1,000 running turns, three times
  turnwheel --set worker.ack_wait=2s bench recovery --rounds 1

It kills (SIGKILL) a worker in which every turn waits for the model, while a second worker is idle. The latency is the \
time from the kill to each turn's reply. The second worker's model answers immediately.";

const WORKFLOWS: &str = "\
Examples:
  turnwheel bench workflows                         pipelines of 100 and 1,000 stages, 1,000 of 5
  turnwheel bench workflows --stages 5000 --runs 0      one pipeline only
  turnwheel bench workflows --backend embedded --json

Every stage is an agent whose model answers immediately. The time is from the first request to the end of the last \
run. The bytes are the data of runs, steps and events.";

const GRAPH: &str = "\
Examples:
  turnwheel bench graph                             200 runs of 10 and of 50 nodes, and a fan-out
  turnwheel bench graph --nodes 50 --runs 1000 --fan-out 0
  turnwheel bench graph --backend embedded --json

Every node is an LLM node. In the layers the model replies immediately, and each node waits for two nodes of the layer \
before it. The fan-out is one run whose nodes start concurrently and wait for a model of --model-latency. The bytes are \
the data of runs, steps and events.";

const STREAM: &str = "\
Examples:
  turnwheel bench stream                                  1 and 16 users
  turnwheel bench stream --users 64 --turns 1000          more concurrent users
  turnwheel bench stream --backend embedded --json

A FLOW streams the model's text. `model` is the time from the question to the first words if the stand-in for the \
model is called directly. `queue` and `SSE` are the times until a reader of the stream of events, or of a gateway's \
server-sent events, gets the first chunk; values with a plus are in addition to the model's time.";

const PYTHON: &str = "\
Examples:
  turnwheel bench python                            500 scripts for each figure
  turnwheel bench python --scripts 5000 --json
  turnwheel --set python.warm=4 bench python        more processes that wait

`cold` is the time of a script in a new process, `warm` in a process that waits for it, from the request to the output. \
The memory is the resident memory of a process that waits. It measures the runner of the settings python.*.";

const AUTHORING: &str = "\
Examples:
  turnwheel bench authoring                       1,000 dialogues, 10 at a time, and their limits
  turnwheel bench authoring --dialogues 100 --sessions 1
  turnwheel bench authoring --backend embedded --json

A dialogue has two messages over HTTP: the first leads to a question, the second to a workflow that is checked, tried out \
and published. The model replies immediately. Gateway, worker and scheduler are one process, whose memory is measured. \
`first event` is the time from the sending of a message to the first server-sent event, `generation` from the beginning \
of the document to the results of its tests. A figure that misses its required limit makes the exit status 1.";

const EXAMPLES: &str = "\
Examples:
  turnwheel bench turns                      turns per second and latency, compared with the floor
  turnwheel bench turns --backend embedded   the same on the embedded file
  turnwheel bench timers --json              JSON: {\"environment\": {…}, \"rows\": […]}

Without --nats and --mongodb it starts its own servers in a temporary folder: from NATS_SERVER_BIN and MONGOD_BIN, \
else the PATH, else target/servers. Use a release build, and run nothing else on the machine.";

/// Measure throughput, latency, memory and recovery
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Turns per second and latency from message to reply, compared with the floor of the servers
    #[command(after_help = TURNS)]
    Turns(TurnsOptions),
    /// Thousands of concurrent turns that wait for a slow model in one worker: throughput, added latency, memory
    #[command(after_help = INFLIGHT)]
    Inflight(InflightOptions),
    /// How late timers fire while many are pending, and the take-over time of the scheduler
    #[command(after_help = TIMERS)]
    Timers(TimersOptions),
    /// Storage of idle sessions, data written by a turn, and growth with retention
    #[command(after_help = SESSIONS)]
    Sessions(SessionsOptions),
    /// Time from the death of a worker to the replies of its running turns
    #[command(after_help = RECOVERY)]
    Recovery(RecoveryOptions),
    /// Stages of workflows per second, and the data of each stage
    #[command(after_help = WORKFLOWS)]
    Workflows(WorkflowsOptions),
    /// Nodes of graphs per second, the data of each node, and the time of a fan-out
    #[command(after_help = GRAPH)]
    Graph(GraphOptions),
    /// Time from the model's first words to the first chunk at readers of the queue and of server-sent events
    #[command(after_help = STREAM)]
    Stream(StreamOptions),
    /// Time of Python scripts in new and in waiting processes, scripts per second, and memory of a process
    #[command(after_help = PYTHON)]
    Python(PythonOptions),
    /// Dialogues of the authoring agent: first event, saves, gRPC, a large generation, memory, compared with their limits
    #[command(after_help = AUTHORING)]
    Authoring(AuthoringOptions),
    /// One process of a running benchmark
    #[command(hide = true)]
    Member { orders: PathBuf },
    /// Gateway, worker and scheduler of a running benchmark
    #[command(hide = true)]
    Engine { settings: PathBuf },
}

impl Bench {
    pub async fn run(self, loaded: &LoadedSettings) -> anyhow::Result<()> {
        let (progress, settings, env) = (Shown::default(), &loaded.settings, &loaded.env);
        let json = self.what.json();
        let work = async {
            let report = match &self.what {
                BenchCommand::Turns(options) => Box::pin(bench::turns::run(options, settings, env, &progress)).await?,
                BenchCommand::Inflight(options) => {
                    Box::pin(bench::inflight::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Timers(options) => {
                    Box::pin(bench::timers::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Sessions(options) => {
                    Box::pin(bench::sessions::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Recovery(options) => {
                    Box::pin(bench::recovery::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Workflows(options) => {
                    Box::pin(bench::workflows::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Graph(options) => Box::pin(bench::graph::run(options, settings, env, &progress)).await?,
                BenchCommand::Stream(options) => {
                    Box::pin(bench::stream::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Python(options) => {
                    Box::pin(bench::python::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Authoring(options) => {
                    Box::pin(bench::authoring::run(options, settings, env, &progress)).await?
                }
                BenchCommand::Engine { settings } => return Box::pin(serve_engine(settings)).await.map(|()| None),
                BenchCommand::Member { orders } => return Box::pin(bench::member::serve(orders)).await.map(|()| None),
            };
            Ok(Some(report))
        };
        // An interrupted benchmark still stops its servers and removes its folder.
        let done: anyhow::Result<Option<Report>> = tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        };
        progress.end();
        match done.map_err(with_hint)? {
            Some(report) => {
                if json {
                    print_json(&report)?;
                } else {
                    show(&report);
                }
                within_limits(&report)
            }
            None => Ok(()),
        }
    }
}

impl BenchCommand {
    const fn json(&self) -> bool {
        match self {
            Self::Turns(options) => options.target.json,
            Self::Inflight(options) => options.target.json,
            Self::Timers(options) => options.target.json,
            Self::Sessions(options) => options.target.json,
            Self::Recovery(options) => options.target.json,
            Self::Workflows(options) => options.target.json,
            Self::Graph(options) => options.target.json,
            Self::Stream(options) => options.target.json,
            Self::Python(options) => options.json,
            Self::Authoring(options) => options.target.json,
            Self::Member { .. } | Self::Engine { .. } => false,
        }
    }
}

/// Runs gateway, gRPC, worker and scheduler until the standard input closes, which happens when the benchmark ends.
async fn serve_engine(settings: &Path) -> anyhow::Result<()> {
    let engine = Engine::builder(bench::authoring::engine_settings(settings)?).open().await?;
    engine.start_gateway().await?;
    engine.start_grpc().await?;
    engine.start_scheduler();
    engine.start_worker()?;
    let _ = tokio::io::stdin().read(&mut [0; 1]).await;
    engine.stop().await;
    Ok(())
}

/// Fails if a figure misses its required limit.
fn within_limits(report: &Report) -> anyhow::Result<()> {
    let missed = report.missed();
    if missed.is_empty() {
        return Ok(());
    }
    let message = format!("above the required limit: {}", missed.join(", "));
    Err(Failure::new(message, "use a release build, and run nothing else on the machine").into())
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

/// Prints progress to stderr: one line for each phase, and a line with the current figures that is overwritten.
struct Shown {
    ticked: Mutex<Option<Instant>>,
}

impl Default for Shown {
    fn default() -> Self {
        Self { ticked: Mutex::new(None) }
    }
}

impl Shown {
    /// Clears the line that is overwritten.
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
