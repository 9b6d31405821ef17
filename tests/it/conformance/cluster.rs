//! Runs all cases on NATS and MongoDB.

use super::catalog::agent;
use super::runs::{lane_of_run, workflow};
use super::{kit, queue_suite, session_plans, store_suite};
use crate::support::servers::{ClusterHandles, cluster};
use base::tasks::Tasks;
use bson::{Document, doc};
use cluster::mongo::MongoStore;
use cluster::nats::NatsQueue;
use definitions::workflow::definition::WorkflowRecord;
use futures::future::join_all;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{DeadLetter, Queue, QueueError};
use storage::store::records::{Acquired, Change, Committed, HandoffQuery};
use storage::store::{NewAuthoring, SaveAuthoring, Saved, Store};
use tokio_util::sync::CancellationToken;
use types::authoring::{Stage, StoredState, WorkflowContext};
use types::cause::Cause;
use types::session::{Handoff, Role, Session};

async fn store() -> (Arc<dyn Store>, ClusterHandles) {
    let servers = cluster().await;
    let store = MongoStore::connect(&kit::settings(servers.settings()), &Tasks::new()).await.unwrap();
    (Arc::new(store), servers)
}

async fn queue() -> (Arc<dyn Queue>, ClusterHandles) {
    let servers = cluster().await;
    let queue = NatsQueue::connect(&kit::settings(servers.settings()), CancellationToken::new()).await.unwrap();
    (Arc::new(queue), servers)
}

mod mongo {
    super::store_suite!(super::store);
}

mod nats {
    super::queue_suite!(super::queue);
}

/// Two stores on one database, like two processes, each with its own cache of sessions.
async fn two_stores() -> (Arc<dyn Store>, Arc<dyn Store>, ClusterHandles) {
    let (first, servers) = store().await;
    let second = MongoStore::connect(&kit::settings(servers.settings()), &Tasks::new()).await.unwrap();
    (first, Arc::new(second), servers)
}

fn says(text: &str) -> impl FnOnce(&mut Change) {
    let entry = kit::entry(Role::User, text);
    move |change| change.history = vec![entry]
}

async fn history(store: &Arc<dyn Store>, seq: u64) -> Vec<String> {
    let grant = kit::grant(store, "s", seq).await;
    let stored = store.session("s").await.unwrap().unwrap();
    // The store only estimates the server's time of its own writes.
    let granted = Session { updated_at: stored.updated_at, ..grant.session.clone() };
    assert_eq!(granted, stored, "the grant has the stored state");
    let texts = grant.session.history.iter().map(|entry| entry.text.clone()).collect();
    let change = kit::change(&grant.session, &format!("m-{seq}"));
    assert_eq!(store.commit(kit::commit(&grant, seq, Some(change))).await.unwrap(), Committed::Released);
    texts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_another_process_has_had_since_is_read_anew() {
    let (first, second, _servers) = two_stores().await;
    kit::run_turn(&first, "s", 1, says("a")).await;
    assert_eq!(history(&first, 2).await, ["a"]);
    kit::run_turn(&second, "s", 3, says("b")).await;
    assert_eq!(history(&first, 4).await, ["a", "b"]);
    assert_eq!(history(&second, 5).await, ["a", "b"]);
    // Acquiring and releasing the lane changes the epoch, even without a change of the session.
    let grant = kit::grant(&second, "s", 6).await;
    assert!(second.release("s", grant.session.epoch, true).await.unwrap());
    let again = kit::grant(&first, "s", 6).await;
    assert!(again.resumed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_one_process_applies_is_what_every_other_one_uses_from_then_on() {
    let (first, second, _servers) = two_stores().await;
    let agent = |version: usize| agent("sales", &format!("h{version}"), json!({ "version": version }));
    first.put_agent(agent(0)).await.unwrap();
    let ended = CancellationToken::new();
    // Asks continuously, so that its cache is always fresh.
    let asking = async {
        while !ended.is_cancelled() {
            second.agent("sales").await.unwrap().unwrap();
            // A cached answer returns without yielding.
            tokio::task::yield_now().await;
        }
    };
    let applying = async {
        for version in 1..=20 {
            assert!(first.put_agent(agent(version)).await.unwrap());
            for store in [&first, &second] {
                assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, format!("h{version}"));
            }
        }
        ended.cancel();
    };
    tokio::join!(asking, applying);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_deleted_is_made_anew() {
    let (first, second, servers) = two_stores().await;
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    let sessions = client.database(&servers.database).collection::<Document>("sessions");
    kit::run_turn(&first, "s", 1, says("a")).await;
    sessions.delete_one(doc! {"_id": "s"}).await.unwrap();
    assert!(history(&first, 2).await.is_empty());
    kit::run_turn(&first, "s", 3, says("b")).await;
    sessions.delete_one(doc! {"_id": "s"}).await.unwrap();
    // Another process brings the session to the epoch at which the first one left it.
    kit::run_turn(&second, "s", 4, says("c")).await;
    kit::run_turn(&second, "s", 5, |_| ()).await;
    assert_eq!(history(&first, 6).await, ["c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handoff_of_an_earlier_version_is_read_and_listed() {
    let (store, other, servers) = two_stores().await;
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    let sessions = client.database(&servers.database).collection::<Document>("sessions");
    let begun = Handoff::begin("m-1", base::clock::now(), 1);
    let since = begun.since;
    kit::run_turn(&store, "s", 1, |change| change.handoff = Some(begun)).await;
    let new = doc! {"handoff.notes": "", "handoff.unread": "", "handoff.held": "", "handoff.waiting_since": ""};
    sessions.update_one(doc! {"_id": "s"}, doc! {"$unset": new}).await.unwrap();
    let left = sessions.find_one(doc! {"_id": "s"}).await.unwrap().unwrap();
    let fields: Vec<_> = left.get_document("handoff").unwrap().keys().cloned().collect();
    assert_eq!(fields, ["turn_id", "since", "summary"]);
    let listed = other.handoffs(HandoffQuery::all(None, 10)).await.unwrap();
    let handoff = listed.page.items[0].handoff.clone().unwrap();
    assert_eq!(handoff, Handoff { turn_id: "m-1".into(), since, ..Handoff::default() });
    assert_eq!((listed.counts.all, listed.counts.waiting), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lane_of_a_run_expires_and_a_conversation_does_not() {
    let (store, _second, servers) = two_stores().await;
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    let sessions = client.database(&servers.database).collection::<Document>("sessions");
    lane_of_run(&store, "r").await;
    kit::run_turn(&store, "s", 1, says("a")).await;
    let expires_at = |id: &'static str| {
        let found = sessions.find_one(doc! {"_id": id});
        async { found.await.unwrap().unwrap().get_datetime("expires_at").ok().copied() }
    };
    let week = bson::DateTime::from_millis(base::clock::now().as_millis() + 6 * 86_400_000);
    assert!(expires_at("r").await.is_some_and(|at| at > week));
    assert_eq!(expires_at("s").await, None);
    let mut indexes = sessions.list_indexes().await.unwrap();
    let mut expiring = false;
    while indexes.advance().await.unwrap() {
        let index = indexes.deserialize_current().unwrap();
        expiring |= index.keys.contains_key("expires_at") && index.options.is_some_and(|o| o.expire_after.is_some());
    }
    assert!(expiring, "the document has an expiry time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_s_plan_and_its_versions_expire_and_a_registered_workflow_does_not() {
    let (store, _second, servers) = two_stores().await;
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    let database = client.database(&servers.database);
    store.put_session_plan(session_plans::plan("w1", "s1", "一"), "planner").await.unwrap();
    store.put_workflow(workflow("w2", "an operator's")).await.unwrap();
    let month = bson::DateTime::from_millis(base::clock::now().as_millis() + 29 * 86_400_000);
    for collection in ["workflows", "workflow_versions"] {
        let documents = database.collection::<Document>(collection);
        let expires_at = async |id: &str| {
            let found = documents.find_one(doc! {"workflow_id": id}).await.unwrap().unwrap();
            found.get_datetime("expires_at").ok().copied()
        };
        assert!(expires_at("w1").await.is_some_and(|at| at > month), "{collection}");
        assert_eq!(expires_at("w2").await, None, "{collection}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_for_good_is_not_taken_for_its_absence() {
    let (queue, _servers) = queue().await;
    let letter = DeadLetter {
        cause: Cause::Invalid,
        // The server's limit for headers is 64 KiB.
        reason: "x".repeat(70_000),
        subject: "tw.jobs.s".into(),
        attempts: 1,
        job_id: None,
        msg_id: "1".into(),
        payload: "{}".into(),
        cut_from: None,
    };
    let refused = queue.publish_dead_letter(letter).await;
    assert!(matches!(refused, Err(QueueError::Refused(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_the_holder_counts_whoever_asks_for_the_lane_meanwhile() {
    let (store, _servers) = store().await;
    let ids: Vec<String> = (0..400).map(|n| format!("s{n}")).collect();
    let outcomes = join_all(ids.iter().enumerate().map(|(n, id)| {
        let store = Arc::clone(&store);
        async move {
            let taken = kit::grant(&store, id, 1).await;
            // One worker tries to acquire for a message that the commit covers, another for a later message during the
            // commit.
            assert!(matches!(store.acquire(kit::acquire(id, 2, "w2")).await.unwrap(), Acquired::Busy(_)));
            let done = kit::commit(&taken, 3, Some(kit::change(&taken.session, "m-1")));
            let later = async {
                // Varies the moment, so that some calls fall between the attempts of the commit, which are not visible
                // from outside.
                for _ in 0..n {
                    tokio::task::yield_now().await;
                }
                store.acquire(kit::acquire(id, 4, "w3")).await.unwrap()
            };
            tokio::join!(store.commit(done), later).0.unwrap()
        }
    }));
    assert!(outcomes.await.iter().all(|committed| *committed != Committed::Fenced));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_itself_refuses_a_state_that_cannot_be_and_a_damaged_one_is_repaired() {
    let (store, _second, servers) = two_stores().await;
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    let database = client.database(&servers.database);
    let (states, sessions) =
        (database.collection::<Document>("workflow_agent_states"), database.collection::<Document>("sessions"));
    let state = StoredState::new("id".into(), "s", "alice", WorkflowContext::default(), base::clock::now());
    let new = NewAuthoring { agent_id: "authoring".into(), channel: "api".into(), state };
    assert!(store.create_authoring(new).await.unwrap());
    let session = sessions.find_one(doc! {"_id": "s"}).await.unwrap().unwrap();
    assert_eq!(session.get_str("agent_stage").unwrap(), "clarification");
    assert_eq!(session.get_str("action_type").unwrap(), "create");
    assert!(session.get("source_workflow_id").is_some_and(|id| id.as_null().is_some()));
    let good = states.find_one(doc! {"session_id": "s"}).await.unwrap().unwrap();
    assert!(good.get_datetime("created_at").is_ok() && good.get_i64("version").is_ok(), "{good}");

    let insert = async |change: Document| {
        let mut document = good.clone();
        document.extend(doc! {"_id": "other", "session_id": "other"});
        document.extend(change);
        states.insert_one(document).await.unwrap_err().to_string()
    };
    for change in [
        doc! {"stage": "foo"},
        doc! {"debug_loop_count": -1},
        doc! {"user_id": null},
        doc! {"conversations": "x"},
        doc! {"version": 0_i64},
    ] {
        assert!(insert(change.clone()).await.contains("121"), "{change}");
    }
    assert!(insert(doc! {"session_id": "s"}).await.contains("11000"));

    // The validator is passed by, as an operator may do it.
    let damage = doc! {"update": "workflow_agent_states", "bypassDocumentValidation": true, "updates":
    [{"q": {"session_id": "s"}, "u": {"$set": {"stage": 7, "conversations": "x"}}}]};
    database.run_command(damage).await.unwrap();
    let loaded = store.authoring("s").await.unwrap().unwrap();
    assert_eq!(loaded.problems.len(), 2, "{:?}", loaded.problems);
    let grant = kit::grant(&store, "s", 1).await;
    let mut state = loaded.repaired(base::clock::now());
    state.state.stage = Stage::Negotiation;
    let save = SaveAuthoring { state, epoch: Some(grant.session.epoch) };
    assert_eq!(store.save_authoring(save).await.unwrap(), Saved::Saved(2));
    let repaired = states.find_one(doc! {"session_id": "s"}).await.unwrap().unwrap();
    assert!(repaired.get_datetime("repaired_at").is_ok() && repaired.get_array("conversations").is_ok());
    let session = sessions.find_one(doc! {"_id": "s"}).await.unwrap().unwrap();
    assert_eq!(session.get_str("agent_stage").unwrap(), "negotiation");

    let damage = doc! {"update": "workflow_agent_states", "bypassDocumentValidation": true, "updates":
    [{"q": {"session_id": "s"}, "u": {"$set": {"version": -1}}}]};
    database.run_command(damage).await.unwrap();
    let state = store.authoring("s").await.unwrap().unwrap().repaired(base::clock::now());
    let save = SaveAuthoring { state, epoch: Some(grant.session.epoch) };
    assert_eq!(store.save_authoring(save).await.unwrap(), Saved::Saved(1), "no dialogue is stuck by its version");
    let save = SaveAuthoring {
        state: StoredState::new("id".into(), "s", "alice", WorkflowContext::default(), base::clock::now()),
        epoch: Some(grant.session.epoch),
    };
    assert_eq!(store.save_authoring(save).await.unwrap(), Saved::Conflict, "a good version is not replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_has_the_time_since_which_a_version_is_in_use_again() {
    let (store, _second, _servers) = two_stores().await;
    let first = workflow("w1", "一");
    store.put_workflow(first.clone()).await.unwrap();
    store.workflow_version("w1", &first.hash).await.unwrap().expect("now it is cached");
    store.put_workflow(workflow("w1", "二")).await.unwrap();
    let again = WorkflowRecord { updated_at: first.updated_at.plus(Duration::from_secs(5)), ..first.clone() };
    assert!(store.put_workflow(again.clone()).await.unwrap());
    for _ in 0..2 {
        let listed = store.workflows().await.unwrap().good;
        assert_eq!((listed[0].hash.as_str(), listed[0].updated_at), (first.hash.as_str(), again.updated_at));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_does_not_stop_at_a_state_whose_version_is_damaged() {
    let (store, _second, servers) = two_stores().await;
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    store.put_workflow(workflow("w1", "一")).await.unwrap();
    let mut state = StoredState::new("id".into(), "s", "alice", WorkflowContext::default(), base::clock::now());
    state.state.workflow_id = Some("w1".into());
    let new = NewAuthoring { agent_id: "authoring".into(), channel: "api".into(), state };
    assert!(store.create_authoring(new).await.unwrap());
    for version in [bson::Bson::from("x"), (-1).into()] {
        let update = doc! {"q": {"session_id": "s"}, "u": {"$set": {"version": version, "workflow_id": "w1"}}};
        let damage = doc! {"update": "workflow_agent_states", "bypassDocumentValidation": true, "updates": [update]};
        client.database(&servers.database).run_command(damage).await.unwrap();
        store.put_workflow(workflow("w1", "一")).await.unwrap();
        assert!(store.erase_workflow("w1").await.unwrap().existed);
        let loaded = store.authoring("s").await.unwrap().unwrap();
        assert_eq!((loaded.problems, loaded.state.version), (Vec::new(), 1));
        assert_eq!(loaded.state.state.workflow_id, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_sees_a_state_and_a_session_of_different_stages() {
    let (store, _second, servers) = two_stores().await;
    let client = mongodb::Client::with_uri_str(&servers.mongodb_uri).await.unwrap();
    let database = client.database(&servers.database);
    let state = StoredState::new("id".into(), "s", "alice", WorkflowContext::default(), base::clock::now());
    let new = NewAuthoring { agent_id: "authoring".into(), channel: "api".into(), state };
    assert!(store.create_authoring(new).await.unwrap());
    let epoch = Some(kit::grant(&store, "s", 1).await.session.epoch);
    let ended = CancellationToken::new();
    let reading = async {
        let mut reader = client.start_session().await.unwrap();
        while !ended.is_cancelled() {
            reader.start_transaction().await.unwrap();
            let (states, sessions) =
                (database.collection::<Document>("workflow_agent_states"), database.collection::<Document>("sessions"));
            let state = states.find_one(doc! {"session_id": "s"}).session(&mut reader).await.unwrap().unwrap();
            let session = sessions.find_one(doc! {"_id": "s"}).session(&mut reader).await.unwrap().unwrap();
            reader.commit_transaction().await.unwrap();
            assert_eq!(state.get_str("stage").unwrap(), session.get_str("agent_stage").unwrap());
        }
    };
    let saving = async {
        for round in 0..40 {
            let mut state = store.authoring("s").await.unwrap().unwrap().state;
            state.state.stage = Stage::ALL[round % 8];
            // Another worker asks for the lane meanwhile, which changes the same document.
            let asking = store.acquire(kit::acquire("s", 2 + round as u64, "w2"));
            let (saved, asked) = tokio::join!(store.save_authoring(SaveAuthoring { state, epoch }), asking);
            assert!(matches!(saved.unwrap(), Saved::Saved(_)) && matches!(asked.unwrap(), Acquired::Busy(_)));
        }
        ended.cancel();
    };
    tokio::join!(reading, saving);
}
