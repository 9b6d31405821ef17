//! The store and MongoDB's replies: lease times follow the server's clock, not that of the client, and early records
//! count as durable only while the primary is certainly the same.

use crate::conformance::kit;
use crate::support::mongod_way::{find, way_to_mongod};
use crate::support::servers::{ClusterHandles, cluster};
use base::clock;
use base::config::Settings;
use base::tasks::Tasks;
use bson::{Document, doc};
use cluster::mongo::MongoStore;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use storage::store::Store;
use types::timestamp::Timestamp;

const HOUR: Duration = Duration::from_secs(3_600);

/// A store that connects through this proxy.
async fn store(handles: &ClusterHandles, way: String) -> (Arc<dyn Store>, Settings) {
    let mut settings = kit::settings(handles.settings());
    settings.mongodb.uri = way;
    let store = MongoStore::connect(&settings, &Tasks::new()).await.unwrap();
    (Arc::new(store), settings)
}

/// Sets the server's time in a reply back by an hour.
fn set_back(answer: &mut [u8]) {
    const FIELD: &[u8] = b"\x09localTime\0";
    let Some(at) = find(answer, FIELD).map(|at| at + FIELD.len()) else { return };
    let time = i64::from_le_bytes(answer[at..at + 8].try_into().unwrap());
    let hour = i64::try_from(HOUR.as_millis()).unwrap();
    answer[at..at + 8].copy_from_slice(&(time - hour).to_le_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_idle_conversations_and_expiry_go_by_the_clock_of_the_server() {
    let handles = cluster().await;
    // This machine's clock is an hour ahead of the server's.
    let way = way_to_mongod(&handles.mongodb_uri, |_| (), set_back).await;
    let (store, settings) = store(&handles, way).await;
    let steps = vec![kit::step("0/decide", json!("好"))];
    kit::run_turn(&store, "idle", 1, |change| change.steps = steps).await;
    kit::grant(&store, "held", 1).await;
    let abandoned = store.abandoned_lanes(Duration::ZERO, 10).await.unwrap();
    assert!(abandoned.is_empty(), "the lease has not expired: {abandoned:?}");
    assert!(store.idle_sessions(HOUR / 2, 10).await.unwrap().is_empty(), "the session has just been used");
    let client = mongodb::Client::with_uri_str(&handles.mongodb_uri).await.unwrap();
    let expected = clock::now().minus(HOUR).plus(settings.retention.turns.0);
    for (collection, id) in [("turns", "idle/m-1"), ("steps", "idle/m-1/0/decide")] {
        let collection = client.database(&handles.database).collection::<Document>(collection);
        let found = collection.find_one(doc! {"_id": id}).await.unwrap().unwrap();
        let at = Timestamp::from_millis(found.get_datetime("expires_at").unwrap().timestamp_millis());
        let off = at.until(expected).max(expected.until(at));
        assert!(off < HOUR / 2, "{id} expires at {at}, not at {expected}");
    }
}

/// Counts the commands that write turns with majority while one turn is committed. `answered` may change the server's
/// replies.
async fn durable_records(answered: impl FnMut(&mut [u8]) + Clone + Send + 'static) -> usize {
    let (handles, seen) = (cluster().await, Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&seen);
    let asked = move |message: &[u8]| {
        let writes = find(message, b"\x02insert\0\x06\0\0\0turns\0").is_some();
        if writes && find(message, b"majority\0").is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    };
    let (store, _) = store(&handles, way_to_mongod(&handles.mongodb_uri, asked, answered).await).await;
    kit::run_turn(&store, "s", 1, |_| ()).await;
    assert!(store.turn("s", "m-1").await.unwrap().is_some());
    seen.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_turn_are_written_again_durably_unless_the_term_is_known_to_be_the_same() {
    assert_eq!(durable_records(|_| ()).await, 0, "the commit makes the records durable, too");
    // The term is in a field that replies of a sharded cluster do not have.
    let without_term = |answer: &mut [u8]| {
        const FIELD: &[u8] = b"\x03opTime\0";
        if let Some(at) = find(answer, FIELD) {
            answer[at + 1] = b'_';
        }
    };
    assert_eq!(durable_records(without_term).await, 1);
}
