//! A replica set of three: members that lag, and a majority that accepts no writes.

use crate::away::{SESSIONS, gated_model, is_ready, is_unready_for};
use crate::conformance::kit::{self, grant, run_turn, step};
use crate::scenarios::sales;
use crate::support::backend::cluster_of;
use crate::support::engine::sandbox;
use crate::support::engine::{DEADLINE, Engine, quick};
use crate::support::eventually;
use crate::support::process::Process;
use crate::support::replica_set::{READER, ReplicaSet};
use crate::support::servers::{Server, free_port};
use base::config::Settings;
use base::tasks::Tasks;
use cluster::mongo::MongoStore;
use commands::doctor::{self, Level, Tools};
use connectors::Connectors;
use engine::workflow::Flows;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::store::{Store, StoreError};
use tokio::sync::Semaphore;
use types::duration::Text;
use types::session::Status;

/// Time limit for the election of a primary, and for the engine to resume.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings(uri: String) -> Settings {
    let mut settings = quick(Settings::default());
    settings.mongodb.uri = uri;
    settings
}

async fn store(settings: &Settings) -> Arc<dyn Store> {
    Arc::new(MongoStore::connect(settings, &Tasks::new()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_go_to_the_primary_though_the_address_asks_for_a_secondary_that_lags() {
    let set = ReplicaSet::start().await;
    let plain = store(&settings(set.uri())).await;
    let uri = format!("{}&readPreference=secondaryPreferred&readPreferenceTags=role:reader", set.uri());
    let reading = settings(uri);
    let store = store(&reading).await;
    set.applies(READER, false).await;
    run_turn(&plain, "s", 1, |change| change.steps = vec![step("0/decide", json!("好"))]).await;
    // The database of the lagging member does not have the session.
    let taken = grant(&store, "s", 2).await;
    assert_eq!((taken.session.last_seq, taken.resumed), (1, false));
    assert_eq!(store.steps("s", "m-1").await.unwrap().len(), 1);
    assert_eq!(store.turns("s", 10).await.unwrap().len(), 1);
    assert!(store.session("s").await.unwrap().unwrap().lease.is_some());
    set.applies(READER, true).await;
    let (sandbox, connectors) = (sandbox(&reading), Connectors::default());
    let tools = Tools { sandbox: &sandbox, connectors: &connectors };
    let findings = Box::pin(doctor::cluster(&reading, &Flows::builtin(), tools, None)).await;
    let found = findings.iter().find(|finding| finding.place == "reads").unwrap();
    assert!(found.level == Level::Advice && found.what.contains("secondaryPreferred"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_no_majority_acknowledges_end_in_time_and_their_kind_goes_on_afterwards() {
    let set = ReplicaSet::start().await;
    let mut settings = settings(set.uri());
    settings.mongodb.timeout = Text(Duration::from_secs(1));
    let store = store(&settings).await;
    store.ping().await.unwrap();
    let secondaries = set.secondaries().await;
    for member in &secondaries {
        set.applies(*member, false).await;
    }
    let begun = Instant::now();
    let asked = |number: usize| {
        let (store, id) = (Arc::clone(&store), format!("s{number}"));
        async move { store.acquire(kit::acquire(&id, 1, "w1")).await }
    };
    // More commands than may be in flight concurrently.
    for refused in futures::future::join_all((0..200).map(asked)).await {
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    eventually(DEADLINE, "the probe finds no majority", || async { store.ping().await.is_err() }).await;
    for member in &secondaries {
        set.applies(*member, true).await;
    }
    eventually(PATIENCE, "the store takes writes again", || async { store.ping().await.is_ok() }).await;
    grant(&store, "later", 1).await;
}

async fn oldest_command(settings: &Settings) -> f64 {
    let client = base::http_client::builder().no_proxy().build().unwrap();
    let metrics = client.get(format!("http://{}/metrics", settings.gateway.listen)).send().await.unwrap();
    let text = metrics.text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("turnwheel_store_oldest_command_seconds "));
    line.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_stops_is_seen_and_costs_time_but_no_message() {
    let (nats, set) = (Server::nats(), ReplicaSet::start().await);
    let mut settings = settings(set.uri());
    settings.nats.url = nats.address();
    settings.gateway.listen = ([127, 0, 0, 1], free_port()).into();
    let gate = Arc::new(Semaphore::new(0));
    let engine = Engine::watching(cluster_of(settings.clone()).await, gated_model(&gate).await).await;
    engine.apply(sales()).await;
    let dir = tempfile::tempdir().unwrap();
    let _process = Process::start(dir.path(), &engine.settings, &["all", "--set", "mongodb.timeout=2s"]);
    is_ready(&settings).await;
    // First a primary whose followers do not apply writes, then one whose followers are paused.
    for (round, frozen) in [(1, false), (2, true)] {
        let (job_id, asked) = (format!("m-{round}"), engine.model.asked().len());
        for number in 0..SESSIONS {
            engine.publish(&format!("s{number}"), &job_id, "你好").await;
        }
        eventually(DEADLINE, "the turns run", || async { engine.model.asked().len() >= asked + SESSIONS }).await;
        let secondaries = set.secondaries().await;
        for member in &secondaries {
            match frozen {
                true => set.member(*member).pause(),
                false => set.applies(*member, false).await,
            }
        }
        gate.add_permits(1);
        is_unready_for(&settings, "store").await;
        if !frozen {
            eventually(PATIENCE, "a command waits", || async { oldest_command(&settings).await > 0.1 }).await;
        }
        for member in &secondaries {
            match frozen {
                true => set.member(*member).resume(),
                false => set.applies(*member, true).await,
            }
        }
        is_ready(&settings).await;
        for number in 0..SESSIONS {
            let session_id = format!("s{number}");
            let turn = engine.turn(&session_id, &job_id).await;
            assert_eq!(turn.statuses.last().unwrap().status, Status::Ready, "the outage cancels no turn: {turn:?}");
        }
        gate.acquire().await.unwrap().forget();
    }
    for number in 0..SESSIONS {
        let said = engine.said(&format!("s{number}")).await;
        let texts: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["您好，我是小智", "好的", "好的"], "each reply once");
    }
    assert_eq!(engine.dead_letters().await, [], "the outage dead-letters no message");
}
