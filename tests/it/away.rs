//! NATS or MongoDB unreachable: at the start of a process, and while it works.

use crate::scenarios::{answer, sales};
use crate::support::backend::cluster_of;
use crate::support::engine::{DEADLINE, Engine, quick};
use crate::support::eventually;
use crate::support::interceptor::{Fate, way_to};
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::{ClusterHandles, Server, free_port, private};
use base::config::Settings;
use cluster::nats::NatsQueue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Publish, Queue};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::session::Status;

/// Number of sessions with a turn in flight when a server stops.
pub const SESSIONS: usize = 5;

/// A model that responds once the gate has a permit, so that servers can stop during a turn.
pub async fn gated_model(gate: &Arc<Semaphore>) -> ScriptedModel {
    let held = Arc::clone(gate);
    ScriptedModel::start(move |asked| {
        let content = match asked.schema.as_str() {
            "plan_and_decision" => plan(json!("您好，我是小智"), &answer("好的")),
            _ => answer("好的"),
        };
        Answer::json(&content).gated(&held)
    })
    .await
}

fn settings(handles: &ClusterHandles) -> Settings {
    let mut settings = quick(handles.settings());
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    settings
}

/// The test's own connections to the servers. Processes do the work.
async fn watch(settings: &Settings) -> Engine {
    watch_gated(settings, &Arc::new(Semaphore::new(1))).await
}

/// The same with a model that responds once the gate has a permit.
async fn watch_gated(settings: &Settings, gate: &Arc<Semaphore>) -> Engine {
    let engine = Engine::watching(cluster_of(settings.clone()).await, gated_model(gate).await).await;
    engine.apply(sales()).await;
    engine
}

/// Status and error message of `/readyz`; `None` while the port is closed.
async fn readiness(settings: &Settings) -> Option<(u16, String)> {
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let answer = client.get(format!("http://{}/readyz", settings.gateway.listen)).send().await.ok()?;
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.ok()?;
    Some((status, body["error"]["message"].as_str().unwrap_or_default().to_owned()))
}

pub async fn is_ready(settings: &Settings) {
    eventually(DEADLINE, "the gateway is ready", || async {
        readiness(settings).await.is_some_and(|(status, _)| status == 200)
    })
    .await;
}

pub async fn is_unready_for(settings: &Settings, part: &str) {
    eventually(DEADLINE, "the gateway is not ready", || async {
        readiness(settings).await.is_some_and(|(status, message)| status == 503 && message.contains(part))
    })
    .await;
}

/// Publishes a message to each session, stops a server while the turns run, and checks that each message is answered
/// once.
async fn goes_on_after(handles: &ClusterHandles, server: &Server, part: &str) {
    let gate = Arc::new(Semaphore::new(0));
    let engine = watch_gated(&settings(handles), &gate).await;
    let (settings, dir) = (&engine.settings, tempfile::tempdir().unwrap());
    let _process = Process::start(dir.path(), settings, &["all"]);
    is_ready(settings).await;
    for number in 0..SESSIONS {
        engine.publish(&format!("s{number}"), "m-1", "你好").await;
    }
    eventually(DEADLINE, "the turns run", || async { engine.model.asked().len() >= SESSIONS }).await;
    server.kill();
    is_unready_for(settings, part).await;
    // The model responds while the server is unreachable.
    gate.add_permits(1);
    server.restart();
    is_ready(settings).await;
    for number in 0..SESSIONS {
        let session_id = format!("s{number}");
        let turn = engine.turn(&session_id, "m-1").await;
        assert_eq!(turn.statuses.last().unwrap().status, Status::Ready, "the outage cancels no turn: {turn:?}");
        assert_eq!(turn.attempts, 1, "the outage does not count as an attempt");
        let said = engine.said(&session_id).await;
        let texts: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["您好，我是小智", "好的"], "each reply once");
    }
    assert_eq!(engine.dead_letters().await, [], "the outage dead-letters no message");
}

/// A proxy to `server` that drops every client message with `marker` in it.
async fn losing(server: &Server, marker: &'static str) -> String {
    let marked = move |bytes: &[u8]| bytes.windows(marker.len()).any(|window| window == marker.as_bytes());
    let look = move |_: &str, message: &mut [u8]| if marked(message) { Fate::GetsLost } else { Fate::Passes };
    way_to(server, look).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_whose_request_went_down_with_the_server_comes_to_an_end() {
    let server = Server::nats();
    let mut settings = quick(Settings::default());
    settings.nats.url = losing(&server, "\"no_wait\":true").await;
    let queue = NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap();
    for session_id in ["s1", "s2"] {
        let publish = Publish { session_id: session_id.into(), msg_id: None, payload: "{}".into() };
        queue.publish(publish).await.unwrap();
    }
    let pulled = tokio::time::timeout(DEADLINE, queue.pull(10, Duration::from_secs(1))).await;
    let pulled = pulled.expect("the pull returns").unwrap();
    assert_eq!(pulled.len(), 1, "the pull returns the messages that arrived before the loss");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_kept_while_its_messages_cannot_be_read() {
    let (nats, _mongod, handles) = private().await;
    let settings = settings(&handles);
    let mut engine = watch(&settings).await;
    let mut lossy = settings.clone();
    lossy.nats.url = losing(&nats, "next_by_subj").await;
    engine.queue = Arc::new(NatsQueue::connect(&lossy, CancellationToken::new()).await.unwrap());
    engine.start_worker();
    engine.publish("s1", "m-1", "你好").await;
    let lease = || async { engine.store.session("s1").await.unwrap()?.lease };
    let taken = eventually(DEADLINE, "the lane is taken", lease).await;
    let epoch = engine.session("s1").await.epoch;
    let renewed = eventually(DEADLINE, "the lease is renewed", || async {
        lease().await.filter(|lease| lease.until > taken.until)
    })
    .await;
    assert_eq!(engine.session("s1").await.epoch, epoch, "the first holder keeps the lane");
    let later = taken.until.until(renewed.until);
    assert!(
        later < settings.worker.ack_wait.0,
        "the turn must continue within its lease, not after the timeout: {later:?} later"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_away_at_the_start_are_named_and_waited_for() {
    let (nats, mongod, handles) = private().await;
    let settings = settings(&handles);
    let engine = watch(&settings).await;
    nats.kill();
    mongod.kill();
    let dir = tempfile::tempdir().unwrap();
    let _process = Process::start(dir.path(), &engine.settings, &["all"]);
    eventually(DEADLINE, "NATS is missed", || async { Process::log(dir.path()).contains("nats.url = nats://") }).await;
    nats.restart();
    eventually(DEADLINE, "MongoDB is missed", || async {
        Process::log(dir.path()).contains("mongodb.uri = mongodb://")
    })
    .await;
    mongod.restart();
    is_ready(&settings).await;
    engine.publish("s1", "m-1", "你好").await;
    engine.turn("s1", "m-1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_away_in_between_only_delays_the_work() {
    let (_nats, mongod, handles) = private().await;
    Box::pin(goes_on_after(&handles, &mongod, "store")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_away_in_between_only_delays_the_work() {
    let (nats, _mongod, handles) = private().await;
    Box::pin(goes_on_after(&handles, &nats, "queue")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_shown_while_nats_is_away() {
    let (nats, _mongod, handles) = private().await;
    let settings = settings(&handles);
    let engine = watch(&settings).await;
    let dir = tempfile::tempdir().unwrap();
    let _process = Process::start(dir.path(), &settings, &["all"]);
    is_ready(&settings).await;
    engine.say("s1", "m-1", "你好").await;
    nats.kill();
    is_unready_for(&settings, "queue").await;
    // Less than the queue's own time limit for a request without a response.
    let client = base::http_client::builder().no_proxy().timeout(Duration::from_secs(4)).build().unwrap();
    let url = format!("http://{}/api/v1/sessions/s1", settings.gateway.listen);
    let shown: Value = client.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!((&shown["session_id"], &shown["has_jobs"]), (&json!("s1"), &Value::Null), "{shown}");
}
