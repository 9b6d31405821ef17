//! The three streams and the workers' consumer (CONTRACT.md, "NATS subjects").

use super::NatsQueue;
use super::error::{is_missing, unavailable};
use crate::config::Settings;
use crate::queue::{QueueError, Result};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::{info, warn};

/// How long the streams remember message ids.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(3600);
/// How long dead letters are kept.
const DEAD_AGE: Duration = Duration::from_secs(30 * 86_400);
/// Readers of events at once: a consumer for each. Left open, nats-server takes 1,000 from its version 2.15 on.
const MAX_READERS: i32 = 100_000;
/// The consumer that all workers share.
pub(crate) const CONSUMER: &str = "workers";

/// Names of streams and subjects in one namespace.
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

/// The streams of these settings: jobs, events, dead letters.
pub(crate) fn wanted(settings: &Settings) -> [Config; 3] {
    let names = Names::new(&settings.namespace);
    let depth = i64::try_from(settings.lane.max_depth).unwrap_or(i64::MAX);
    let jobs = Config {
        name: names.jobs.clone(),
        subjects: vec![names.job("*")],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: depth,
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
        duplicate_window: DUPLICATE_WINDOW,
        allow_direct: true,
        num_replicas: settings.nats.replicas,
        ..Config::default()
    };
    [jobs, out, dead]
}

/// The consumer of these settings.
pub(crate) fn wanted_consumer(settings: &Settings) -> pull::Config {
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
    /// Makes the streams that are missing, and reports settings that differ.
    pub(super) async fn ensure_streams(&self) -> Result<()> {
        for wanted in wanted(&self.settings) {
            self.ensure(wanted).await?;
        }
        let jobs = self.context.get_stream(&self.names.jobs).await.map_err(unavailable)?;
        let created = jobs.cached_info().created.unix_timestamp_nanos() / 1_000_000;
        self.created.store(i64::try_from(created).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    async fn ensure(&self, wanted: Config) -> Result<()> {
        let name = wanted.name.clone();
        match self.context.get_stream(&name).await {
            Ok(stream) => {
                report(&stream.cached_info().config, &wanted);
                return Ok(());
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(refused_or_away(&error.to_string())),
        }
        match self.context.create_stream(wanted).await {
            Ok(_) => {
                info!(stream = name, "stream made");
                Ok(())
            }
            // Another process was first.
            Err(_) if self.context.get_stream(&name).await.is_ok() => Ok(()),
            Err(error) => Err(not_made(&name, self.settings.nats.replicas, &error)),
        }
    }

    /// The workers' consumer, made when missing.
    pub(super) async fn consumer(&self) -> Result<PullConsumer> {
        let config = wanted_consumer(&self.settings);
        let stream = self.context.get_stream_no_info(&self.names.jobs).await.map_err(unavailable)?;
        let mut consumer = match stream.get_or_create_consumer(CONSUMER, config.clone()).await {
            Ok(consumer) => consumer,
            Err(_) => {
                Box::pin(self.ensure_streams()).await?;
                stream.get_or_create_consumer(CONSUMER, config.clone()).await.map_err(unavailable)?
            }
        };
        let info = consumer.info().await.map_err(unavailable)?;
        if info.config.ack_wait != config.ack_wait {
            warn!(
                "the consumer `{CONSUMER}` has ack_wait {:?}, the setting worker.ack_wait is {:?}; the consumer's counts",
                info.config.ack_wait, config.ack_wait
            );
        }
        Ok(consumer)
    }
}

fn report(found: &Config, wanted: &Config) {
    for Difference { field, found, wanted: value } in differences(found, wanted) {
        warn!(stream = wanted.name, "{field} is {found}, wanted {value}; change the stream, or the setting");
    }
}

/// A setting of a stream that is not as it should be.
pub(crate) struct Difference {
    pub(crate) field: &'static str,
    pub(crate) found: String,
    pub(crate) wanted: String,
}

/// What matters and differs.
pub(crate) fn differences(found: &Config, wanted: &Config) -> Vec<Difference> {
    let shown = |config: &Config| {
        [
            ("subjects", format!("{:?}", config.subjects)),
            ("retention", format!("{:?}", config.retention)),
            ("discard", format!("{:?}", config.discard)),
            ("max_messages_per_subject", config.max_messages_per_subject.to_string()),
            ("max_age", format!("{:?}", config.max_age)),
            ("duplicate_window", format!("{:?}", config.duplicate_window)),
            ("allow_direct", config.allow_direct.to_string()),
            // A server without a cluster shows 1 for a stream that was made without a number.
            ("num_replicas", config.num_replicas.max(1).to_string()),
        ]
    };
    let pairs = shown(found).into_iter().zip(shown(wanted)).filter(|(found, wanted)| found != wanted);
    pairs.map(|((field, found), (_, wanted))| Difference { field, found, wanted }).collect()
}

/// Why the server does not make a stream.
fn not_made(stream: &str, replicas: usize, error: &CreateStreamError) -> QueueError {
    let CreateStreamErrorKind::JetStream(refusal) = error.kind() else {
        return refused_or_away(&error.to_string());
    };
    match refusal.error_code() {
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => QueueError::Refused(format!(
            "the stream {stream} cannot have nats.replicas = {replicas} copies: this nats-server is in no cluster; set \
             nats.replicas to 1, or connect to a cluster of {replicas} servers or more"
        )),
        // A server that is down now may be back later.
        ErrorCode::CLUSTER_NO_PEERS | ErrorCode::INSUFFICIENT_RESOURCES => QueueError::Unavailable(format!(
            "the stream {stream} cannot have nats.replicas = {replicas} copies now ({error}): are {replicas} servers of \
             the cluster up, with JetStream and room on their disks?"
        )),
        _ => refused_or_away(&error.to_string()),
    }
}

fn refused_or_away(problem: &str) -> QueueError {
    if problem.contains("jetstream not enabled") || problem.contains("no responders") || problem.contains("503") {
        return QueueError::Unavailable(format!(
            "{problem}; JetStream has to be enabled: start nats-server with `-js`, or set `jetstream` in its file"
        ));
    }
    QueueError::Unavailable(problem.to_owned())
}
