//! The floor on NATS and MongoDB: the commands of a worker, issued with the bare drivers.

use super::{OUTPUT, REPLY, last_announcement, last_events, last_step, steps, think};
use crate::bench::agent::AGENT;
use crate::bench::member::MemberProfile;
use anyhow::Context;
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{self, Message};
use base::config::Settings;
use base::tasks::{OnPanic, Tasks};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use cluster::mongo::{Bulk, CURRENT_TTL, Commands, Durability, put};
use cluster::nats;
use futures::{StreamExt, TryStreamExt, future, join, try_join};
use mongodb::Database;
use mongodb::options::{ClientOptions, ReadConcern, WriteConcern};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use storage::store::batcher::{Batcher, EstimatedSize};
use storage::store::{Result as StoreResult, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::error;
use types::session::history::MAX_ENTRIES;

/// Messages requested with one pull.
const PULL_BATCH: usize = 1_000;
/// Bulk commands of one kind that may be in flight concurrently, as in the store.
const IN_FLIGHT: usize = 2;
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// The part of one turn in a bulk command.
#[derive(Clone)]
struct Item {
    session_id: String,
    turn_id: String,
    seq: u64,
    /// Key of the step to record.
    step: String,
    /// Events that the commit stores in the session's outbox.
    outbox: Vec<(String, &'static str)>,
    /// Number of entries in the session's history, as counted by this process.
    entries: usize,
}

impl EstimatedSize for Item {
    fn bytes(&self) -> usize {
        4_096
    }
}

struct Baseline {
    profile: MemberProfile,
    context: jetstream::Context,
    jobs: Stream<()>,
    namespace: String,
    /// Time of the last read of the agent's hash.
    asked: Mutex<Option<Instant>>,
    /// Number of history entries by session.
    entries: Mutex<HashMap<String, usize>>,
    agents: Batcher<String, ()>,
    acquires: Batcher<Item, ()>,
    records: Batcher<Item, ()>,
    commits: Batcher<Item, ()>,
}

/// Runs turns until `stop` is cancelled.
pub(in crate::bench) async fn run(
    settings: &Settings,
    profile: &MemberProfile,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let tasks = Tasks::child_of(&stop);
    let context = jetstream::new(nats::connect(settings).await?);
    let jobs = format!("{}_JOBS", settings.namespace.to_uppercase());
    let config = pull::Config {
        durable_name: Some("workers".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.worker.ack_wait.0,
        max_ack_pending: -1,
        ..pull::Config::default()
    };
    let stream = context.get_stream(&jobs).await?;
    let consumer = stream.get_or_create_consumer("workers", config).await?;
    let mut messages = consumer.stream().max_messages_per_batch(PULL_BATCH).messages().await?;
    let database = database(settings).await?;
    let commands = Commands::new(database.clone(), settings.mongodb.timeout.0);
    let of = || commands.clone();
    let (acquired, recorded, committed) = (of(), of(), of());
    let floor = Arc::new(Baseline {
        profile: profile.clone(),
        jobs: context.get_stream_no_info(&jobs).await?,
        context,
        namespace: settings.namespace.clone(),
        asked: Mutex::default(),
        entries: Mutex::default(),
        agents: Batcher::start(&tasks, "agents", 1, move |items| agents(database.clone(), items)),
        acquires: Batcher::start(&tasks, "acquire", IN_FLIGHT, move |items| acquire(acquired.clone(), items)),
        records: Batcher::start(&tasks, "record", IN_FLIGHT, move |items| record(recorded.clone(), items)),
        commits: Batcher::start(&tasks, "commit", IN_FLIGHT, move |items| commit(committed.clone(), items)),
    });
    while let Some(Some(message)) = stop.run_until_cancelled(messages.next()).await {
        let (floor, message) = (Arc::clone(&floor), message?);
        let turn = async move {
            if let Err(problem) = floor.turn(&message).await {
                error!("a turn of the floor failed: {problem:#}");
            }
        };
        // The turns of one lane run one after the other.
        if profile.hot { turn.await } else { tasks.spawn("turn", OnPanic::Log, turn) }
    }
    Ok(())
}

/// Connects with the write and read concerns of the engine.
async fn database(settings: &Settings) -> anyhow::Result<Database> {
    let mut options = ClientOptions::parse(&settings.mongodb.uri).await?;
    options.write_concern = Some(WriteConcern::majority());
    options.read_concern = Some(ReadConcern::majority());
    Ok(mongodb::Client::with_options(options)?.database(&settings.mongodb.database))
}

impl Baseline {
    async fn turn(&self, message: &Message) -> anyhow::Result<()> {
        let subject = message.subject.as_str();
        let session_id = subject.rsplit('.').next().unwrap_or_default().to_owned();
        let id = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id")).map(|id| id.as_str());
        let turn_id = id.and_then(|id| id.split_once(':')).context("the job has no `Nats-Msg-Id`")?.1.to_owned();
        let seq = message.info().map_err(|error| anyhow::anyhow!("{error}"))?.stream_sequence;
        let item = |step: String| {
            let (session_id, turn_id) = (session_id.clone(), turn_id.clone());
            Item { session_id, turn_id, seq, step, outbox: Vec::new(), entries: 0 }
        };
        let event = |key: String, payload: &'static str| self.event(&session_id, &turn_id, key, payload);
        // The holder of a hot lane keeps its lease between turns.
        if !self.profile.hot {
            self.look_at_agent().await?;
            let acquired = self.acquires.submit(item(String::new()));
            let (acquired, read) = tokio::join!(acquired, self.jobs.direct_get_next_for_subject(subject, None));
            acquired?;
            read?;
        } else {
            self.jobs.direct_get_next_for_subject(subject, Some(seq)).await?;
        }
        for step in steps(self.profile.actions) {
            // The event is published concurrently with the step, as in the engine.
            let announced = event(format!("event/{step}"), super::STATUS).await?;
            let recorded = async {
                think(&self.profile, &step).await;
                Ok(self.records.submit(item(step)).await?)
            };
            try_join!(acked(announced), recorded)?;
        }
        let (last, outbox) = (last_step(self.profile.actions), last_events(&self.profile));
        if !self.profile.model_latency.0.is_zero() {
            let (key, payload) = last_announcement(self.profile.actions);
            let (announced, ()) = join!(acked(event(key, payload).await?), think(&self.profile, &last));
            announced?;
        }
        let entries = self.entries_of(&session_id);
        self.commits.submit(Item { outbox: outbox.clone(), entries, ..item(last) }).await?;
        let mut acks = Vec::new();
        for (key, payload) in outbox {
            acks.push(event(key, payload).await?);
        }
        // Awaits the last acknowledgement first, as the engine does.
        for ack in acks.into_iter().rev() {
            ack.await?;
        }
        message.ack().await.map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Reads the agent's hash, unless the last read is younger than [`CURRENT_TTL`].
    async fn look_at_agent(&self) -> StoreResult<()> {
        let asked = Instant::now();
        let last = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| asked.duration_since(last) < CURRENT_TTL) {
            return Ok(());
        }
        self.agents.submit(AGENT.to_owned()).await?;
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        Ok(())
    }

    /// Number of history entries that the session has before this turn. Counts the two entries that this turn adds.
    fn entries_of(&self, session_id: &str) -> usize {
        let mut all = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = all.entry(session_id.to_owned()).or_default();
        std::mem::replace(entries, (*entries + 2).min(MAX_ENTRIES))
    }

    async fn event(
        &self,
        session_id: &str,
        turn_id: &str,
        key: String,
        payload: &'static str,
    ) -> anyhow::Result<jetstream::context::PublishAckFuture> {
        let kind = kind(payload);
        let subject = format!("{}.out.bench.{session_id}.{kind}", self.namespace);
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{session_id}/{turn_id}/{key}").as_str());
        Ok(self.context.publish_with_headers(subject, headers, payload.into()).await?)
    }
}

async fn acked(publishing: jetstream::context::PublishAckFuture) -> anyhow::Result<()> {
    publishing.await?;
    Ok(())
}

fn kind(payload: &str) -> &'static str {
    if payload == REPLY { "reply" } else { "status" }
}

/// Runs a bulk command on one collection.
async fn bulk(commands: &Commands, kind: Bulk, items: &[RawDocumentBuf], durable: Durability) -> StoreResult<()> {
    let answer = commands.bulk(kind, items, durable).await?;
    match answer.get_array("writeErrors") {
        Ok(errors) => Err(StoreError::refused(format!("{errors:?}"))),
        Err(_) => Ok(()),
    }
}

async fn update(commands: &Commands, statements: &[RawDocumentBuf]) -> StoreResult<()> {
    bulk(commands, Bulk::Update("sessions"), statements, Durability::Majority).await
}

async fn insert(
    commands: &Commands,
    collection: &'static str,
    documents: &[RawDocumentBuf],
    durable: Durability,
) -> StoreResult<()> {
    bulk(commands, Bulk::Insert(collection), documents, durable).await
}

fn failed(error: mongodb::error::Error) -> StoreError {
    StoreError::unavailable(error)
}

fn now() -> bson::DateTime {
    bson::DateTime::from_millis(base::clock::now().as_millis())
}

fn in_a_week() -> bson::DateTime {
    bson::DateTime::from_millis(base::clock::now().plus(WEEK).as_millis())
}

/// Reads the agent's hash, as the engine does to detect a changed agent.
async fn agents(database: Database, items: Arc<Vec<String>>) -> StoreResult<Vec<StoreResult<()>>> {
    let collection = database.collection::<RawDocumentBuf>("agents");
    let find = collection.find(doc! {"_id": {"$in": [AGENT]}}).projection(doc! {"hash": 1});
    let found: Vec<_> = find.await.map_err(failed)?.try_collect().await.map_err(failed)?;
    match found.is_empty() {
        true => Err(StoreError::refused(format!("agent `{AGENT}` is not stored"))),
        false => Ok(items.iter().map(|_| Ok(())).collect()),
    }
}

async fn acquire(commands: Commands, items: Arc<Vec<Item>>) -> StoreResult<Vec<StoreResult<()>>> {
    let statement = |item: &Item| {
        let (turn_id, seq) = (item.turn_id.as_str(), item.seq as i64);
        let lease = rawdoc! {"owner": "floor", "until": now(), "token": turn_id, "resumed": false};
        let turn = rawdoc! {"seq": seq, "agent_id": "bench", "hash": "", "status": "ready", "at": now(), "attempt": 1};
        let set = rawdoc! {"lease": lease, "turn": turn, "workflow_state.status": "processing", "pending_seq": seq};
        let update = rawdoc! {"$set": set, "$inc": {"epoch": 1_i64}, "$setOnInsert": {"created_at": now()}};
        rawdoc! {"q": {"_id": item.session_id.as_str()}, "u": update, "upsert": true}
    };
    let statements: Vec<RawDocumentBuf> = items.iter().map(statement).collect();
    update(&commands, &statements).await?;
    Ok(items.iter().map(|_| Ok(())).collect())
}

fn step_document(item: &Item) -> RawDocumentBuf {
    rawdoc! {
        "_id": format!("{}/{}/{}", item.session_id, item.turn_id, item.step),
        "session_id": item.session_id.as_str(),
        "turn_id": item.turn_id.as_str(),
        "key": item.step.as_str(),
        "kind": "model",
        "target": "default",
        "input_hash": "99914b932bd37a50b983c5e7c90ae93b",
        "output": OUTPUT,
        "ok": true,
        "ms": 0_i64,
        "model": "offline",
        "at": now(),
        "expires_at": in_a_week(),
    }
}

async fn record(commands: Commands, items: Arc<Vec<Item>>) -> StoreResult<Vec<StoreResult<()>>> {
    let steps: Vec<RawDocumentBuf> = items.iter().map(step_document).collect();
    insert(&commands, "steps", &steps, Durability::Majority).await?;
    Ok(items.iter().map(|_| Ok(())).collect())
}

fn turn_document(item: &Item) -> RawDocumentBuf {
    let id = format!("{}/{}", item.session_id, item.turn_id);
    let statuses = ["processing", "typing", "ready"].iter().map(|status| rawdoc! {"status": *status, "at": now()});
    let statuses: RawArrayBuf = statuses.collect();
    rawdoc! {
        "_id": id, "session_id": item.session_id.as_str(), "turn_id": item.turn_id.as_str(), "job": OUTPUT,
        "statuses": statuses, "outcome": "answered", "attempts": 1, "started_at": now(), "committed_at": now(),
        "expires_at": in_a_week(),
    }
}

fn left_session(item: &Item) -> StoreResult<RawDocumentBuf> {
    let (session_id, turn_id) = (item.session_id.as_str(), item.turn_id.as_str());
    let entry = |role: &str| rawdoc! {"role": role, "text": OUTPUT, "at": now(), "turn_id": turn_id, "metadata": {}};
    let event = |(key, payload): &(String, &'static str)| {
        let msg_id = format!("{session_id}/{turn_id}/{key}");
        rawdoc! {"channel": "bench", "session_id": session_id, "type": kind(payload), "msg_id": msg_id, "payload": *payload}
    };
    let outbox: RawArrayBuf = item.outbox.iter().map(event).collect();
    let mut set = rawdoc! {
        "workflow_state": {"hash": "", "need_greeting": false, "status": "ready"}, "last_seq": item.seq as i64,
        "updated_at": now(), "outbox": outbox,
    };
    let mut push = rawdoc! {"recent_jobs": {"$each": [turn_id], "$slice": -100_i64}};
    // Sets the entries at their index, as the engine does until the history has reached its limit.
    if (1..=MAX_ENTRIES - 2).contains(&item.entries) {
        for (place, role) in (item.entries..).zip(["user", "assistant"]) {
            put(&mut set, &format!("history.{place}"), entry(role))?;
        }
    } else {
        let entries = rawdoc! {"$each": [entry("user"), entry("assistant")], "$slice": -100_i64};
        push.append(cstr!("history"), entries);
    }
    let update = rawdoc! {"$set": set, "$push": push, "$unset": {"lease": "", "turn": ""}};
    Ok(rawdoc! {"q": {"_id": session_id}, "u": update, "upsert": true})
}

async fn commit(commands: Commands, items: Arc<Vec<Item>>) -> StoreResult<Vec<StoreResult<()>>> {
    let turns: Vec<RawDocumentBuf> = items.iter().map(turn_document).collect();
    let steps: Vec<RawDocumentBuf> = items.iter().map(step_document).collect();
    // The session's write with majority also covers the earlier writes, so these need no majority of their own.
    let turns = insert(&commands, "turns", &turns, Durability::Primary);
    future::try_join(turns, insert(&commands, "steps", &steps, Durability::Primary)).await?;
    let sessions = items.iter().map(left_session).collect::<StoreResult<Vec<_>>>()?;
    update(&commands, &sessions).await?;
    Ok(items.iter().map(|_| Ok(())).collect())
}
