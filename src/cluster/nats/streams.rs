//! The three streams and the workers' consumer. `docs/contract/nats.md` describes them.

use super::NatsQueue;
use super::error::is_missing;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy};
use base::config::{Settings, Streams};
use base::error::SharedError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::queue::{LANE_RESERVE, QueueError, Result, Storage, StreamState};
use tracing::{info, warn};
use types::timestamp::Timestamp;

/// How long the streams remember message ids for deduplication.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(3600);
/// How long dead letters are kept.
const DEAD_AGE: Duration = Duration::from_secs(30 * 86_400);
/// The number of concurrent readers of events, each with a consumer of its own. The default of nats-server is 1,000
/// since version 2.15.
const MAX_READERS: i32 = 100_000;
/// The smallest byte limit with which a stream is created.
const MIN_STREAM_BYTES: i64 = 1 << 20;
/// The name of the consumer that all workers share.
pub const CONSUMER: &str = "workers";

/// The names of streams and subjects in one namespace.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) jobs: String,
    pub(super) out: String,
    pub(super) dead: String,
    pub(super) hints: String,
    pub(super) cancels: String,
    prefix: String,
}

impl Names {
    pub(super) fn new(namespace: &str) -> Self {
        let upper = namespace.to_uppercase();
        Self {
            jobs: format!("{upper}_JOBS"),
            out: format!("{upper}_OUT"),
            dead: format!("{upper}_DEAD"),
            hints: format!("{namespace}.hint.timers"),
            cancels: format!("{namespace}.hint.cancel"),
            prefix: namespace.to_owned(),
        }
    }

    pub(super) fn job(&self, session_id: &str) -> String {
        [&self.prefix, ".jobs.", session_id].concat()
    }

    pub(super) fn event(&self, channel: &str, session_id: &str, event_type: &str) -> String {
        [&self.prefix, ".out.", channel, ".", session_id, ".", event_type].concat()
    }

    pub(super) fn dead_letter(&self, cause: &str) -> String {
        format!("{}.dead.{cause}", self.prefix)
    }
}

/// Returns the configurations of the streams for these settings: jobs, events, dead letters.
pub fn wanted(settings: &Settings) -> [Config; 3] {
    let names = Names::new(&settings.namespace);
    let depth = i64::try_from(settings.lane.max_depth.saturating_add(LANE_RESERVE)).unwrap_or(i64::MAX);
    let (jobs_bytes, out_bytes, dead_bytes) = {
        let Streams { jobs_max_mib, out_max_mib, dead_max_mib } = settings.streams;
        (bytes(jobs_max_mib), bytes(out_max_mib), bytes(dead_max_mib))
    };
    let jobs = Config {
        name: names.jobs.clone(),
        subjects: vec![names.job("*")],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: depth,
        max_bytes: jobs_bytes,
        duplicate_window: DUPLICATE_WINDOW,
        allow_direct: true,
        num_replicas: settings.nats.replicas,
        ..Config::default()
    };
    let out = Config {
        name: names.out.clone(),
        subjects: vec![names.event("*", "*", "*")],
        max_messages_per_subject: -1,
        max_age: settings.retention.out.0,
        max_bytes: out_bytes,
        max_consumers: MAX_READERS,
        duplicate_window: DUPLICATE_WINDOW.min(settings.retention.out.0),
        allow_direct: true,
        num_replicas: settings.nats.replicas,
        ..Config::default()
    };
    let dead = Config {
        name: names.dead.clone(),
        subjects: vec![names.dead_letter("*")],
        max_messages_per_subject: -1,
        max_age: DEAD_AGE,
        max_bytes: dead_bytes,
        duplicate_window: DUPLICATE_WINDOW,
        allow_direct: true,
        num_replicas: settings.nats.replicas,
        ..Config::default()
    };
    [jobs, out, dead]
}

/// Converts a setting in MiB to JetStream's bytes, where -1 is no limit.
fn bytes(mib: u64) -> i64 {
    match i64::try_from(mib.saturating_mul(1 << 20)) {
        Ok(0) => -1,
        bytes => bytes.unwrap_or(i64::MAX),
    }
}

/// Returns the configuration of the workers' consumer for these settings.
pub fn wanted_consumer(settings: &Settings) -> pull::Config {
    pull::Config {
        durable_name: Some(CONSUMER.into()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.worker.ack_wait.0,
        max_deliver: -1,
        max_ack_pending: -1,
        ..pull::Config::default()
    }
}

impl NatsQueue {
    /// Creates missing streams, and logs settings that differ from existing ones.
    pub(super) async fn ensure_streams(&self) -> Result<()> {
        for wanted in wanted(&self.settings) {
            self.ensure(wanted).await?;
        }
        self.job_stream().await.map(|_| ())
    }

    /// Returns the state of the stream of jobs, from its leader.
    pub(super) async fn job_stream(&self) -> Result<StreamState> {
        let jobs = self.context.get_stream(&self.names.jobs).await.map_err(QueueError::unavailable)?;
        Ok(self.notice(jobs.cached_info()))
    }

    /// Remembers the creation time of the stream of jobs, and logs when the stream was created again.
    pub(super) fn notice(&self, info: &Info) -> StreamState {
        let created = i64::try_from(info.created.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
        let before = self.created.swap(created, Ordering::Relaxed);
        if before != created && before != 0 {
            self.delivered.store(0, Ordering::Relaxed);
            warn!(
                stream = self.names.jobs,
                before = %Timestamp::from_millis(before),
                now = %Timestamp::from_millis(created),
                "the stream was deleted and created again: the jobs that waited in it are lost, and \
                 sequences restart at 1"
            );
        }
        self.message_limits.set_limit(limit(info.config.max_bytes));
        StreamState { created_at: Timestamp::from_millis(created), last_seq: info.state.last_sequence }
    }

    async fn ensure(&self, wanted: Config) -> Result<()> {
        let name = wanted.name.clone();
        match self.context.get_stream(&name).await {
            Ok(stream) => {
                let found = &stream.cached_info().config;
                if let Some(problem) = collision(found, &wanted) {
                    return Err(QueueError::refused(problem));
                }
                report(found, &wanted);
                return Ok(());
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(unavailable_with_remedy(error)),
        }
        match self.create(wanted).await {
            Ok(()) => Ok(()),
            // Another process created the stream concurrently.
            Err(_) if self.context.get_stream(&name).await.is_ok() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates a stream. When the server cannot reserve the stream's byte limit, halves the limit until it fits, then
    /// takes a quarter of that, so that the other streams fit as well.
    async fn create(&self, mut config: Config) -> Result<()> {
        let (name, asked) = (config.name.clone(), config.max_bytes);
        while let Err(error) = self.context.create_stream(config.clone()).await {
            if !lacks_room(&error) || config.max_bytes <= 0 {
                return Err(not_made(&name, config.num_replicas, error));
            }
            if config.max_bytes / 2 < MIN_STREAM_BYTES {
                let problem = format!(
                    "the stream `{name}` needs at least {MIN_STREAM_BYTES} bytes, which JetStream cannot reserve: {error}; raise its `max_file_store`, or lower `streams.*_max_mib` and edit the other streams"
                );
                return Err(QueueError::Unavailable(SharedError::explained(problem, error)));
            }
            config.max_bytes /= 2;
        }
        if config.max_bytes != asked {
            config.max_bytes = (config.max_bytes / 4).max(MIN_STREAM_BYTES);
            let reserved = config.max_bytes;
            self.context.update_stream(config).await.map_err(unavailable_with_remedy)?;
            warn!(
                stream = name,
                "the stream is limited to {reserved} bytes instead of {asked}, because \
                 JetStream cannot reserve more; raise its `max_file_store`, then edit the stream"
            );
        }
        info!(stream = name, "stream created");
        Ok(())
    }

    /// Returns the disk usage of each stream.
    pub(super) async fn stored_bytes(&self) -> Result<Vec<Storage>> {
        let mut found = Vec::with_capacity(3);
        for (part, name) in [("jobs", &self.names.jobs), ("out", &self.names.out), ("dead", &self.names.dead)] {
            let stream = self.context.get_stream(name).await.map_err(QueueError::unavailable)?;
            let info = stream.cached_info();
            found.push(Storage { part, bytes: info.state.bytes, max_bytes: limit(info.config.max_bytes) });
        }
        Ok(found)
    }

    /// Returns the workers' consumer, and creates it when it is missing.
    pub(super) async fn consumer(&self) -> Result<PullConsumer> {
        let config = wanted_consumer(&self.settings);
        let stream = self.context.get_stream_no_info(&self.names.jobs).await.map_err(QueueError::unavailable)?;
        let mut consumer = match stream.get_or_create_consumer(CONSUMER, config.clone()).await {
            Ok(consumer) => consumer,
            Err(_) => {
                Box::pin(self.ensure_streams()).await?;
                stream.get_or_create_consumer(CONSUMER, config.clone()).await.map_err(QueueError::unavailable)?
            }
        };
        // A missing consumer may mean that its stream was deleted, so check the stream.
        self.job_stream().await?;
        let info = consumer.info().await.map_err(QueueError::unavailable)?;
        if info.config.ack_wait != config.ack_wait {
            warn!(
                "the consumer `{CONSUMER}` has ack_wait {:?}, worker.ack_wait is {:?}; the consumer's value applies",
                info.config.ack_wait, config.ack_wait
            );
        }
        Ok(consumer)
    }
}

/// Converts a stream's limit; -1 is no limit.
pub(super) fn limit(max_bytes: i64) -> Option<u64> {
    u64::try_from(max_bytes).ok().filter(|bytes| *bytes > 0)
}

/// True when the server cannot reserve the stream's `max_bytes`.
fn lacks_room(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(refusal) = error.kind() else { return false };
    match refusal.error_code() {
        ErrorCode::STORAGE_RESOURCES_EXCEEDED => true,
        ErrorCode::CLUSTER_NO_PEERS | ErrorCode::INSUFFICIENT_RESOURCES => refusal.to_string().contains("storage"),
        _ => false,
    }
}

/// Returns an error text when the stream belongs to a namespace that differs from this one only in upper and lower
/// case: the names of streams ignore case.
fn collision(found: &Config, wanted: &Config) -> Option<String> {
    let (subject, name) = (wanted.subjects.first()?, &wanted.name);
    let other = found.subjects.iter().find(|found| found.eq_ignore_ascii_case(subject))?;
    let (namespace, owner) = (subject.split('.').next()?, other.split('.').next()?);
    (namespace != owner).then(|| {
        format!(
            "the stream {name} belongs to namespace `{owner}`, and this process has namespace = `{namespace}`, which differs \
             only in upper and lower case; set namespace to another name"
        )
    })
}

fn report(found: &Config, wanted: &Config) {
    for Difference { field, found, wanted: value } in differences(found, wanted) {
        warn!(
            stream = wanted.name,
            "{field} of the stream is {found}, but the settings want {value}; \
         change the stream or the setting"
        );
    }
}

/// A setting of a stream that differs from the settings of the process.
pub struct Difference {
    /// The field of the stream's configuration.
    pub field: &'static str,
    /// The stream's value.
    pub found: String,
    /// The value that the settings of the process want.
    pub wanted: String,
}

/// Returns the differences that matter.
pub fn differences(found: &Config, wanted: &Config) -> Vec<Difference> {
    let shown = |config: &Config| {
        [
            ("subjects", format!("{:?}", config.subjects)),
            ("retention", format!("{:?}", config.retention)),
            ("discard", format!("{:?}", config.discard)),
            ("max_messages_per_subject", config.max_messages_per_subject.to_string()),
            ("max_bytes", config.max_bytes.to_string()),
            ("max_age", format!("{:?}", config.max_age)),
            ("duplicate_window", format!("{:?}", config.duplicate_window)),
            ("allow_direct", config.allow_direct.to_string()),
            // A server without a cluster reports 1 for a stream that was created without a number.
            ("num_replicas", config.num_replicas.max(1).to_string()),
        ]
    };
    let pairs = shown(found).into_iter().zip(shown(wanted)).filter(|(found, wanted)| found != wanted);
    pairs.map(|((field, found), (_, wanted))| Difference { field, found, wanted }).collect()
}

/// Converts the error of creating a stream, with a remedy.
fn not_made(stream: &str, replicas: usize, error: CreateStreamError) -> QueueError {
    let CreateStreamErrorKind::JetStream(refusal) = error.kind() else {
        return unavailable_with_remedy(error);
    };
    match refusal.error_code() {
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => {
            let problem = format!(
                "the stream {stream} cannot have nats.replicas = {replicas}: this nats-server is in no cluster; set \
                 nats.replicas to 1, or connect to a cluster of {replicas} servers or more"
            );
            QueueError::Refused(SharedError::explained(problem, error))
        }
        // The servers that are down now may return.
        ErrorCode::CLUSTER_NO_PEERS | ErrorCode::INSUFFICIENT_RESOURCES => {
            let problem = format!(
                "the stream {stream} cannot have nats.replicas = {replicas} now ({error}): are {replicas} servers of \
                 the cluster up, with JetStream and room on their disks?"
            );
            QueueError::Unavailable(SharedError::explained(problem, error))
        }
        _ => unavailable_with_remedy(error),
    }
}

/// Converts an error to `Unavailable`, with a remedy if the server runs without JetStream.
fn unavailable_with_remedy(error: impl Into<SharedError>) -> QueueError {
    let error = error.into();
    let problem = error.to_string();
    if problem.contains("jetstream not enabled") || problem.contains("no responders") || problem.contains("503") {
        let remedy = "JetStream has to be enabled: start nats-server with `-js`, or set `jetstream` in its file";
        return QueueError::Unavailable(SharedError::explained(format!("{problem}; {remedy}"), error));
    }
    QueueError::Unavailable(error)
}
