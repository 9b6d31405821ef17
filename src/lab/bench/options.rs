//! Command line options of the benchmarks.

use base::config::Backend;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use types::duration;

/// Backend and servers of a benchmark.
#[derive(Args, Clone, Debug)]
pub struct TargetOptions {
    /// `cluster`: NATS JetStream and MongoDB; `embedded`: one file in this process
    #[arg(long, value_name = "BACKEND", default_value = "cluster", value_parser = backend)]
    pub backend: Backend,
    /// URL of an existing nats-server with JetStream; by default the benchmark starts one
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// URI of an existing MongoDB replica set; by default the benchmark starts one with a single node
    #[arg(long, value_name = "URI")]
    pub mongodb: Option<String>,
    /// `sync_interval` of the nats-server that the benchmark starts, such as `10s` or `always` [default: 2m, the
    /// server's own]
    #[arg(long, value_name = "INTERVAL", value_parser = sync_interval)]
    pub nats_sync: Option<String>,
    /// Folder for the data of the servers or of the embedded file [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `bench turns`.
#[derive(Args, Clone, Debug)]
pub struct TurnsOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Actions in each turn; each value of a list makes a row
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    pub actions: Vec<usize>,
    /// Actions are HTTP calls to a server in this process; by default they are functions in the worker that return
    /// immediately
    #[arg(long)]
    pub http_actions: bool,
    /// The agent is a coordinator: each turn judges and carries out one RESPOND decision
    #[arg(long, conflicts_with_all = ["actions", "http_actions"])]
    pub coordinator: bool,
    /// Closed loop: number of users, each of whom writes again when the reply arrives; each value of a list makes a row
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,64,256", value_parser = positive)]
    pub concurrency: Vec<usize>,
    /// Open loop: messages per second regardless of replies, latency counted from the intended time; each value of a
    /// list makes a row
    #[arg(long, value_name = "PER_SECOND", value_delimiter = ',', conflicts_with = "concurrency", value_parser = rate)]
    pub rate: Vec<f64>,
    /// Sessions that receive messages, chosen at random; raised to four per user if lower
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = positive)]
    pub sessions: usize,
    /// Additional stored sessions that receive no messages
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub stored: usize,
    /// Send all messages to one session
    #[arg(long)]
    pub hot: bool,
    /// Additional users who all write to one more session; throughput and latencies are those of the other users
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "hot")]
    pub hot_users: usize,
    /// Workers: processes on a cluster, instances in this process on the embedded file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
    /// Open consoles: readers of the events of all sessions, from one gateway
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub consoles: usize,
    /// Latency of the model
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration::parse)]
    pub model_latency: Duration,
    /// Measured time of each row, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// How long the load runs before the measurement
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub warm_up: Duration,
    /// Do not measure the floor for each row
    #[arg(long)]
    pub no_floor: bool,
}

/// Options of `bench inflight`.
#[derive(Args, Clone, Debug)]
pub struct InflightOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Concurrent turns, all in one worker
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive)]
    pub turns: usize,
    /// Latency of the model
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub model_latency: Duration,
    /// Measured time, in seconds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// How long the load runs before the measurement
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub warm_up: Duration,
}

/// Options of `bench recovery`.
#[derive(Args, Clone, Debug)]
pub struct RecoveryOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Turns in flight in the worker that is killed
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = positive)]
    pub turns: usize,
    /// Number of rounds; each makes a row
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = positive)]
    pub rounds: usize,
}

/// Options of `bench sessions`.
#[derive(Args, Clone, Debug)]
pub struct SessionsOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Idle sessions, each with one finished turn
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = positive)]
    pub sessions: usize,
    /// Turns for measuring how the data grows under retention
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive)]
    pub turns: usize,
    /// Retention of turns and events while growth is measured
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub retention: Duration,
}

/// Options of `bench python`.
#[derive(Args, Clone, Debug)]
pub struct PythonOptions {
    /// Scripts of each of the three measurements
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = positive)]
    pub scripts: usize,
    /// Folder for the benchmark's files [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Options of `bench workflows`.
#[derive(Args, Clone, Debug)]
pub struct WorkflowsOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Stages of one pipeline, whose agents reply immediately; each value of a list makes a row
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,1000", value_parser = positive)]
    pub stages: Vec<usize>,
    /// Runs of a short pipeline, all started concurrently; 0 skips this row
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub runs: usize,
    /// Stages of the short pipeline
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    pub run_stages: usize,
    /// Workers: processes on a cluster, instances in this process on the embedded file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
}

/// Options of `bench graph`.
#[derive(Args, Clone, Debug)]
pub struct GraphOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// LLM nodes of a graph, in layers of 5, with a model that replies immediately: a multiple of 5 from 10; each value
    /// of a list makes a row
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,50", value_parser = positive)]
    pub nodes: Vec<usize>,
    /// Runs of each graph in layers, all started concurrently
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = positive)]
    pub runs: usize,
    /// Number of LLM nodes that start concurrently in a single run; 0 skips this row
    #[arg(long, value_name = "N", default_value_t = 49)]
    pub fan_out: usize,
    /// Latency of the model in the fan-out
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub model_latency: Duration,
    /// Workers: processes on a cluster, instances in this process on the embedded file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
}

/// Options of `bench authoring`.
#[derive(Args, Clone, Debug)]
pub struct AuthoringOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Dialogues that run at the same time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive)]
    pub sessions: usize,
    /// Dialogues in all, each of two messages that lead to a published workflow; the memory is measured after a tenth,
    /// a half and all of them
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = positive)]
    pub dialogues: usize,
    /// Generations of a graph of 50 nodes, one after the other
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    pub generations: usize,
    /// New gRPC connections, one after the other
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = positive)]
    pub connections: usize,
}

/// Options of `bench timers`.
#[derive(Args, Clone, Debug)]
pub struct TimersOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Armed timers that are not due while others fire; each value of a list makes a row
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100000", value_parser = positive)]
    pub pending: Vec<usize>,
    /// Timers due per second; each value of a list makes a row
    #[arg(long, value_name = "PER_SECOND", value_delimiter = ',', default_value = "2000", value_parser = positive)]
    pub fire_rate: Vec<usize>,
    /// How long timers fire, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive)]
    pub seconds: usize,
    /// Workers that run the timers' turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
    /// Do not kill the leading scheduler afterwards
    #[arg(long)]
    pub no_takeover: bool,
}

/// Options of `bench stream`.
#[derive(Args, Clone, Debug)]
pub struct StreamOptions {
    /// Backend and servers
    #[command(flatten)]
    pub target: TargetOptions,
    /// Number of users, each of whom writes again when the whole text has arrived; each value of a list makes a row
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16", value_parser = positive)]
    pub users: Vec<usize>,
    /// Turns of all users together
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = positive)]
    pub turns: usize,
    /// Time until the model's first token
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration::parse)]
    pub first_token: Duration,
    /// Pause before each further token
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = duration::parse)]
    pub token_pause: Duration,
    /// Tokens of each text
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = positive)]
    pub tokens: usize,
    /// Workers: processes on a cluster, instances in this process on the embedded file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
}

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "cluster" => Ok(Backend::Cluster),
        "embedded" => Ok(Backend::Embedded),
        _ => Err("expected `cluster` or `embedded`".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0 && *rate <= 1e6);
    rate.ok_or_else(|| "expected a number above 0 and at most 1000000".to_owned())
}

fn sync_interval(text: &str) -> Result<String, String> {
    match text {
        "always" => Ok(text.to_owned()),
        _ => duration::parse(text).map(|_| text.to_owned()),
    }
}
