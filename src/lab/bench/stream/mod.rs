//! `bench stream`: the delay between the model's first token and its arrival at a reader.
//!
//! A FLOW streams its text to readers of the queue and of a gateway's server-sent events. The model is a server in this
//! process ([`speaker`]). For comparison, the benchmark also asks it directly. All times count from the model request.

mod speaker;

use super::agent::AGENT;
use super::figures::Latencies;
use super::member::{MemberProfile, Role};
use super::options::StreamOptions;
use super::report::{Column, Report, Row, rounded};
use super::test_cluster::{TestCluster, TestNamespace};
use super::workers::Workers;
use super::{Problem, Progress};
use anyhow::Context;
use base::config::{Environment, Model, Settings};
use base::http_client;
use base::tasks::{OnPanic, Tasks};
use commands::messages::{NewMessage, submit};
use definitions::agent::AgentRecord;
use definitions::workflow::definition::WorkflowRecord;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{StreamExt, TryStreamExt};
use gateway;
use gateway::GatewayState;
use serde_json::json;
use speaker::Speaker;
use sse_stream::SseStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::queue::{From, StreamEvent};
use tokio::net::TcpListener;
use types::duration::{Text, format};
use types::event::{Event, EventType, Reply, ReplyKind};
use types::timestamp::Timestamp;

pub(super) use speaker::MODEL;

/// The workflow. Its one stage asks [`WRITER`].
const WORKFLOW: &str = "speak";
const WRITER: &str = "writer";
/// Time limit for one turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

const COLUMNS: &[Column] = &[
    ("users", "users"),
    ("turns", "turns"),
    ("model p50 ms", "model_p50_ms"),
    ("p99", "model_p99_ms"),
    ("queue p50 ms", "queue_p50_ms"),
    ("p99", "queue_p99_ms"),
    ("SSE p50 ms", "sse_p50_ms"),
    ("p99", "sse_p99_ms"),
    ("queue +p50", "queue_added_p50_ms"),
    ("+p99", "queue_added_p99_ms"),
    ("SSE +p50", "sse_added_p50_ms"),
    ("+p99", "sse_added_p99_ms"),
    ("from message p50", "message_p50_ms"),
];

/// Runs the benchmark: one row for each number of users.
pub async fn run(
    options: &StreamOptions,
    settings: &Settings,
    env: &Environment,
    progress: &dyn Progress,
) -> anyhow::Result<Report> {
    let cluster = TestCluster::prepare(&options.target, settings, env, progress).await?;
    let mut rows = Vec::new();
    for users in &options.users {
        progress.phase(&format!("stream: {users} users"));
        rows.push(Box::pin(row(&cluster, options, *users, progress)).await?);
    }
    Ok(Report { environment: cluster.conditions.clone(), rows, columns: COLUMNS })
}

async fn row(
    cluster: &TestCluster,
    options: &StreamOptions,
    users: usize,
    progress: &dyn Progress,
) -> anyhow::Result<Row> {
    let tasks = Tasks::new();
    let speaker = Speaker::start(options, &tasks).await?;
    let model: Model = serde_json::from_value(json!({
        "provider": "openai", "base_url": speaker.base_url, "model": MODEL,
    }))?;
    let namespace = cluster.open_namespace(|settings| settings.models = [(MODEL.to_owned(), model)].into()).await?;
    namespace.store.put_agent(AgentRecord::from_document(agent(), Timestamp::from_millis(0))?).await?;
    namespace.store.put_agent(AgentRecord::from_document(writer(), Timestamp::from_millis(0))?).await?;
    namespace.store.put_workflow(WorkflowRecord::from_document(workflow(), Timestamp::from_millis(0))?).await?;
    let base = serve(&namespace, &tasks).await?;
    let profile = MemberProfile { role: Role::Worker, actions: 0, model_latency: Text(Duration::ZERO), hot: false };
    let workers = Workers::start(&namespace, &profile, options.workers, cluster.dir())?;
    let turns = options.turns.div_ceil(users);
    let direct = together(users, |_| speaker.asked_directly(turns)).await?;
    let bench = StreamBench { namespace: &namespace, speaker: &speaker, base: &base, turns };
    let told = together(users, |user| bench.user(user, progress)).await?;
    let row = figures(options, users, &direct.concat(), &told.concat())?;
    workers.end().await;
    tasks.shutdown(Duration::from_secs(1)).await;
    namespace.close().await?;
    Ok(row)
}

/// Runs all users concurrently.
async fn together<T, F: Future<Output = anyhow::Result<T>>>(
    users: usize,
    user: impl Fn(usize) -> F,
) -> anyhow::Result<Vec<T>> {
    (0..users).map(user).collect::<FuturesUnordered<_>>().try_collect().await
}

fn agent() -> serde_json::Value {
    let decide = json!({"next_status": "processing", "action": {"type": "FLOW", "target": WORKFLOW, "params": {}}});
    json!({ "id": AGENT, "name": "小智", "sop": "讲一段。", "flows": [WORKFLOW], "model": "offline",
            "rules": [{"when": {"always": true}, "decide": decide}] })
}

fn writer() -> serde_json::Value {
    json!({ "id": WRITER, "model": MODEL, "system_prompt": "讲一段。" })
}

fn workflow() -> serde_json::Value {
    json!({ "type": "pipeline", "id": WORKFLOW, "stages": [{"id": "say", "runnable": WRITER, "input": "{query}"}] })
}

/// Starts a gateway in this process. Returns its base URL.
async fn serve(namespace: &TestNamespace, tasks: &Tasks) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let settings = Arc::new(namespace.settings.clone());
    let state = GatewayState::new(Arc::clone(&namespace.queue), Arc::clone(&namespace.store), settings);
    let stop = tasks.stop_token();
    tasks.spawn("gateway", OnPanic::Log, async move {
        let _ = gateway::serve(listener, state, stop).await;
    });
    Ok(base)
}

/// Delays until a turn's first chunk arrived at a reader, counted from the model request.
#[derive(Clone, Copy)]
struct StreamTimes {
    queue: Duration,
    sse: Duration,
    /// From the message's publication to the reader of server-sent events.
    message: Duration,
}

struct StreamBench<'a> {
    namespace: &'a TestNamespace,
    speaker: &'a Speaker,
    base: &'a str,
    turns: usize,
}

impl StreamBench<'_> {
    /// Simulates one user, who writes again when the whole text has arrived.
    async fn user(&self, user: usize, progress: &dyn Progress) -> anyhow::Result<Vec<StreamTimes>> {
        let session_id = format!("u{user}");
        // The first turn creates the session that the readers follow, and opens the connections.
        self.publish(&session_id, "begin").await?;
        let mut queue =
            self.namespace.queue.events(&session_id, From::After(0)).await?.map_err(anyhow::Error::from).boxed();
        first(&mut queue, "begin").await?;
        end(&mut queue, "begin").await?;
        let mut sse = self.follow(&session_id).await?;
        let mut found = Vec::with_capacity(self.turns);
        for turn in 0..self.turns {
            let turn_id = format!("t{turn}");
            let published = Instant::now();
            self.publish(&session_id, &turn_id).await?;
            let (at_queue, at_sse) = tokio::try_join!(first(&mut queue, &turn_id), first(&mut sse, &turn_id))?;
            let asked = self.speaker.asked(&format!("{session_id}/{turn_id}/")).context("the model got no request")?;
            found.push(StreamTimes {
                queue: at_queue.saturating_duration_since(asked),
                sse: at_sse.saturating_duration_since(asked),
                message: at_sse.saturating_duration_since(published),
            });
            tokio::try_join!(end(&mut queue, &turn_id), end(&mut sse, &turn_id))?;
            progress.tick(&format!("{} of {} turns of each user", turn + 1, self.turns));
        }
        Ok(found)
    }

    async fn publish(&self, session_id: &str, job_id: &str) -> anyhow::Result<()> {
        let message = NewMessage {
            session_id: session_id.to_owned(),
            agent_id: Some(AGENT.to_owned()),
            text: "讲一段吧".to_owned(),
            job_id: Some(job_id.to_owned()),
            ..NewMessage::default()
        };
        submit(self.namespace.queue.as_ref(), self.namespace.store.as_ref(), message)
            .await
            .map_err(|refused| anyhow::anyhow!("{refused}"))?;
        Ok(())
    }

    /// Follows the session's events through the gateway, from now on.
    async fn follow(&self, session_id: &str) -> anyhow::Result<Events> {
        let client = http_client::builder().no_proxy().build()?;
        let url = format!("{}/api/v1/sessions/{session_id}/events", self.base);
        let response = client.get(url).send().await?.error_for_status()?;
        let events = SseStream::from_bytes_stream(response.bytes_stream()).filter_map(async |event| {
            let event = match event {
                Ok(event) => event,
                Err(error) => return Some(Err(anyhow::anyhow!("{error}"))),
            };
            let event_type = EventType::from_token(event.event.as_deref()?)?;
            Some(Ok(StreamEvent { seq: 0, event_type, payload: event.data.unwrap_or_default().into() }))
        });
        Ok(events.boxed())
    }
}

type Events = BoxStream<'static, anyhow::Result<StreamEvent>>;

/// Waits for the first chunk of a turn. Returns the time of its arrival.
async fn first(events: &mut Events, turn_id: &str) -> anyhow::Result<Instant> {
    until(events, turn_id, |reply| reply.kind == ReplyKind::Chunk && reply.seq == 0).await
}

async fn end(events: &mut Events, turn_id: &str) -> anyhow::Result<()> {
    until(events, turn_id, |reply| reply.kind == ReplyKind::Final).await.map(drop)
}

async fn until(events: &mut Events, turn_id: &str, wanted: impl Fn(&Reply) -> bool) -> anyhow::Result<Instant> {
    let found = tokio::time::timeout(TURN_TIMEOUT, async {
        loop {
            let event = events.next().await.context("the event stream has ended")??;
            let at = Instant::now();
            if let Ok(Event::Reply(reply)) = Event::decode(event.event_type, &event.payload) {
                anyhow::ensure!(reply.kind != ReplyKind::Apology, "turn {turn_id} failed");
                if reply.turn_id == turn_id && wanted(&reply) {
                    return Ok(at);
                }
            }
        }
    });
    let hint = "is the machine too slow? try fewer --users";
    found.await.map_err(|_| {
        Problem::new(format!("turn {turn_id} has sent no complete text within {}", format(TURN_TIMEOUT)), hint)
    })?
}

fn figures(options: &StreamOptions, users: usize, direct: &[Duration], told: &[StreamTimes]) -> anyhow::Result<Row> {
    let of = |durations: &mut dyn Iterator<Item = Duration>| {
        let mut latencies = Latencies::new()?;
        durations.for_each(|duration| latencies.record(duration));
        anyhow::Ok(latencies)
    };
    let model = of(&mut direct.iter().copied())?;
    let queue = of(&mut told.iter().map(|told| told.queue))?;
    let sse = of(&mut told.iter().map(|told| told.sse))?;
    let message = of(&mut told.iter().map(|told| told.message))?;
    let asked = json!({
        "bench": "stream", "backend": options.target.backend, "users": users, "turns": told.len(), "workers": options.workers,
        "first_token": format(options.first_token), "token_pause": format(options.token_pause), "tokens": options.tokens,
    });
    let mut row = asked.as_object().cloned().unwrap_or_default();
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let own = model.quantile(quantile);
        for (reader, latencies) in [("model", &model), ("queue", &queue), ("sse", &sse), ("message", &message)] {
            row.insert(format!("{reader}_{name}_ms"), rounded(latencies.quantile(quantile)));
        }
        for (reader, latencies) in [("queue", &queue), ("sse", &sse)] {
            row.insert(format!("{reader}_added_{name}_ms"), rounded(latencies.quantile(quantile) - own));
        }
    }
    Ok(row)
}
