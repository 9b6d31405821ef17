//! Cases for what expires by itself, and for sizes.

use super::catalog::{agent, plan};
use super::kit::*;
use super::runs::{run, workflow};
use super::session_plans;
use crate::support::eventually;
use base::clock;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;
use types::run::{RunRecord, RunStatus};
use types::session::Role;
use types::timestamp::Timestamp;

type Sessions = Arc<dyn Store>;

/// A conversation that was closed an hour ago.
async fn close(store: &Sessions, session: &str, ago: Duration) -> Timestamp {
    let at = clock::now().minus(ago);
    run_turn(store, session, 1, |change| change.closed_at = Some(at)).await;
    at
}

async fn found(store: &Sessions, closed_for: Duration) -> Vec<String> {
    store.closed_sessions(closed_for, 10).await.unwrap().into_iter().map(|(id, _)| id).collect()
}

pub async fn closed_conversations_are_found_and_seized_while_they_are_closed(store: Sessions) {
    let hour = Duration::from_secs(3_600);
    let closed_at = close(&store, "一", hour * 3).await;
    close(&store, "later", hour * 2).await;
    close(&store, "recent", Duration::ZERO).await;
    run_turn(&store, "open", 1, |_| ()).await;
    // Of a closed session a worker has the lane.
    close(&store, "held", hour * 4).await;
    grant(&store, "held", 2).await;
    eventually(DEADLINE, "the sessions are old enough", || async {
        // A session in the embedded file must be unchanged for as long as it has to be closed.
        found(&store, SHORT).await.len() >= 2
    })
    .await;
    assert_eq!(store.closed_sessions(hour * 200, 10).await.unwrap(), []);
    let first = store.closed_sessions(SHORT, 1).await.unwrap();
    assert_eq!(first, [("一".to_owned(), closed_at)], "the longest closed first");
    assert!(!found(&store, SHORT).await.iter().any(|id| matches!(id.as_str(), "open" | "held")));

    let seize = async |id: &str, at: Timestamp| store.seize_closed(id, at, "expiry", LONG).await.unwrap();
    assert_eq!(seize("一", closed_at.plus(SHORT)).await, None, "it was closed again at another time");
    assert_eq!(seize("open", closed_at).await, None);
    assert_eq!(seize("nobody", closed_at).await, None);
    let seized = seize("一", closed_at).await.unwrap();
    assert!(seized.existed && seized.busy_for.is_zero(), "{seized:?}");
    assert!(matches!(store.acquire(acquire("一", 2, "w9")).await.unwrap(), Acquired::Busy(_)));
    assert_eq!(seize("一", closed_at).await, None, "its lane is taken");
    assert!(!found(&store, SHORT).await.contains(&"一".to_owned()));
    assert!(store.erase_lane("一", seized.epoch).await.unwrap());

    let (id, at) = store.closed_sessions(SHORT, 1).await.unwrap().remove(0);
    assert_eq!(id, "later");
    run_turn(&store, "later", 2, |_| ()).await;
    assert_eq!(seize("later", at).await, None, "a message has opened it again");
}

/// Looks at all versions until the unused ones are gone after `grace`.
pub async fn expire(store: &Sessions, grace: Duration) -> ExpiredVersions {
    let mut all = ExpiredVersions::default();
    for _ in 0..3 {
        let gone = store.expire_versions(grace, 100).await.unwrap();
        all.agents += gone.agents;
        all.workflows += gone.workflows;
        all.plans += gone.plans;
        clock_is_past(clock::now()).await;
    }
    all
}

pub async fn versions_that_nothing_uses_expire_with_their_plans(store: Sessions) {
    for version in 1..=4 {
        let hash = format!("v{version}");
        store.put_agent(agent("sales", &hash, json!({"name": hash}))).await.unwrap();
        store.put_plan(plan("sales", &hash, "您好")).await.unwrap();
    }
    let workflows: Vec<_> = (1..=3).map(|version| workflow("w", &format!("v{version}"))).collect();
    for version in &workflows {
        store.put_workflow(version.clone()).await.unwrap();
    }
    // An open conversation has the second version, a closed one the third, and a run the first of the workflow.
    for (session, hash, closed_at) in [("open", "v2", None), ("closed", "v3", Some(clock::now()))] {
        run_turn(&store, session, 1, |change| {
            change.agent_id = "sales".into();
            change.workflow_state.hash = hash.into();
            change.closed_at = closed_at;
        })
        .await;
    }
    let of = RunRecord { hash: workflows[0].hash.clone(), ..run("r1", "w", RunStatus::Waiting) };
    store.put_run(of).await.unwrap();
    let of_session = session_plans::plan("p1", "open", "一");
    store.put_session_plan(of_session.clone(), "planner").await.unwrap();
    store.put_session_plan(session_plans::plan("p1", "open", "二"), "planner").await.unwrap();

    let early = expire(&store, LONG).await;
    assert_eq!(early, ExpiredVersions::default(), "within the grace");
    let gone = expire(&store, Duration::ZERO).await;
    assert_eq!((gone.agents, gone.workflows, gone.plans), (2, 1, 2), "{gone:?}");
    for (hash, stays) in [("v1", false), ("v2", true), ("v3", false), ("v4", true)] {
        assert_eq!(store.agent_version("sales", hash).await.unwrap().is_some(), stays, "{hash}");
        eventually(DEADLINE, "the plan is that of a stored version", || async {
            store.plan("sales", hash).await.unwrap().is_some() == stays
        })
        .await;
    }
    for (version, stays) in workflows.iter().zip([true, false, true]) {
        assert_eq!(store.workflow_version("w", &version.hash).await.unwrap().is_some(), stays);
    }
    assert!(store.workflow_version("p1", &of_session.hash).await.unwrap().is_some(), "it expires with its plan");
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "v4");
    assert_eq!(store.workflow("w").await.unwrap().unwrap().hash, workflows[2].hash);
    // An expired version can be stored again.
    assert!(store.put_agent(agent("sales", "v1", json!({"name": "v1"}))).await.unwrap());
    assert_eq!(store.agent_version("sales", "v1").await.unwrap().unwrap().config.name, "v1");
}

pub async fn a_version_that_is_used_or_stored_again_begins_its_grace_again(store: Sessions) {
    let kept = workflow("w", "of a run");
    store.put_workflow_version(&kept).await.unwrap();
    for hash in ["v1", "v2"] {
        store.put_agent(agent("sales", hash, json!({"name": hash}))).await.unwrap();
    }
    store.expire_versions(Duration::ZERO, 100).await.unwrap();
    // Both versions are marked now, and are in use again before the next round.
    store.put_workflow_version(&kept).await.unwrap();
    store.put_agent(agent("sales", "v1", json!({"name": "v1"}))).await.unwrap();
    clock_is_past(clock::now()).await;
    let gone = store.expire_versions(Duration::ZERO, 100).await.unwrap();
    assert_eq!((gone.agents, gone.workflows), (0, 0), "{gone:?}");
    assert!(store.workflow_version("w", &kept.hash).await.unwrap().is_some());
    assert!(store.agent_version("sales", "v1").await.unwrap().is_some());
    let gone = expire(&store, Duration::ZERO).await;
    assert_eq!((gone.agents, gone.workflows), (1, 1), "the grace has passed for v2 and the workflow: {gone:?}");
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "v1");
}

pub async fn versions_are_looked_at_page_by_page(store: Sessions) {
    for version in 0..7 {
        store.put_agent(agent("sales", &format!("v{version}"), json!({"name": version.to_string()}))).await.unwrap();
    }
    let mut gone = 0;
    for _ in 0..40 {
        let page = store.expire_versions(Duration::ZERO, 2).await.unwrap().agents;
        assert!(page <= 2, "a page has two versions");
        gone += page;
        if gone == 6 {
            break;
        }
        clock_is_past(clock::now()).await;
    }
    assert_eq!(gone, 6);
    assert_eq!(expire(&store, Duration::ZERO).await.agents, 0, "the current version stays");
    assert_eq!(store.agent("sales").await.unwrap().unwrap().hash, "v6");
}

pub async fn the_largest_sessions_come_first(store: Sessions) {
    run_turn(&store, "small", 1, |_| ()).await;
    run_turn(&store, "talks", 1, |change| change.history = vec![entry(Role::User, &"说".repeat(10_000))]).await;
    run_turn(&store, "works", 1, |change| change.steps = vec![step("0/act", json!("x".repeat(200_000)))]).await;
    let open = grant(&store, "works", 2).await;
    store.record(record(&open, "m-2", vec![step("0/act", json!("x".repeat(100_000)))], None)).await.unwrap();
    let sizes = store.largest_sessions(2).await.unwrap();
    assert_eq!(sizes.iter().map(|one| one.session_id.as_str()).collect::<Vec<_>>(), ["works", "talks"], "{sizes:?}");
    assert!(sizes[0].step_bytes > 300_000 && sizes[0].session_bytes < 20_000, "{sizes:?}");
    assert!(sizes[1].session_bytes > 30_000 && sizes[1].step_bytes == 0, "{sizes:?}");
    assert_eq!(store.largest_sessions(10).await.unwrap().len(), 3);
}
