//! Number of database operations and events per turn, so that none is added unnoticed: counts and ratios, never times.

use crate::scenarios::{answer, sales, sales_with};
use crate::support::engine::{Backend, Engine};
use crate::support::script::{Answer, ScriptedModel, plan};
use crate::support::servers::private;
use base::tasks::Tasks;
use bson::doc;
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use engine::execution::Services;
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Number of turns that are counted.
const TURNS: i64 = 40;

/// Update statements and inserted documents so far, as counted by the server.
async fn counted(uri: &str) -> (i64, i64) {
    let client = mongodb::Client::with_uri_str(uri).await.unwrap();
    let status = client.database("admin").run_command(doc! {"serverStatus": 1}).await.unwrap();
    let counters = status.get_document("opcounters").unwrap();
    let count = |name: &str| counters.get(name).and_then(bson::Bson::as_i32).map(i64::from);
    let long = |name: &str| counters.get(name).and_then(bson::Bson::as_i64);
    let of = |name: &str| count(name).or_else(|| long(name)).unwrap();
    (of("update"), of("insert"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_without_actions_is_two_updates_and_two_insertions() {
    let (_nats, _mongod, handles) = private().await;
    // The lease is long enough that none is renewed during the count.
    let mut settings = handles.settings();
    settings.worker.ack_wait = types::duration::Text(std::time::Duration::from_secs(60));
    let backend = Backend {
        queue: Arc::new(NatsQueue::connect(&settings, CancellationToken::new()).await.unwrap()),
        store: Arc::new(MongoStore::connect(&settings, &Tasks::new()).await.unwrap()),
        settings,
    };
    let model = ScriptedModel::start(|asked| {
        Answer::json(&match asked.schema.as_str() {
            "plan_and_decision" => plan(json!("您好"), &answer("好的")),
            _ => answer("好的"),
        })
    })
    .await;
    // Without a scheduler, whose renewals are updates, too.
    let engine = Engine::watching(backend, model).await;
    let worker = engine.start_worker();
    engine.apply(sales()).await;
    // The first turn makes the plan, the second finds the session in the worker's cache.
    for warm_up in 0..2 {
        engine.say("s1", &format!("w-{warm_up}"), "你好").await;
    }
    let cost = async |turns: &str| {
        let before = counted(&handles.mongodb_uri).await;
        for turn in 0..TURNS {
            engine.say("s1", &format!("{turns}-{turn}"), "在吗").await;
        }
        let after = counted(&handles.mongodb_uri).await;
        (after.0 - before.0, after.1 - before.1)
    };
    // Two updates: acquisition and commit. Two insertions: the turn's record and the step of its decision.
    let before = engine.events("s1").await.len();
    assert_eq!(cost("m").await, (2 * TURNS, 2 * TURNS), "of {TURNS} turns");
    // Three statuses, the step and the reply. The last status has the end of the turn.
    let events = engine.events("s1").await.len() - before;
    assert_eq!(events, 5 * TURNS as usize, "of {TURNS} turns");
    // Usage of a turn and a session is part of the commit; a day's usage is a separate counter.
    for (name, budget, updates) in
        [("t", json!({"turn": 1_000, "session": 1_000_000}), 2), ("d", json!({"day": 1_000_000}), 3)]
    {
        engine.apply(sales_with(&json!({ "budget": budget }))).await;
        engine.say("s1", &format!("w-{name}"), "你好").await;
        assert_eq!(cost(name).await, (updates * TURNS, 2 * TURNS), "of {TURNS} turns with {budget}");
    }
    // A kept prompt is part of its step.
    worker.cancel();
    engine.apply(sales()).await;
    engine.start_worker_with(Services { keeps_prompts: true, ..engine.services() });
    engine.say("s1", "w-p", "你好").await;
    assert_eq!(cost("p").await, (2 * TURNS, 2 * TURNS), "of {TURNS} turns with prompts");
    assert!(engine.store.prompt("s1", "p-0", "0/decide").await.unwrap().is_some());
}
