//! Settings: `turnwheel.toml`, then environment, then flags (CONTRACT.md, "Settings"). The one place that reads the
//! environment.
//!
//! [`Settings`] is what the engine uses; [`load`] makes it from its layers by the table of keys in [`schema`] and refuses
//! what cannot work (`check`; [`nats`] has the servers and the login of NATS), [`show`] prints it with origins, [`secrets`] fills `${NAME}`, [`mask`] hides what
//! it filled in, [`environment`] is the environment as it was at the start.

mod check;
pub mod environment;
pub mod load;
pub mod mask;
pub mod nats;
pub mod nearest;
pub mod schema;
pub mod secrets;
pub mod show;

pub use environment::Environment;
pub use load::{Loaded, Origin, SettingsError, Sources};
pub use secrets::{SecretError, SecretValues};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use types::budget as agent;
use types::budget::Limits;
use types::duration::Text;

/// Which implementation of queue and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// NATS JetStream and MongoDB.
    Cluster,
    /// One file in `data_dir`.
    Embedded,
}

/// All settings, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Prefix of subjects and streams; `tw` unless given.
    pub namespace: String,
    /// Which implementation of queue and store.
    pub backend: Backend,
    /// The queue.
    pub nats: Nats,
    /// The store.
    pub mongodb: Mongodb,
    /// Where the embedded backend keeps its file.
    pub data_dir: PathBuf,
    /// Where agent files are.
    pub agents_dir: PathBuf,
    /// Where workflow files are.
    pub workflows_dir: PathBuf,
    /// Files that replace compiled-in prompts.
    pub prompts_dir: PathBuf,
    /// Worker processes.
    pub worker: Worker,
    /// Lanes.
    pub lane: Lane,
    /// The sizes of the streams on NATS.
    pub streams: Streams,
    /// The HTTP gateway.
    pub gateway: Gateway,
    /// `${NAME}` in agent files.
    pub secrets: Secrets,
    /// Calls of skills and tools.
    pub http: Http,
    /// Models by name.
    pub models: BTreeMap<String, Model>,
    /// How long things are kept.
    pub retention: Retention,
    /// Watching processes without a gateway.
    pub metrics: Metrics,
    /// What one run of a workflow may take.
    pub workflow: WorkflowLimits,
    /// The most tokens that agents may use which do not say.
    pub budget: Budget,
    /// Traces.
    pub telemetry: Telemetry,
}

/// See [`Settings::nats`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// The servers, with commas between them; `nats://127.0.0.1:4222` unless given; also `NATS_URL`.
    pub url: String,
    /// The user; its password is in `password_env`.
    pub user: Option<String>,
    /// The environment variable that holds the user's password.
    pub password_env: Option<String>,
    /// The environment variable that holds a token.
    pub token_env: Option<String>,
    /// A file that holds the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// A credentials file (JWT and seed).
    pub creds: Option<PathBuf>,
    /// How many servers of a NATS cluster hold each stream, from 1 to 5. It counts when a stream is made.
    pub replicas: usize,
    /// The certificates of the authorities that servers' certificates are held to; those of the system unless given.
    pub ca: Option<PathBuf>,
    /// The client's certificate.
    pub cert: Option<PathBuf>,
    /// The key of the client's certificate.
    pub key: Option<PathBuf>,
}

impl Default for Nats {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".into(),
            user: None,
            password_env: None,
            token_env: None,
            nkey: None,
            creds: None,
            ca: None,
            cert: None,
            key: None,
            replicas: 1,
        }
    }
}

/// See [`Settings::mongodb`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mongodb {
    /// `mongodb://127.0.0.1:27017` unless given; also `MONGODB_URI`.
    pub uri: String,
    /// `turnwheel` unless given. One namespace for each database.
    pub database: String,
    /// How long a command may take before its outcome counts as unknown; 10 s unless given.
    pub timeout: Text,
}

/// See [`Settings::worker`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// The most turns at once in one process; 256 unless given.
    pub concurrency: usize,
    /// How long a lease and an unacknowledged message last without renewal; 6 s unless given.
    pub ack_wait: Text,
    /// How often a job may take its worker down before it is given up; 5 unless given.
    pub max_attempts: u32,
    /// How long a stopping worker waits for its turns; 30 s unless given.
    pub drain_timeout: Text,
}

/// See [`Settings::lane`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// User messages that may wait in one session; 1,000 unless given. Commands, timers and wake-ups fit in beyond it.
    pub max_depth: u64,
}

/// See [`Settings::streams`]. In MiB; 0 is no limit. JetStream reserves these bytes for each stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Jobs; 1,024 unless given. A full stream refuses publishers.
    pub jobs_max_mib: u64,
    /// Replies and events; 4,096 unless given. A full stream drops its oldest.
    pub out_max_mib: u64,
    /// Dead letters; 512 unless given. A full stream drops its oldest.
    pub dead_max_mib: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self { jobs_max_mib: 1_024, out_max_mib: 4_096, dead_max_mib: 512 }
    }
}

/// See [`Settings::gateway`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// `127.0.0.1:8080` unless given.
    pub listen: SocketAddr,
    /// Kept for gRPC, which this version does not serve: with an address, the gateway warns at its start, and `doctor` advises.
    pub grpc_listen: Option<SocketAddr>,
    /// Bearer tokens; without any the gateway listens on loopback only.
    pub tokens: Vec<String>,
    /// The most connections at once; 10,000 unless given. Further ones wait.
    pub max_connections: usize,
    /// The most event streams at once; 8,000 unless given. Further ones are refused.
    pub max_streams: usize,
    /// Origins of web pages that may call from a browser; `*` for all. None unless given.
    pub cors: Vec<String>,
}

/// See [`Settings::secrets`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// Environment variables that agent files may name.
    pub allow: Vec<String>,
}

/// See [`Settings::http`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Private hosts and CIDR ranges that skills and tools may call; `*` for all.
    pub allow_private: Vec<String>,
}

/// What speaks for a model name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// An OpenAI-compatible server.
    Openai,
    /// The rule model.
    Offline,
}

/// See [`Settings::models`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What speaks.
    pub provider: Provider,
    /// Such as `https://api.example.com/v1`; required for `openai`.
    #[serde(default)]
    pub base_url: String,
    /// The environment variable that holds the key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// The model's name at its server; required for `openai`.
    #[serde(default)]
    pub model: String,
    /// Limit of one attempt, of a streamed answer that of the wait for its first words; 60 s unless given.
    #[serde(default = "default_model_timeout")]
    pub timeout: Text,
    /// Limit of the wait between two pieces of a streamed answer, where it is less than `timeout`; 20 s unless given.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: Text,
    /// Repeats after the first attempt; 3 unless given.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// Sent when given.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Sent when given.
    #[serde(default)]
    pub max_tokens: Option<u32>,
    /// Sent when given, to servers that know no `max_tokens`.
    #[serde(default)]
    pub max_completion_tokens: Option<u32>,
    /// Fields that are added to each request, or take the place of the engine's own.
    #[serde(default)]
    pub extra: Map<String, Value>,
    /// The header that carries the key as it is. Unless given: `api-key` where `base_url` has an `api-version`, as at Azure
    /// OpenAI, else `Authorization` with `Bearer`.
    #[serde(default)]
    pub api_key_header: Option<String>,
    /// It sees: pictures of the user's message are sent to it; false unless given.
    #[serde(default)]
    pub vision: bool,
}

/// See [`Settings::retention`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Turns and their steps; 7 d unless given.
    pub turns: Text,
    /// Events in the out stream; 24 h unless given.
    pub out: Text,
    /// Untouched conversations are closed after this; 30 d unless given.
    pub idle: Text,
}

/// See [`Settings::metrics`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Where a worker or scheduler process serves `/healthz`, `/readyz` and `/metrics`; nowhere unless given.
    pub listen: Option<SocketAddr>,
}

/// See [`Settings::workflow`]. A workflow file may ask for less, never for more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowLimits {
    /// Stages begun, over all iterations and branches; 10,000 unless given.
    pub max_stages: u64,
    /// Workflows within workflows; 16 unless given.
    pub max_depth: u32,
    /// The time that workers spend on it; 1 h unless given.
    pub timeout: Text,
    /// Model calls; 10,000 unless given.
    pub max_model_calls: u64,
    /// Tokens, of prompts and answers; 0, as many as it likes, unless given.
    pub max_tokens: u64,
    /// Branches of one parallel workflow that run at once, unless it says otherwise; 64 unless given.
    pub max_parallel: usize,
}

impl Default for WorkflowLimits {
    fn default() -> Self {
        Self {
            max_stages: 10_000,
            max_depth: 16,
            timeout: Text(std::time::Duration::from_secs(3_600)),
            max_model_calls: 10_000,
            max_tokens: 0,
            max_parallel: 64,
        }
    }
}

/// See [`Settings::budget`]. An agent file may ask for less or for more; 0, no limit, unless given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// In one turn.
    pub turn: u64,
    /// In one conversation, until it is closed.
    pub session: u64,
    /// Of one agent on one day (UTC).
    pub day: u64,
}

impl Budget {
    /// The limits in force for an agent whose file has the budget `own`. What it leaves out is taken from the settings.
    pub fn limits(&self, own: agent::Budget) -> Limits {
        let of = |own: Option<u64>, default: u64| Some(own.unwrap_or(default)).filter(|most| *most > 0);
        Limits { turn: of(own.turn, self.turn), session: of(own.session, self.session), day: of(own.day, self.day) }
    }
}

/// See [`Settings::telemetry`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// The collector that spans go to, such as `http://127.0.0.1:4318`; none unless given.
    pub otlp_endpoint: Option<String>,
    /// What the processes are called there; `turnwheel` unless given.
    pub service_name: String,
    /// The share of traces that begin here and are exported; all unless given.
    pub sample_ratio: f64,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { otlp_endpoint: None, service_name: "turnwheel".into(), sample_ratio: 1.0 }
    }
}

fn default_model_timeout() -> Text {
    Text(std::time::Duration::from_secs(60))
}
fn default_idle_timeout() -> Text {
    Text(std::time::Duration::from_secs(20))
}
fn default_max_retries() -> u32 {
    3
}

impl Default for Settings {
    fn default() -> Self {
        use std::time::Duration;
        Self {
            namespace: "tw".into(),
            backend: Backend::Cluster,
            nats: Nats::default(),
            mongodb: Mongodb {
                uri: "mongodb://127.0.0.1:27017".into(),
                database: "turnwheel".into(),
                timeout: Text(Duration::from_secs(10)),
            },
            data_dir: "data".into(),
            agents_dir: "agents".into(),
            workflows_dir: "workflows".into(),
            prompts_dir: "prompts".into(),
            worker: Worker {
                concurrency: 256,
                ack_wait: Text(Duration::from_secs(6)),
                max_attempts: 5,
                drain_timeout: Text(Duration::from_secs(30)),
            },
            lane: Lane { max_depth: 1_000 },
            streams: Streams::default(),
            gateway: Gateway {
                listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
                grpc_listen: None,
                tokens: Vec::new(),
                max_connections: 10_000,
                max_streams: 8_000,
                cors: Vec::new(),
            },
            secrets: Secrets::default(),
            http: Http::default(),
            models: BTreeMap::new(),
            retention: Retention {
                turns: Text(Duration::from_secs(7 * 86_400)),
                out: Text(Duration::from_secs(86_400)),
                idle: Text(Duration::from_secs(30 * 86_400)),
            },
            metrics: Metrics::default(),
            workflow: WorkflowLimits::default(),
            budget: Budget::default(),
            telemetry: Telemetry::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_before_the_settings_and_nought_is_no_limit() {
        let defaults = Budget { turn: 100, session: 0, day: 900 };
        let limits = |turn, session, day| defaults.limits(agent::Budget { turn, session, day });
        assert_eq!(limits(None, None, None), Limits { turn: Some(100), session: None, day: Some(900) });
        assert_eq!(limits(Some(500), Some(7), Some(0)), Limits { turn: Some(500), session: Some(7), day: None });
    }
}
