//! Settings: defaults, then `turnwheel.toml`, then environment variables, then flags. This is the only module that
//! reads the environment. docs/contract/settings.md lists all settings.
//!
//! - [`load`] merges the layers into [`Settings`], by the table of keys in [`schema`], and reports all problems
//!   together;
//! - `check` rejects settings that contradict each other, and [`nats`] derives the servers and the login of NATS;
//! - `model` and `connector` have the settings that exist once for each name, `gateway` those of the gateway,
//!   [`access`] its named tokens, `console` those of its web pages, `authoring` those of the authoring agent, and
//!   `journal` those of the journal;
//! - [`nearest`] suggests a name for an unknown one;
//! - [`show`] prints each setting with its origin;
//! - [`secrets`] resolves `${NAME}`, and [`mask`] hides the resolved values in texts;
//! - [`environment`] is a copy of the process environment, taken at the start.

pub mod access;
mod authoring;
mod check;
mod connector;
mod console;
pub mod environment;
mod gateway;
mod journal;
pub mod load;
pub mod mask;
mod model;
pub mod nats;
pub mod nearest;
mod python;
mod quotas;
pub mod rights;
mod rotated_tokens;
pub mod schema;
pub mod secrets;
pub mod show;

pub use access::NamedToken;
pub use authoring::Authoring;
pub use connector::{Connector, ConnectorKind};
pub use console::Console;
pub use environment::Environment;
pub use gateway::Gateway;
pub use journal::{Journal, PromptKeeping};
pub use load::{LoadedSettings, Origin, SettingsError, Sources};
pub use model::{Model, Provider};
pub use python::{Python, PythonRunner};
pub use quotas::Quotas;
pub use secrets::{SecretError, SecretValues};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use types::budget as agent;
use types::budget::Limits;
use types::duration::Text;

/// The implementation of queue and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// NATS JetStream and MongoDB.
    Cluster,
    /// One file in `data_dir`.
    Embedded,
}

/// All settings of a process, validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Prefix of subjects and streams; `tw` unless given.
    pub namespace: String,
    /// The implementation of queue and store.
    pub backend: Backend,
    /// Connection to NATS, for the cluster backend.
    pub nats: Nats,
    /// Connection to MongoDB, for the cluster backend.
    pub mongodb: Mongodb,
    /// Folder of the embedded backend's file.
    pub data_dir: PathBuf,
    /// Folder of the agent files.
    pub agents_dir: PathBuf,
    /// Folder of the workflow files.
    pub workflows_dir: PathBuf,
    /// Folder of files that replace built-in prompts.
    pub prompts_dir: PathBuf,
    /// Limits of a worker process.
    pub worker: Worker,
    /// Limits of a lane.
    pub lane: Lane,
    /// Size limits of the streams on NATS.
    pub streams: Streams,
    /// The HTTP gateway.
    pub gateway: Gateway,
    /// The web pages that the gateway serves.
    pub console: Console,
    /// The authoring agent on another server.
    pub authoring: Authoring,
    /// The secrets that agent files may use as `${NAME}`.
    pub secrets: Secrets,
    /// Calls of skills and tools.
    pub http: Http,
    /// Models by name.
    pub models: BTreeMap<String, Model>,
    /// Data that the journal keeps in addition to the results of steps.
    pub journal: Journal,
    /// How long data is kept.
    pub retention: Retention,
    /// Limits on what one agent or workflow may store.
    pub quotas: Quotas,
    /// Metrics of processes without a gateway.
    pub metrics: MetricsSettings,
    /// Limits of one run of a workflow.
    pub workflow: WorkflowLimits,
    /// Limits of decisions of coordinator agents.
    pub decisions: Decisions,
    /// Scripts of PYTHON nodes.
    pub python: Python,
    /// Databases of DATABASE nodes by name.
    pub connectors: BTreeMap<String, Connector>,
    /// Token limits of agents whose files set none.
    pub budget: Budget,
    /// Export of traces.
    pub telemetry: Telemetry,
}

/// Connection to NATS: servers, one login, and TLS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// Server addresses, separated by commas; `nats://127.0.0.1:4222` unless given. Also set by `NATS_URL`.
    pub url: String,
    /// User name. `password_env` must name the variable with the password.
    pub user: Option<String>,
    /// Name of the environment variable that has the user's password.
    pub password_env: Option<String>,
    /// Name of the environment variable that has a token.
    pub token_env: Option<String>,
    /// Path of a file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// Path of a credentials file (JWT and seed).
    pub creds: Option<PathBuf>,
    /// How many servers of a NATS cluster store each stream, from 1 to 5. Used when a stream is created.
    pub replicas: usize,
    /// Path of the CA certificates that verify the servers; the system's certificates unless given.
    pub ca: Option<PathBuf>,
    /// Path of the client's certificate.
    pub cert: Option<PathBuf>,
    /// Path of the client certificate's private key.
    pub key: Option<PathBuf>,
    /// First tokens of the subjects on which the process receives responses; `_INBOX` unless given. With a prefix for
    /// each user, a server can keep users from reading each other's responses.
    pub inbox_prefix: Option<String>,
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
            inbox_prefix: None,
            replicas: 1,
        }
    }
}

/// Connection to MongoDB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mongodb {
    /// Connection string; `mongodb://127.0.0.1:27017` unless given. Also set by `MONGODB_URI`.
    pub uri: String,
    /// Name of the database; `turnwheel` unless given. A database serves one namespace.
    pub database: String,
    /// Timeout of a command, after which its outcome is unknown; 10 s unless given.
    pub timeout: Text,
}

/// Limits of a worker process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// The most turns of one model in flight in one process; 256 unless given. One eighth more is kept for other
    /// models.
    pub concurrency: usize,
    /// The most turns of one agent in flight in one process; 0, which is no limit, unless given.
    pub agent_concurrency: usize,
    /// How long a lease and an unacknowledged message last without renewal; 6 s unless given.
    pub ack_wait: Text,
    /// Attempts without a commit after which a job becomes a dead letter; 5 unless given.
    pub max_attempts: u32,
    /// How long a stopping worker waits for its turns; 30 s unless given.
    pub drain_timeout: Text,
}

/// Limits of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// The most user messages that may wait in one session; 1,000 unless given. Commands, timers and wake-ups do not
    /// count.
    pub max_depth: u64,
}

/// Size limits of the streams in MiB; 0 is no limit. JetStream reserves these bytes for each stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Limit for jobs; 1,024 unless given. A full stream refuses new jobs.
    pub jobs_max_mib: u64,
    /// Limit for events; 4,096 unless given. A full stream drops its oldest events.
    pub out_max_mib: u64,
    /// Limit for dead letters; 512 unless given. A full stream drops its oldest dead letters.
    pub dead_max_mib: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self { jobs_max_mib: 1_024, out_max_mib: 4_096, dead_max_mib: 512 }
    }
}

/// The secrets that agent files may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// Environment variables that agent files may use as `${NAME}`, with the hosts that may receive them:
    /// `NAME@host[,host…]`.
    pub allow: Vec<String>,
    /// Accepts names without hosts in `allow`.
    pub unbound: bool,
}

/// Calls of skills and tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Private hosts and CIDR ranges that skills and tools may call; `*` for all.
    pub allow_private: Vec<String>,
}

/// How long data is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Turns and their steps; 7 d unless given.
    pub turns: Text,
    /// Events in the out stream; 24 h unless given.
    pub out: Text,
    /// Idle time after which a conversation is closed; 30 d unless given.
    pub idle: Text,
    /// Entries of the audit trail; 365 d unless given.
    pub audit: Text,
    /// Closed conversations, with everything that belongs to them; 0, for ever, unless given.
    pub closed_sessions: Text,
    /// Versions of agents and workflows that nothing uses, and their plans; 30 d unless given.
    pub versions: Text,
    /// Authoring dialogues that have not changed; 30 d unless given.
    pub authoring: Text,
}

/// Metrics of processes without a gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsSettings {
    /// Address at which a worker or scheduler serves `/healthz`, `/readyz` and `/metrics`; none unless given.
    pub listen: Option<SocketAddr>,
}

/// Limits of one run of a workflow. A workflow file may lower them and never raise them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowLimits {
    /// The most stages to start, over all iterations and branches; 10,000 unless given.
    pub max_stages: u64,
    /// The deepest nesting of workflows; 16 unless given.
    pub max_depth: u32,
    /// The most time that workers spend on the run; 1 h unless given.
    pub timeout: Text,
    /// The most model calls; 10,000 unless given.
    pub max_model_calls: u64,
    /// The most tokens of prompts and answers; 0, which is no limit, unless given.
    pub max_tokens: u64,
    /// How many branches of one parallel workflow run concurrently, if the workflow sets no limit; 64 unless given.
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

/// Limits of decisions of coordinator agents. An agent file may narrow them and never widen them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decisions {
    /// True to allow only nodes of the types LLM, HTTP, PYTHON and DATABASE, besides START and END. False unless given.
    pub restrict_node_types: bool,
    /// Hosts that HTTP nodes may call, such as `api.example.com` or `*.example.com`. Every host unless given.
    pub allowed_hosts: Vec<String>,
    /// The most HTTP nodes of a plan, and HTTP calls of a run; 0, which is no limit, unless given.
    pub max_http_calls: u64,
    /// The most HTTP calls of a run in a minute; 0, which is no limit, unless given.
    pub http_per_minute: u64,
    /// The most tokens of an answer to an LLM node; 0, which is no limit, unless given.
    pub max_llm_tokens: u64,
}

/// Token limits of agents whose files set none. Files may set lower or higher limits. 0 is no limit, and the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Limit for one turn.
    pub turn: u64,
    /// Limit for one conversation, until it is closed.
    pub session: u64,
    /// Limit for one agent on one day (UTC).
    pub day: u64,
}

impl Budget {
    /// The limits in force for an agent whose file has the budget `own`. Absent fields take the values of the settings.
    pub fn limits(&self, own: agent::Budget) -> Limits {
        let of = |own: Option<u64>, default: u64| Some(own.unwrap_or(default)).filter(|most| *most > 0);
        Limits { turn: of(own.turn, self.turn), session: of(own.session, self.session), day: of(own.day, self.day) }
    }
}

/// Export of traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`; none unless given.
    pub otlp_endpoint: Option<String>,
    /// Service name in the traces; `turnwheel` unless given.
    pub service_name: String,
    /// Share of the new traces to export, from 0 to 1; 1 unless given. A trace of the caller keeps the caller's
    /// decision.
    pub sample_ratio: f64,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { otlp_endpoint: None, service_name: "turnwheel".into(), sample_ratio: 1.0 }
    }
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
                agent_concurrency: 0,
                ack_wait: Text(Duration::from_secs(6)),
                max_attempts: 5,
                drain_timeout: Text(Duration::from_secs(30)),
            },
            lane: Lane { max_depth: 1_000 },
            streams: Streams::default(),
            gateway: Gateway::default(),
            console: Console::default(),
            authoring: Authoring::default(),
            secrets: Secrets::default(),
            http: Http::default(),
            models: BTreeMap::new(),
            journal: Journal::default(),
            retention: Retention {
                turns: Text(Duration::from_secs(7 * 86_400)),
                out: Text(Duration::from_secs(86_400)),
                idle: Text(Duration::from_secs(30 * 86_400)),
                audit: Text(Duration::from_secs(365 * 86_400)),
                closed_sessions: Text(Duration::ZERO),
                versions: Text(Duration::from_secs(30 * 86_400)),
                authoring: Text(Duration::from_secs(30 * 86_400)),
            },
            quotas: Quotas::default(),
            metrics: MetricsSettings::default(),
            workflow: WorkflowLimits::default(),
            decisions: Decisions::default(),
            python: Python::default(),
            connectors: BTreeMap::new(),
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
