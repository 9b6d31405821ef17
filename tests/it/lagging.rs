//! Replicas that lag, streams without a leader, and events that get lost.

use crate::conformance::kit;
use crate::scenarios::{answer, sales, sales_with};
use crate::support::engine::{DEADLINE, Engine, quick};
use crate::support::interceptor::{Fate, lag, way_to};
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::{ClusterHandles, Server, cluster};
use crate::support::{backend, eventually};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use cluster::nats::NatsQueue;
use futures::TryStreamExt;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use storage::queue::{Publish, Queue, QueueError};
use storage::store::records::Acquire;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::canonical;
use types::event::{EventType, OutEvent};
use types::session::Status;
use types::step::StepRecord;

/// Error code of nats-server for a stream without a leader.
const LEADERLESS: &str = "error code 10008";

async fn connected(url: impl Into<String>, handles: &ClusterHandles) -> NatsQueue {
    let mut settings = handles.settings();
    settings.nats.url = url.into();
    NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap()
}

/// An engine on its own nats-server, to which its workers connect through a proxy with `look`.
async fn engine_by(
    server: &Server,
    model: ScriptedModel,
    look: impl FnMut(&str, &mut [u8]) -> Fate + Clone + Send + 'static,
) -> Engine {
    let handles = ClusterHandles { nats_url: server.address(), ..cluster().await };
    let backend = backend::cluster_of(quick(handles.settings())).await;
    let mut engine = Engine::watching(backend, model).await;
    engine.queue = Arc::new(connected(way_to(server, look).await, &handles).await);
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_leader_does_not_say_that_a_message_is_gone() {
    let servers = Server::nats_cluster().await;
    let handles = ClusterHandles { nats_url: servers[0].address(), ..cluster().await };
    let jetstream = async_nats::jetstream::new(async_nats::connect(&handles.nats_url).await.unwrap());
    let jobs = Config {
        name: format!("{}_JOBS", handles.namespace.to_uppercase()),
        subjects: vec![format!("{}.jobs.*", handles.namespace)],
        retention: RetentionPolicy::WorkQueue,
        allow_direct: true,
        num_replicas: 3,
        ..Config::default()
    };
    let stream = jetstream.create_stream(jobs).await.unwrap();
    let queue = connected(handles.nats_url.clone(), &handles).await;
    let publish = Publish { session_id: "s".into(), msg_id: None, payload: "{}".into() };
    let first = queue.publish(publish).await.unwrap().seq;
    eventually(DEADLINE, "the first server has the message", || async {
        queue.next_in_lane("s", first - 1, 0).await.ok().flatten().is_some()
    })
    .await;
    servers[1].kill();
    servers[2].kill();
    // The worker knows of a second message that the last server has not applied.
    let read = async || queue.next_in_lane("s", first, first + 1).await;
    let early = read().await;
    assert!(
        matches!(early, Err(QueueError::Unavailable(_))),
        "the server may still consider itself the leader: {early:?}"
    );
    eventually(DEADLINE, "the server says that the stream has no leader", || async {
        let refused = stream.get_raw_message(first).await.err();
        refused.is_some_and(|error| error.to_string().contains(LEADERLESS))
    })
    .await;
    let late = read().await;
    assert!(matches!(late, Err(QueueError::Unavailable(_))), "without a leader the read fails: {late:?}");
}

/// True if workers have pulled this many jobs without acknowledging them.
async fn pulled(server: &Server, namespace: &str, count: usize) -> bool {
    let jetstream = async_nats::jetstream::new(async_nats::connect(server.address()).await.unwrap());
    let stream = jetstream.get_stream(format!("{}_JOBS", namespace.to_uppercase())).await.unwrap();
    let consumers: Vec<_> = stream.consumers().try_collect().await.unwrap();
    consumers.iter().map(|consumer| consumer.num_ack_pending).sum::<usize>() == count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_is_kept_while_neither_a_replica_nor_the_leader_can_tell() {
    let (server, broken, asked) = (Server::nats(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (cut, count) = (Arc::clone(&broken), Arc::clone(&asked));
    let look = move |subject: &str, request: &mut [u8]| {
        if !cut.load(Ordering::SeqCst) {
            return Fate::Passes;
        }
        if subject.contains(".DIRECT.GET.") {
            lag(request);
        }
        if subject.contains(".STREAM.MSG.GET.") {
            count.fetch_add(1, Ordering::SeqCst);
            return Fate::GetsLost;
        }
        Fate::Passes
    };
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let model = ScriptedModel::start(move |asked| {
        let content = match asked.schema.as_str() {
            "plan_and_decision" => plan(json!("您好"), &answer("好的")),
            _ => answer("好的"),
        };
        Answer::json(&content).gated(&held)
    })
    .await;
    let engine = engine_by(&server, model, look).await;
    engine.apply(sales()).await;
    engine.start_worker();
    engine.publish("s1", "m-1", "你好").await;
    eventually(DEADLINE, "the first turn runs", || async { !engine.model.asked().is_empty() }).await;
    broken.store(true, Ordering::SeqCst);
    // The message joins the lane; its turn reads it from the stream.
    engine.publish("s1", "m-2", "还在吗").await;
    eventually(DEADLINE, "the worker has pulled both", || pulled(&server, &engine.settings.namespace, 2)).await;
    gate.add_permits(1);
    eventually(DEADLINE, "the leader is asked", || async { asked.load(Ordering::SeqCst) > 0 }).await;
    // The response gets lost, and the request times out after five seconds.
    eventually(DEADLINE, "the request is repeated", || async { asked.load(Ordering::SeqCst) > 1 }).await;
    broken.store(false, Ordering::SeqCst);
    let turn = engine.turn("s1", "m-2").await;
    assert_eq!((turn.statuses.last().unwrap().status, turn.attempts), (Status::Ready, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_merged_turn_reads_all_that_it_covers_from_a_lagging_replica() {
    let server = Server::nats();
    let look = |subject: &str, request: &mut [u8]| {
        if subject.contains(".DIRECT.GET.") {
            lag(request);
        }
        Fate::Passes
    };
    let model = ScriptedModel::start(|asked| match asked.schema.as_str() {
        "plan_and_decision" => Answer::json(&plan(json!("您好"), &answer("好的"))),
        _ => Answer::json(&answer("好的")),
    })
    .await;
    let engine = engine_by(&server, model, look).await;
    engine.apply(sales_with(&json!({"double_text": "merge"}))).await;
    let agent = engine.store.agent("sales").await.unwrap().unwrap();
    for (job_id, text) in [("m-1", "一"), ("m-2", "二"), ("m-3", "三")] {
        engine.publish("s1", job_id, text).await;
    }
    // A worker that merged all three messages and died.
    let stream = engine.queue.stream().await.unwrap().created_at;
    let begun = Acquire { stream, lease: Duration::ZERO, ..kit::acquire("s1", 1, "dead") };
    let grant = kit::granted(engine.store.acquire(begun).await.unwrap());
    let begin = StepRecord {
        kind: "begin".into(),
        target: "sales".into(),
        input_hash: canonical::hash(&json!("m-1")),
        ..(*kit::step(
            "begin",
            json!({"agent_id": "sales", "hash": agent.hash, "through": 3, "stream": stream, "merged": ["m-2", "m-3"]}),
        ))
        .clone()
    };
    engine.store.record(kit::record(&grant, "m-1", vec![Arc::new(begin)], None)).await.unwrap();
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    let session = engine.session("s1").await;
    assert_eq!(session.last_seq, 3);
    for job_id in ["m-1", "m-2", "m-3"] {
        assert!(session.has_handled(job_id), "{job_id} is part of the turn");
    }
    let asked = &engine.model.asked()[0].user;
    assert!(["一", "二", "三"].iter().all(|text| asked.contains(text)), "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_loss_no_event_is_stored_before_the_one_that_was_lost() {
    let server = Server::nats();
    let handles = ClusterHandles { nats_url: server.address(), ..cluster().await };
    let look = |_: &str, message: &mut [u8]| {
        let lost = message.windows(3).any(|window| window == b"e/1");
        if lost { Fate::GetsLost } else { Fate::Passes }
    };
    let queue = connected(way_to(&server, look).await, &handles).await;
    let direct = connected(server.address(), &handles).await;
    let event = |id: &str| OutEvent {
        channel: "web".into(),
        session_id: "s".into(),
        event_type: EventType::Status,
        msg_id: Some(id.into()),
        payload: id.to_owned().into(),
    };
    let failed = queue.emit(["e/0", "e/1"].map(event).into()).await;
    assert!(matches!(failed, Err(QueueError::Unavailable(_))), "{failed:?}");
    // A repeat of the turn that has made more progress.
    let failed = queue.emit(["e/0", "e/1", "e/2"].map(event).into()).await;
    assert!(matches!(failed, Err(QueueError::Unavailable(_))), "{failed:?}");
    // Another worker publishes the same events over an intact connection.
    direct.emit(["e/0", "e/1", "e/2"].map(event).into()).await.unwrap();
    let mut events = direct.events("s", storage::queue::From::After(0)).await.unwrap();
    let mut stored = Vec::new();
    for _ in 0..3 {
        let next = tokio::time::timeout(DEADLINE, futures::StreamExt::next(&mut events)).await.unwrap();
        stored.push(String::from_utf8(next.unwrap().unwrap().payload.to_vec()).unwrap());
    }
    assert_eq!(stored, ["e/0", "e/1", "e/2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_that_fail_while_the_server_responds_are_not_repeated_without_a_pause() {
    let (server, asked) = (Server::nats(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&asked);
    // The server refuses a malformed request to create the consumer, as it does when an account has reached its limit.
    let look = move |subject: &str, request: &mut [u8]| {
        if subject.contains(".CONSUMER.") && subject.contains(".CREATE.") {
            seen.lock().unwrap().push(Instant::now());
            let length = request.len() - 2;
            request[..length].fill(b'x');
        }
        Fate::Passes
    };
    let model = ScriptedModel::start(|_| Answer::Hang).await;
    let engine = engine_by(&server, model, look).await;
    let stop = engine.start_worker();
    // Each pull makes two requests: the second after it has checked the streams.
    eventually(DEADLINE, "pulls fail", || async { asked.lock().unwrap().len() >= 9 }).await;
    stop.cancel();
    let asked = asked.lock().unwrap();
    let took = asked[8].duration_since(asked[0]);
    assert!(took >= Duration::from_secs(1), "the fifth pull after four that failed within {took:?}");
}
