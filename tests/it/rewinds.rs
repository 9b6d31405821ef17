//! A jobs stream that has gone back: it was deleted and created again, or its server was restored without the last
//! messages. In every session all later messages are processed, and no message is processed twice.

use crate::conformance::kit;
use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::outbox::outbox;
use crate::scenarios::{answer, sales_with};
use crate::support::backend::cluster_of;
use crate::support::engine::{Backend, DEADLINE, Engine, quick};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::{cluster, private};
use async_nats::jetstream;
use base::config::Settings;
use cluster::nats::NatsQueue;
use commands::doctor::{self, Level};
use definitions::agent::validate::KnownNames;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{Delivery, Publish, Queue};
use storage::store::records::{Acquire, Acquired, Change, Commit};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::duration::Text;
use types::event::ReplyKind;
use types::outcome::Outcome;
use types::session::Status;

/// An engine whose model replies `<message>!`.
async fn echo(backend: Backend, agent: &Value) -> Engine {
    let model = ScriptedModel::start(|asked| {
        let reply = answer(&format!("{}!", asked.user));
        Answer::json(&if asked.schema == "plan_and_decision" { plan(json!(null), &reply) } else { reply })
    });
    let engine = Engine::start(backend, model.await, 1).await;
    let mut agent = sales_with(agent);
    agent.as_object_mut().unwrap().remove("greeting");
    engine.apply(agent).await;
    engine
}

/// From now on the model's response to the message `2` waits for a permit of the returned gate.
fn holds_back_the_second(engine: &Engine) -> Arc<Semaphore> {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.model.script(move |asked| {
        let reply = Answer::json(&answer(&format!("{}!", asked.user)));
        if asked.user == "2" { reply.gated(&held) } else { reply }
    });
    gate
}

async fn texts(engine: &Engine, session_id: &str) -> Vec<String> {
    engine.said(session_id).await.into_iter().map(|(_, text)| text).collect()
}

async fn context(engine: &Engine) -> jetstream::Context {
    jetstream::new(async_nats::connect(&engine.settings.nats.url).await.unwrap())
}

fn stream_name(engine: &Engine) -> String {
    format!("{}_JOBS", engine.settings.namespace.to_uppercase())
}

/// Deletes the jobs stream, and lets another process create it again.
async fn make_again(engine: &Engine) -> NatsQueue {
    context(engine).await.delete_stream(stream_name(engine)).await.unwrap();
    NatsQueue::connect(&engine.settings, CancellationToken::new()).await.unwrap()
}

async fn publish(queue: &NatsQueue, session_id: &str, job: Value) -> u64 {
    let payload = serde_json::to_vec(&job).unwrap().into();
    queue.publish(Publish { session_id: session_id.into(), msg_id: None, payload }).await.unwrap().seq
}

fn says(session_id: &str, job_id: &str, text: &str) -> Value {
    json!({"type": "user_message", "session_id": session_id, "agent_id": "sales", "job_id": job_id, "text": text,
           "user_id": "u1", "channel": "web"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_a_stream_that_was_made_again_are_answered_in_order() {
    let engine = echo(crate::support::backend::cluster().await, &json!({})).await;
    for n in 1..=4 {
        engine.say("s1", &format!("m-{n}"), &n.to_string()).await;
    }
    let before = engine.session("s1").await;
    let other = make_again(&engine).await;
    // An id that was processed counts as processed in any stream.
    for (job_id, text) in [("m-4", "4"), ("m-5", "5"), ("m-6", "6")] {
        assert!(publish(&other, "s1", says("s1", job_id, text)).await < before.last_seq);
    }
    engine.turn("s1", "m-6").await;
    assert_eq!(texts(&engine, "s1").await, ["1!", "2!", "3!", "4!", "5!", "6!"]);
    let after = engine.session("s1").await;
    assert_eq!((after.last_seq, after.pending_seq), (3, 3));
    assert!(after.stream > before.stream && after.stream == Some(other.stream().await.unwrap().created_at));
    // A new session, and one with sequences of the new stream.
    engine.say("s2", "m-1", "a").await;
    engine.say("s1", "m-7", "7").await;
    assert!(engine.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_and_commands_reach_a_session_of_the_former_stream() {
    let timers = json!([{"name": "follow_up", "delay": "2s", "message": "还在吗？"}]);
    let engine = echo(crate::support::backend::cluster().await, &json!({ "timers": timers })).await;
    // Without a scheduler, no timer fires before the stream is created again.
    engine.stop_scheduler();
    for n in 1..=3 {
        engine.say("s1", &format!("m-{n}"), &n.to_string()).await;
        engine.say("s2", &format!("m-{n}"), &n.to_string()).await;
    }
    let other = make_again(&engine).await;
    let close = json!({"type": "control", "session_id": "s2", "job_id": "c-1", "command": "close", "by": "li"});
    assert_eq!(publish(&other, "s2", close).await, 1);
    engine.start_scheduler();
    eventually(DEADLINE, "s2 is closed", || async { engine.session("s2").await.closed_at }).await;
    eventually(DEADLINE, "the timer of s1 fires", || async {
        engine.said("s1").await.iter().any(|(kind, _)| *kind == ReplyKind::Timer)
    })
    .await;
    assert_eq!(engine.session("s1").await.stream, Some(other.stream().await.unwrap().created_at));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_in_hand_whose_stream_is_made_again_ends_and_so_does_the_next_one() {
    let engine = echo(crate::support::backend::cluster().await, &json!({})).await;
    engine.say("s1", "m-1", "1").await;
    let gate = holds_back_the_second(&engine);
    let asked = engine.model.asked().len();
    engine.publish("s1", "m-2", "2").await;
    eventually(DEADLINE, "the turn is in flight", || async { engine.model.asked().len() > asked }).await;
    let other = make_again(&engine).await;
    gate.add_permits(1);
    assert_eq!(publish(&other, "s1", says("s1", "m-3", "3")).await, 1);
    engine.turn("s1", "m-3").await;
    assert_eq!(texts(&engine, "s1").await, ["1!", "2!", "3!"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_merged_messages_continues_in_the_new_stream_and_hides_no_later_message() {
    let model = ScriptedModel::start(|asked| {
        let reply = answer(&format!("{}!", asked.user));
        Answer::json(&if asked.schema == "plan_and_decision" { plan(json!(null), &reply) } else { reply })
    });
    let engine = Engine::watching(crate::support::backend::cluster().await, model.await).await;
    engine.apply(sales_with(&json!({"double_text": "merge", "greeting": null}))).await;
    let dir = tempfile::tempdir().unwrap();
    let worker = Process::start(dir.path(), &engine.settings, &["worker"]);
    for n in 1..=4 {
        engine.say("s0", &format!("m-{n}"), &n.to_string()).await;
    }
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.model.script(move |asked| {
        let reply = answer(&format!("{}!", asked.user));
        let reply = Answer::json(&if asked.schema == "plan_and_decision" { plan(json!(null), &reply) } else { reply });
        if ["1", "2\n3"].contains(&asked.user.as_str()) { reply.gated(&held) } else { reply }
    });
    let is_asked = async |user: &str| {
        eventually(DEADLINE, user, || async { engine.model.asked().iter().any(|asked| asked.user == user) }).await;
    };
    let waiting = engine.model.asked().len();
    engine.publish("s1", "m-1", "1").await;
    eventually(DEADLINE, "the first turn asks", || async { engine.model.asked().len() > waiting }).await;
    engine.publish("s1", "m-2", "2").await;
    engine.publish("s1", "m-3", "3").await;
    gate.add_permits(1);
    is_asked("2\n3").await;
    worker.kill();
    let other = make_again(&engine).await;
    for n in 2..=4 {
        publish(&other, "s1", says("s1", &format!("m-{n}"), &n.to_string())).await;
    }
    gate.add_permits(10);
    engine.start_worker();
    engine.turn("s1", "m-4").await;
    engine.say("s1", "m-5", "5").await;
    assert_eq!(texts(&engine, "s1").await, ["1!", "2\n3!", "4!", "5!"]);
    assert!(engine.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_turn_has_said_is_published_though_its_message_is_gone_with_the_stream() {
    let backend = crate::support::backend::cluster().await;
    let model = ScriptedModel::start(|_| Answer::json(&plan(json!(null), &answer("第二句"))));
    let engine = Engine::watching(backend, model.await).await;
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    engine.publish("s", "m-0", "在吗").await;
    engine.publish("s", "m-1", "在吗").await;
    let taken = engine.queue.pull(2, DEADLINE).await.unwrap();
    let message = &taken.iter().max_by_key(|delivery| delivery.message.seq).unwrap().message;
    let wish = Acquire { stream: message.stream, ..kit::acquire("s", message.seq, "w1") };
    let grant = kit::granted(engine.store.acquire(wish).await.unwrap());
    let change = Change { outbox: outbox().into(), ..kit::change(&grant.session, "m-1") };
    let commit = kit::commit(&grant, message.seq, Some(change));
    let commit = Commit { stream: message.stream, at: message.at, ..commit };
    engine.store.commit(commit).await.unwrap();
    // The worker dies here, and the stream is deleted.
    let other = make_again(&engine).await;
    publish(&other, "s", says("s", "m-2", "2")).await;
    engine.start_worker();
    engine.turn("s", "m-2").await;
    assert_eq!(texts(&engine, "s").await, ["第一句", "第二句"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_goes_on_in_no_other_stream_than_the_one_it_began_in() {
    let engine = echo(crate::support::backend::cluster().await, &json!({})).await;
    engine.say("s1", "m-1", "1").await;
    let gate = holds_back_the_second(&engine);
    let asked = engine.model.asked().len();
    engine.publish("s1", "m-2", "2").await;
    eventually(DEADLINE, "the turn is in flight", || async { engine.model.asked().len() > asked }).await;
    // Another worker was woken for a third message, which is deleted with the stream. The holder must look for more
    // messages.
    let stream = engine.queue.stream().await.unwrap().created_at;
    let wish = Acquire { stream, ..kit::acquire("s1", 3, "w2") };
    assert!(matches!(engine.store.acquire(wish).await.unwrap(), Acquired::Busy(_)));
    let other = make_again(&engine).await;
    for (job_id, text) in [("m-4", "4"), ("m-5", "5"), ("m-6", "6")] {
        publish(&other, "s1", says("s1", job_id, text)).await;
    }
    gate.add_permits(1);
    engine.turn("s1", "m-6").await;
    assert_eq!(texts(&engine, "s1").await, ["1!", "2!", "4!", "5!", "6!"]);
}

/// A queue that redelivers nothing during a test.
async fn patient_queue() -> (NatsQueue, Settings) {
    let mut settings = quick(cluster().await.settings());
    settings.worker.ack_wait = Text(Duration::from_secs(60));
    (NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap(), settings)
}

async fn delete_stream(settings: &Settings) {
    let context = jetstream::new(async_nats::connect(&settings.nats.url).await.unwrap());
    context.delete_stream(format!("{}_JOBS", settings.namespace.to_uppercase())).await.unwrap();
}

/// Waits for the next delivery. If the consumer was deleted with its stream, the queue looks it up again.
async fn pulled(queue: &NatsQueue) -> Delivery {
    eventually(DEADLINE, "a job is delivered", || async { queue.pull(1, DEADLINE).await.ok()?.pop() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_the_former_stream_acknowledges_nothing_in_the_new_one() {
    let (queue, settings) = patient_queue().await;
    publish(&queue, "s", json!({})).await;
    let former = pulled(&queue).await;
    delete_stream(&settings).await;
    // The new message has the sequence of the former one, and so does its delivery.
    assert_eq!(publish(&queue, "s", json!({})).await, former.message.seq);
    let new = pulled(&queue).await;
    queue.ack(&former.token).await.unwrap();
    let last = publish(&queue, "t", json!({})).await;
    queue.ack(&pulled(&queue).await.token).await.unwrap();
    eventually(DEADLINE, "later messages are lost", || async {
        queue.next_in_lane("t", last - 1, 0).await.unwrap().is_none()
    })
    .await;
    assert!(queue.next_in_lane("s", 0, 0).await.unwrap().is_some(), "the message is not processed");
    queue.ack(&new.token).await.unwrap();
    eventually(DEADLINE, "it is gone", || async { queue.backlog().await.unwrap().jobs == 0 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_kept_its_consumer_sees_by_its_deliveries_that_the_stream_was_made_again() {
    /// More than the number by which deliveries may be out of order.
    const MANY: usize = 4_200;
    let (queue, settings) = patient_queue().await;
    futures::future::join_all((0..MANY).map(|number| {
        let queue = &queue;
        async move { publish(queue, &format!("s{number}"), json!({})).await }
    }))
    .await;
    let mut taken = 0;
    while taken < MANY {
        taken += queue.pull(512, DEADLINE).await.unwrap().len();
    }
    delete_stream(&settings).await;
    let other = NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap();
    for _ in 0..2 {
        publish(&other, "s", json!({})).await;
    }
    // The other process creates the consumer. The first process cannot distinguish it from the one that it knows.
    let made = other.stream().await.unwrap().created_at;
    assert_eq!(pulled(&other).await.message.stream, made);
    assert_eq!(pulled(&queue).await.message.stream, made);
}

/// Copies a folder to which no process writes.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_a_stream_that_has_lost_its_end_are_answered() {
    let (nats, _mongod, handles) = private().await;
    let engine = echo(cluster_of(quick(handles.settings())).await, &json!({})).await;
    engine.say("s1", "m-1", "1").await;
    eventually(DEADLINE, "m-1 is acknowledged", || async { engine.queue.backlog().await.unwrap().jobs == 0 }).await;
    let backup = tempfile::tempdir().unwrap();
    nats.kill();
    copy(nats.dir(), backup.path());
    nats.restart();
    let unnamed = |text: &str| json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "text": text});
    for text in ["2", "3", "4"] {
        // The job has no id, so its name contains the sequence, which the stream will assign again.
        eventually(DEADLINE, "NATS is reachable again", || async { engine.queue.ping().await.is_ok() }).await;
        engine.publish_job("s1", unnamed(text)).await;
    }
    let said = |count: usize| {
        let engine = &engine;
        eventually(DEADLINE, "all is answered", move || async move {
            let texts = texts(engine, "s1").await;
            (texts.len() >= count).then_some(texts)
        })
    };
    assert_eq!(said(4).await, ["1!", "2!", "3!", "4!"]);
    assert_eq!(engine.session("s1").await.last_seq, 4);
    nats.kill();
    std::fs::remove_dir_all(nats.dir()).unwrap();
    copy(backup.path(), nats.dir());
    nats.restart();
    eventually(DEADLINE, "NATS is back", || async { engine.queue.ping().await.is_ok() }).await;
    assert_eq!(engine.queue.stream().await.unwrap().last_seq, 1, "messages after the backup are lost");
    let known = KnownNames::new(&engine.settings, engine.flows.ids());
    let found = doctor::work(engine.queue.as_ref(), engine.store.as_ref(), &engine.settings, &known);
    let found = found.await.into_iter().find(|finding| finding.place == "sequences").unwrap();
    assert!(found.level == Level::Problem && found.what.contains("has lost its last messages"), "{found:?}");
    engine.publish_job("s1", unnamed("5")).await;
    engine.publish("s1", "m-6", "6").await;
    engine.turn("s1", "m-6").await;
    // The stream of events was restored, too: it lost the replies after the backup, but the history still has them.
    let asked: Vec<String> = engine.model.asked().into_iter().map(|asked| asked.user).collect();
    assert_eq!(asked, ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(said(3).await, ["1!", "5!", "6!"]);
    let session = engine.session("s1").await;
    assert_eq!((session.last_seq, session.history.len(), session.workflow_state.status), (3, 12, Status::Ready));
    assert_eq!(engine.store.turns("s1", 20).await.unwrap().len(), 6, "the turn of the lost message keeps its record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_has_gone_back_is_counted_and_sessions_of_an_earlier_version_follow_it() {
    let backend = crate::support::backend::cluster().await;
    let engine = echo(backend, &json!({})).await;
    let gateway = Gateway::of(&engine).await;
    let count = || async { Metrics::of(&gateway).await.value("turnwheel_rewinds_total{cause=\"tail\"}") };
    for n in 1..=3 {
        engine.say("s1", &format!("m-{n}"), &n.to_string()).await;
    }
    let servers = mongodb::Client::with_uri_str(&engine.settings.mongodb.uri).await.unwrap();
    let sessions = servers.database(&engine.settings.mongodb.database).collection::<bson::Document>("sessions");
    let forget = bson::doc! {"$unset": {"stream": "", "last_at": "", "fence": ""}};
    sessions.update_one(bson::doc! {"_id": "s1"}, forget).await.unwrap();
    let before = count().await;
    let other = make_again(&engine).await;
    publish(&other, "s1", says("s1", "m-4", "4")).await;
    let turn = engine.turn("s1", "m-4").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert!(count().await > before);
    assert!(engine.session("s1").await.stream.is_some());
}
