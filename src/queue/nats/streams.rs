//! The three streams and the workers' consumer (CONTRACT.md, "NATS subjects").

use super::NatsQueue;
use super::error::{is_missing, unavailable};
use crate::queue::{QueueError, Result};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
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
const CONSUMER: &str = "workers";

/// Names of streams and subjects in one namespace.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) jobs: String,
    pub(super) out: String,
    pub(super) dead: String,
    pub(super) hints: String,
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
            prefix: namespace.to_owned(),
        }
    }

    pub(super) fn job(&self, session_id: &str) -> String {
        format!("{}.jobs.{session_id}", self.prefix)
    }

    pub(super) fn event(&self, channel: &str, session_id: &str, event_type: &str) -> String {
        format!("{}.out.{channel}.{session_id}.{event_type}", self.prefix)
    }

    pub(super) fn dead_letter(&self, cause: &str) -> String {
        format!("{}.dead.{cause}", self.prefix)
    }
}

impl NatsQueue {
    /// Makes the streams that are missing, and reports settings that differ.
    pub(super) async fn ensure_streams(&self) -> Result<()> {
        for wanted in self.streams() {
            self.ensure(wanted).await?;
        }
        let jobs = self.context.get_stream(&self.names.jobs).await.map_err(unavailable)?;
        let created = jobs.cached_info().created.unix_timestamp_nanos() / 1_000_000;
        self.created.store(i64::try_from(created).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    fn streams(&self) -> [Config; 3] {
        let names = &self.names;
        let depth = i64::try_from(self.settings.lane.max_depth).unwrap_or(i64::MAX);
        let jobs = Config {
            name: names.jobs.clone(),
            subjects: vec![names.job("*")],
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            max_messages_per_subject: depth,
            duplicate_window: DUPLICATE_WINDOW,
            allow_direct: true,
            ..Config::default()
        };
        let out = Config {
            name: names.out.clone(),
            subjects: vec![names.event("*", "*", "*")],
            max_messages_per_subject: -1,
            max_age: self.settings.retention.out.0,
            max_consumers: MAX_READERS,
            duplicate_window: DUPLICATE_WINDOW.min(self.settings.retention.out.0),
            allow_direct: true,
            ..Config::default()
        };
        let dead = Config {
            name: names.dead.clone(),
            subjects: vec![names.dead_letter("*")],
            max_messages_per_subject: -1,
            max_age: DEAD_AGE,
            duplicate_window: DUPLICATE_WINDOW,
            allow_direct: true,
            ..Config::default()
        };
        [jobs, out, dead]
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
            Err(error) => Err(refused_or_away(&error.to_string())),
        }
    }

    /// The workers' consumer, made when missing.
    pub(super) async fn consumer(&self) -> Result<PullConsumer> {
        let config = pull::Config {
            durable_name: Some(CONSUMER.into()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.settings.worker.ack_wait.0,
            max_deliver: -1,
            max_ack_pending: -1,
            ..pull::Config::default()
        };
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
    let differing = [
        ("subjects", format!("{:?}", found.subjects), format!("{:?}", wanted.subjects)),
        ("retention", format!("{:?}", found.retention), format!("{:?}", wanted.retention)),
        ("discard", format!("{:?}", found.discard), format!("{:?}", wanted.discard)),
        (
            "max_messages_per_subject",
            found.max_messages_per_subject.to_string(),
            wanted.max_messages_per_subject.to_string(),
        ),
        ("max_age", format!("{:?}", found.max_age), format!("{:?}", wanted.max_age)),
        ("duplicate_window", format!("{:?}", found.duplicate_window), format!("{:?}", wanted.duplicate_window)),
        ("allow_direct", found.allow_direct.to_string(), wanted.allow_direct.to_string()),
    ];
    for (field, found, wanted_value) in differing.into_iter().filter(|(_, found, wanted)| found != wanted) {
        warn!(stream = wanted.name, "{field} is {found}, wanted {wanted_value}; change the stream, or the setting");
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
