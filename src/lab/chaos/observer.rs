//! The run's own view of queue and store: backlog, idle lanes, and all facts at the end.

use super::checker::{Promise, Violation};
use super::error::ChaosError;
use super::evidence::{Letter, RunEvidence, SeenDialogue, SeenStatus};
use crate::invariants::{self, Evidence, SeenCall};
use async_nats::jetstream::consumer::{DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, Context};
use base::config::Settings;
use base::error::SharedError;
use base::tasks::Tasks;
use bson::{Document, doc};
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use futures::{StreamExt, TryStreamExt};
use mongodb::{Client, Database};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Queue, StoredDeadLetter};
use storage::store::Store;
use tokio::time::{Instant, sleep};
use types::event::{Event, Reply, StatusEvent, TurnEvent};
use types::job::{Job, JobBody, UserMessage};

/// Poll interval, and number of consecutive polls without work that count as quiet.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const QUIET_POLLS: u32 = 3;
/// Documents read concurrently.
const MAX_READERS: usize = 8;
/// Limit for reading dead letters, above the number of any run.
const MAX_DEAD_LETTERS: usize = 1_000_000;

/// Reads queue and store of a run.
pub(super) struct Observer {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) store: Arc<dyn Store>,
    streams: Context,
    database: Database,
    names: Names,
}

/// Names of streams and consumer in the default namespace.
struct Names {
    jobs: &'static str,
    out: &'static str,
    consumer: &'static str,
}

impl Observer {
    pub(super) async fn new(settings: &Settings, mongo: &Client, tasks: &Tasks) -> Result<Self, ChaosError> {
        let queue = NatsQueue::connect(settings, tasks.stop_token()).await.map_err(away)?;
        let store = MongoStore::connect(settings, tasks).await.map_err(away)?;
        let nats = cluster::nats::connect(settings).await.map_err(away)?;
        Ok(Self {
            queue: Arc::new(queue),
            store: Arc::new(store),
            streams: jetstream::new(nats),
            database: mongo.database(&settings.mongodb.database),
            names: Names { jobs: "TW_JOBS", out: "TW_OUT", consumer: "workers" },
        })
    }

    /// Jobs in the queue, waiting or in flight.
    pub(super) async fn jobs(&self) -> Result<u64, ChaosError> {
        let stream = self.streams.get_stream(self.names.jobs).await.map_err(away)?;
        Ok(stream.cached_info().state.messages)
    }

    /// Approximate number of turn records.
    pub(super) async fn turns(&self) -> Option<u64> {
        self.database.collection::<Document>("turns").estimated_document_count().await.ok()
    }

    /// Number of deliveries beyond the first of each job.
    pub(super) async fn redeliveries(&self) -> Option<u64> {
        let stream = self.streams.get_stream(self.names.jobs).await.ok()?;
        let mut consumer: PullConsumer = stream.get_consumer(self.names.consumer).await.ok()?;
        let delivered = consumer.info().await.ok()?.delivered;
        Some(delivered.consumer_sequence.saturating_sub(delivered.stream_sequence))
    }

    /// Waits until no job is waiting or in flight and no timer is armed. Returns how long that took, or `None` at the
    /// deadline.
    pub(super) async fn quiet(&self, deadline: Duration) -> Option<Duration> {
        let begun = Instant::now();
        let mut looks = 0;
        while begun.elapsed() < deadline {
            // An unreachable server does not count as quiet.
            looks = if self.is_quiet().await.unwrap_or(false) { looks + 1 } else { 0 };
            if looks == QUIET_POLLS {
                return Some(begun.elapsed());
            }
            sleep(POLL_INTERVAL).await;
        }
        None
    }

    async fn is_quiet(&self) -> Result<bool, ChaosError> {
        let busy = doc! {"$or": [
            {"lease": {"$exists": true}},
            {"turn": {"$type": "object"}},
            {"timers.0": {"$exists": true}},
            {"$expr": {"$gt": ["$pending_seq", "$last_seq"]}},
        ]};
        let sessions = self.database.collection::<Document>("sessions");
        Ok(self.jobs().await? == 0 && sessions.find_one(busy).await.map_err(away)?.is_none())
    }

    /// Reads all facts from queue and store.
    pub(super) async fn evidence(&self) -> Result<RunEvidence, ChaosError> {
        let mut evidence = RunEvidence { jobs_left: self.jobs().await?, ..RunEvidence::default() };
        let found = self.find("sessions", doc! {}, doc! {"_id": 1}).await?;
        let ids = found.iter().filter_map(|found| found.get_str("_id").ok().map(str::to_owned));
        let mut read = futures::stream::iter(ids)
            .map(|id| async move {
                let turns = self.store.turns(&id, usize::from(u16::MAX)).await.map_err(away)?;
                Ok::<_, ChaosError>((self.store.session(&id).await.map_err(away)?, turns))
            })
            .buffer_unordered(MAX_READERS);
        while let Some((session, turns)) = read.try_next().await? {
            evidence.sessions.extend(session);
            evidence.turns.extend(turns);
        }
        let letters = self.queue.dead_letters(0, MAX_DEAD_LETTERS).await.map_err(away)?;
        evidence.letters = letters.into_iter().map(letter).collect();
        evidence.dialogues = self.dialogues().await?;
        self.read_events(&mut evidence).await?;
        Ok(evidence)
    }

    async fn find(&self, name: &str, filter: Document, fields: Document) -> Result<Vec<Document>, ChaosError> {
        let collection = self.database.collection::<Document>(name);
        let found = collection.find(filter).projection(fields).await.map_err(away)?;
        found.try_collect().await.map_err(away)
    }

    /// Reads the stages of the authoring dialogues from their sessions and their states.
    async fn dialogues(&self) -> Result<Vec<SeenDialogue>, ChaosError> {
        let text = |found: &Document, field: &str| found.get_str(field).unwrap_or_default().to_owned();
        let sessions = self.find("sessions", doc! {"kind": "authoring"}, doc! {"agent_stage": 1}).await?;
        let states = self.find("workflow_agent_states", doc! {}, doc! {"session_id": 1, "stage": 1}).await?;
        let mut stages: HashMap<String, Vec<String>> = HashMap::new();
        for state in &states {
            stages.entry(text(state, "session_id")).or_default().push(text(state, "stage"));
        }
        let mut found: Vec<SeenDialogue> = sessions
            .iter()
            .map(|session| {
                let session_id = text(session, "_id");
                let stages = stages.remove(&session_id).unwrap_or_default();
                SeenDialogue { session_stage: text(session, "agent_stage"), stages, session_id }
            })
            .collect();
        // A state without a session is a dialogue without a stage.
        found.extend(stages.into_iter().map(|(session_id, stages)| SeenDialogue {
            session_id,
            session_stage: String::new(),
            stages,
        }));
        Ok(found)
    }

    /// Checks the invariants that hold for any conversation. They exclude leases that a pause outlived, and dead
    /// letters of invalid jobs, which [`super::checker`] checks.
    pub(super) async fn invariants(&self, evidence: &RunEvidence) -> Result<Vec<Violation>, ChaosError> {
        let sent = evidence.sent.iter().filter(|sent| sent.accepted).zip(1..).map(|(sent, seq)| {
            let job = Job { session_id: sent.session_id.clone(), job_id: sent.job_id.clone(), body: said(&sent.text) };
            invariants::AcceptedMessage { session_id: sent.session_id.clone(), seq, payload: job.encode() }
        });
        let api = evidence.calls.iter().map(|call| {
            let (key, what) = (call.key.clone(), format!("{:?}", call.asked));
            SeenCall { key, what, at: call.at, began: Instant::now().into_std(), ended: None }
        });
        let evidence = Evidence {
            sent: sent.collect(),
            events: Some(events(evidence)),
            model: Vec::new(),
            api: api.collect(),
            outlived: true,
        };
        let found = invariants::check(self.queue.as_ref(), self.store.as_ref(), &evidence).await.map_err(away)?;
        let violation = |what| Violation { promise: Promise::Invariants, session_id: String::new(), what };
        Ok(found.into_iter().map(violation).collect())
    }

    /// Reads replies, status events, ends of turns and events of authoring dialogues in stream order.
    async fn read_events(&self, evidence: &mut RunEvidence) -> Result<(), ChaosError> {
        let stream = self.streams.get_stream(self.names.out).await.map_err(away)?;
        let config = pull::OrderedConfig {
            filter_subjects: ["reply", "status", "turn", "authoring"].map(|kind| format!("tw.out.*.*.{kind}")).to_vec(),
            deliver_policy: DeliverPolicy::All,
            ..pull::OrderedConfig::default()
        };
        let mut consumer = stream.create_consumer(config).await.map_err(away)?;
        if consumer.info().await.map_err(away)?.num_pending == 0 {
            return Ok(());
        }
        let mut messages = consumer.messages().await.map_err(away)?;
        while let Some(message) = messages.next().await {
            let message = message.map_err(away)?;
            let left = message.info().map_err(away)?.pending;
            match message.subject.rsplit('.').next() {
                Some("reply") => evidence.replies.push(read::<Reply>(&message.payload)?),
                Some("authoring") => evidence.authoring.push(Arc::new(read(&message.payload)?)),
                Some("turn") => evidence.ends.push(read::<TurnEvent>(&message.payload)?),
                _ => {
                    let id = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id"));
                    let id = id.map(ToString::to_string).unwrap_or_default();
                    evidence.statuses.push(SeenStatus { id, event: read::<StatusEvent>(&message.payload)? });
                }
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

fn read<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, ChaosError> {
    serde_json::from_slice(payload).map_err(|error| ChaosError::failed("cannot decode an event", error))
}

/// Events by session as channels process them: repeats under a known id are dropped.
fn events(evidence: &RunEvidence) -> HashMap<String, Vec<Event>> {
    let mut events: HashMap<String, Vec<Event>> = HashMap::new();
    for reply in &evidence.replies {
        events.entry(reply.session_id.clone()).or_default().push(Event::Reply(reply.clone()));
    }
    let mut known = HashSet::new();
    for seen in evidence.statuses.iter().filter(|seen| known.insert(seen.id.as_str())) {
        events.entry(seen.event.session_id.clone()).or_default().push(Event::Status(seen.event.clone()));
    }
    for end in &evidence.ends {
        events.entry(end.session_id.clone()).or_default().push(Event::Turn(end.clone()));
    }
    for event in &evidence.authoring {
        events.entry(event.session_id.clone()).or_default().push(Event::Authoring(Arc::clone(event)));
    }
    events
}

fn said(text: &str) -> JobBody {
    JobBody::UserMessage(UserMessage { text: text.to_owned(), ..UserMessage::default() })
}

fn letter(kept: StoredDeadLetter) -> Letter {
    let letter = kept.letter;
    Letter {
        session_id: letter.subject.rsplit('.').next().unwrap_or_default().to_owned(),
        cause: letter.cause,
        job_id: letter.job_id,
        payload: String::from_utf8_lossy(&letter.payload).into_owned(),
    }
}

fn away(error: impl Into<SharedError>) -> ChaosError {
    ChaosError::failed("cannot read from queue or store", error)
}
