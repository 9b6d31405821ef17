//! How much a turn leaves behind, for the figures of docs/operations.md.

use crate::gateway::Gateway;
use crate::scenarios::{answer, on_both_backends, sales_with};
use crate::support::backend::{cluster, cluster_with};
use crate::support::engine::{Backend, Engine, quick};
use crate::support::script::{Answer, Asked, ScriptedModel, plan};
use ::embedded::queue::EmbeddedQueue;
use ::embedded::store::{EmbeddedFile, EmbeddedStore};
use base::config::{PromptKeeping, Settings};
use base::tasks::Tasks;
use bson::{Document, doc};
use serde_json::{Value, json};

const SESSIONS: usize = 10;
const TURNS: usize = 20;

/// Turns with a short question and a short reply, after one turn in each session.
async fn talk(engine: &Engine, from: usize, turns: usize) {
    for turn in from..from + turns {
        for session in 0..SESSIONS {
            engine.say(&format!("s{session}"), &format!("m-{turn}"), "请问我的订单 A1001 什么时候能到？").await;
        }
    }
}

/// A reply in the form that is asked for.
fn replies(asked: &Asked, text: &str) -> Answer {
    let decided = answer(text);
    Answer::json(&if asked.schema == "plan_and_decision" { plan(Value::Null, &decided) } else { decided })
}

async fn engine(backend: Backend) -> Engine {
    let text = "您的订单已经发货，预计明天下午送到，请注意查收。";
    let model = ScriptedModel::start(move |asked| replies(asked, text)).await;
    let engine = Engine::watching(backend, model).await;
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    engine.start_worker();
    talk(&engine, 0, 1).await;
    engine
}

#[allow(clippy::cast_precision_loss, reason = "a few megabytes")]
fn per_turn(before: u64, after: u64) -> f64 {
    (after - before) as f64 / (SESSIONS * TURNS) as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_on_a_cluster_leaves_as_many_bytes_as_the_documents_say() {
    let [records, session, events] = left_on(cluster().await).await;
    eprintln!("CAPACITY records {records} session {session} events {events}");
    assert!((500.0..6_000.0).contains(&records), "turns and steps: {records}");
    assert!((100.0..1_500.0).contains(&session), "until the history is full: {session}");
    assert!((500.0..4_000.0).contains(&events), "events: {events}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prompts_of_a_turn_add_as_many_bytes_as_the_documents_say() {
    let full = |settings: &mut Settings| settings.journal.prompts = Some(PromptKeeping::Full);
    let [records, session, events] = left_on(cluster_with(full).await).await;
    eprintln!("CAPACITY with prompts: records {records} session {session} events {events}");
    assert!((1_500.0..8_000.0).contains(&records), "turns and steps: {records}");
    assert!(events < 4_000.0, "events: {events}");
}

/// The bytes that a turn leaves in records, in its session and in events.
async fn left_on(backend: Backend) -> [f64; 3] {
    let engine = engine(backend).await;
    let client = mongodb::Client::with_uri_str(&engine.settings.mongodb.uri).await.unwrap();
    let database = client.database(&engine.settings.mongodb.database);
    let sizes = async || {
        let mut sizes = Vec::new();
        for collection in ["turns", "steps", "sessions"] {
            let all = [doc! {"$group": {"_id": null, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}];
            let mut found = database.collection::<Document>(collection).aggregate(all).await.unwrap();
            sizes.push(match futures::TryStreamExt::try_next(&mut found).await.unwrap() {
                Some(sum) => sum.get_i32("bytes").map(i64::from).or_else(|_| sum.get_i64("bytes")).unwrap(),
                None => 0,
            });
        }
        let events = engine.queue.storage().await.unwrap().into_iter().find(|part| part.part == "out").unwrap();
        (sizes[0].unsigned_abs() + sizes[1].unsigned_abs(), sizes[2].unsigned_abs(), events.bytes)
    };
    let before = sizes().await;
    talk(&engine, 1, TURNS).await;
    let after = sizes().await;
    let stored = engine.store.storage().await.unwrap();
    assert!(stored[0].part == "mongodb" && stored[0].bytes > 0, "{stored:?}");
    [per_turn(before.0, after.0), per_turn(before.1, after.1), per_turn(before.2, after.2)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_in_the_embedded_file_leaves_as_many_bytes_as_the_documents_say() {
    let folder = tempfile::tempdir().unwrap();
    let settings = quick(Settings::default());
    let file = EmbeddedFile::open(&folder.path().join("turnwheel.redb")).unwrap();
    let store = EmbeddedStore::new(file.clone(), &settings).unwrap();
    let queue = EmbeddedQueue::new(file, &settings, &Tasks::new()).await.unwrap();
    let engine = engine(Backend { queue, store, settings }).await;
    let before = engine.queue.storage().await.unwrap()[0].bytes;
    talk(&engine, 1, TURNS).await;
    let after = engine.queue.storage().await.unwrap()[0].bytes;
    let all = per_turn(before, after);
    eprintln!("CAPACITY file {all}");
    assert!(all < 30_000.0, "{all}");
}

on_both_backends!(the_doctor_names_storage_large_sessions_and_the_oldest_message);

async fn the_doctor_names_storage_large_sessions_and_the_oldest_message(backend: Backend) {
    let engine = Engine::watching(backend, ScriptedModel::start(|asked| replies(asked, "好的")).await).await;
    engine.apply(sales_with(&json!({"greeting": null}))).await;
    let gateway = Gateway::of(&engine).await;
    let finding = async |place: &str| {
        let doctor = gateway.json("/api/v1/doctor").await;
        let found = doctor["findings"].as_array().unwrap().iter().find(|one| one["where"] == place).cloned();
        found.map(|found| found["what"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    assert_eq!(finding("oldest message").await, "no job waits");
    engine.publish("s1", "m-1", "你好").await;
    let waits = finding("oldest message").await;
    assert!(waits.starts_with("the oldest of 1 unhandled jobs has waited for "), "{waits}");
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    let largest = finding("largest sessions").await;
    assert!(largest.starts_with("s1 ") && largest.ends_with(" in steps)"), "{largest}");
    let metrics = gateway.get("/metrics").await.text().await.unwrap();
    let storage = finding("storage").await;
    // A store in memory takes no disk.
    if engine.settings.backend == base::config::Backend::Cluster {
        assert!(["jobs ", "out ", "dead ", "mongodb "].iter().all(|part| storage.contains(part)), "{storage}");
        assert!(metrics.contains("turnwheel_storage_bytes{part=\"mongodb\"} "), "{metrics}");
        assert!(metrics.contains("turnwheel_storage_max_bytes{part=\"mongodb\"} "), "{metrics}");
    }
}
