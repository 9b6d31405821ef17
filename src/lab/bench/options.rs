//! What may be asked of the benchmarks, as the command line has it.

use base::config::Backend;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use types::duration;

/// Where a benchmark runs.
#[derive(Args, Clone, Debug)]
pub struct SiteOptions {
    /// `cluster`: NATS JetStream and MongoDB; `embedded`: one file in this process
    #[arg(long, value_name = "BACKEND", default_value = "cluster", value_parser = backend)]
    pub backend: Backend,
    /// An existing nats-server with JetStream; else one of the benchmark's own is started
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
    /// An existing MongoDB replica set; else a single-node one of the benchmark's own is started
    #[arg(long, value_name = "URI")]
    pub mongodb: Option<String>,
    /// `sync_interval` of the nats-server that is started, such as `10s` or `always`; its default is 2 minutes
    #[arg(long, value_name = "INTERVAL", value_parser = sync_interval)]
    pub nats_sync: Option<String>,
    /// Folder for the data of servers and file; else the system's folder for temporary files
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON in place of a table
    #[arg(long)]
    pub json: bool,
}

/// What is asked of `bench turns`.
#[derive(Args, Clone, Debug)]
pub struct TurnsOptions {
    /// See there
    #[command(flatten)]
    pub site: SiteOptions,
    /// Actions in each turn; several make a row each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    pub actions: Vec<usize>,
    /// Actions are HTTP calls to a stand-in in this process; else functions in the worker, which answer at once
    #[arg(long)]
    pub http_actions: bool,
    /// Closed loop: so many users, each of whom writes again when the reply is there; several make a row each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,64,256", value_parser = positive)]
    pub concurrency: Vec<usize>,
    /// Open loop: so many messages a second whatever comes back, latency from the intended time; several make a row each
    #[arg(long, value_name = "PER_SECOND", value_delimiter = ',', conflicts_with = "concurrency", value_parser = rate)]
    pub rate: Vec<f64>,
    /// Sessions that messages go to, at random; at least four for each user
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = positive)]
    pub sessions: usize,
    /// Besides, so many sessions that are stored and get no messages
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub stored: usize,
    /// All messages go to one session
    #[arg(long)]
    pub hot: bool,
    /// Besides, so many users who all write to one more session; turns a second and latencies are those of the others
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "hot")]
    pub hot_users: usize,
    /// Workers: processes on a cluster, instances in this process on the embedded file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
    /// How long the model thinks
    #[arg(long, value_name = "DURATION", default_value = "0ms", value_parser = duration::parse)]
    pub model_latency: Duration,
    /// How long each row is measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// How long the load runs before that
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub warm_up: Duration,
    /// Do not measure the floor beside each row
    #[arg(long)]
    pub no_floor: bool,
}

/// What is asked of `bench inflight`.
#[derive(Args, Clone, Debug)]
pub struct InflightOptions {
    /// See there
    #[command(flatten)]
    pub site: SiteOptions,
    /// Turns at once, all in one worker
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive)]
    pub turns: usize,
    /// How long the model thinks
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub model_latency: Duration,
    /// How long it is measured
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// How long the load runs before that
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub warm_up: Duration,
}

/// What is asked of `bench recovery`.
#[derive(Args, Clone, Debug)]
pub struct RecoveryOptions {
    /// See there
    #[command(flatten)]
    pub site: SiteOptions,
    /// Turns that the killed worker has in hand
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = positive)]
    pub turns: usize,
    /// How often; each makes a row
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = positive)]
    pub rounds: usize,
}

/// What is asked of `bench sessions`.
#[derive(Args, Clone, Debug)]
pub struct SessionsOptions {
    /// See there
    #[command(flatten)]
    pub site: SiteOptions,
    /// Sessions that had one turn and are idle
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = positive)]
    pub sessions: usize,
    /// Turns by which the growth with retention is measured
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive)]
    pub turns: usize,
    /// How long turns and events are kept while the growth is measured
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub retention: Duration,
}

/// What is asked of `bench workflows`.
#[derive(Args, Clone, Debug)]
pub struct WorkflowsOptions {
    /// See there
    #[command(flatten)]
    pub site: SiteOptions,
    /// Stages of one pipeline, of agents that answer at once; several make a row each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,1000", value_parser = positive)]
    pub stages: Vec<usize>,
    /// Runs of a short pipeline, all asked for at once; 0 leaves the row out
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub runs: usize,
    /// Stages of the short pipeline
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive)]
    pub run_stages: usize,
    /// Workers: processes on a cluster, instances in this process on the embedded file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
}

/// What is asked of `bench timers`.
#[derive(Args, Clone, Debug)]
pub struct TimersOptions {
    /// See there
    #[command(flatten)]
    pub site: SiteOptions,
    /// Timers that are armed and not due while others fire; several make a row each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100000", value_parser = positive)]
    pub pending: Vec<usize>,
    /// Timers due in each second; several make a row each
    #[arg(long, value_name = "PER_SECOND", value_delimiter = ',', default_value = "2000", value_parser = positive)]
    pub fire_rate: Vec<usize>,
    /// For how long they fire
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive)]
    pub seconds: usize,
    /// Workers that run the timers' turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub workers: usize,
    /// Do not kill the leading scheduler afterwards
    #[arg(long)]
    pub no_takeover: bool,
}

/// What is asked of `bench stream`.
#[derive(Args, Clone, Debug)]
pub struct StreamOptions {
    /// See there
    #[command(flatten)]
    pub site: SiteOptions,
    /// So many users, each of whom writes again when the whole text is there; several make a row each
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16", value_parser = positive)]
    pub users: Vec<usize>,
    /// Turns of all users together
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = positive)]
    pub turns: usize,
    /// How long the model takes for its first words
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration::parse)]
    pub first_token: Duration,
    /// How long it takes for each of the next
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration::parse)]
    pub token_pause: Duration,
    /// How many there are
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
        _ => Err("it is `cluster` or `embedded`".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "it is a whole number from 1 on".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0 && *rate <= 1e6);
    rate.ok_or_else(|| "it is a number above 0".to_owned())
}

fn sync_interval(text: &str) -> Result<String, String> {
    match text {
        "always" => Ok(text.to_owned()),
        _ => duration::parse(text).map(|_| text.to_owned()),
    }
}
