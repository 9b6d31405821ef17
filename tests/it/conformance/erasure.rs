//! Cases for deletion.

use super::catalog::{agent, plan};
use super::kit::*;
use super::runs::{run, workflow};
use crate::support::eventually;
use base::clock;
use definitions::knowledge::source::{Origin, Source};
use futures::{FutureExt, StreamExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use storage::queue::{From, Publish, Queue};
use storage::store::*;
use types::event::OutEvent;
use types::run::{RunRecord, RunStatus};
use types::session::Role;

type Sessions = Arc<dyn Store>;

async fn is_busy(store: &Sessions, session: &str) -> bool {
    matches!(store.acquire(acquire(session, 9, "w9")).await.unwrap(), Acquired::Busy(_))
}

pub async fn a_seized_lane_is_lost_to_its_holder_for_good(store: Sessions) {
    let taken = grant(&store, "s", 1).await;
    let seized = store.seize("s", "deletion", LONG).await.unwrap();
    assert!(seized.existed && seized.epoch > taken.session.epoch, "{seized:?}");
    assert!(seized.busy_for > LONG / 2 && seized.busy_for <= LONG + AHEAD, "{seized:?}");
    let late = || commit(&taken, 1, Some(change(&taken.session, "m-1")));
    assert_eq!(store.commit(late()).await.unwrap(), Committed::Fenced);
    let key = LeaseKey { session_id: "s".into(), epoch: taken.session.epoch };
    assert_eq!(store.renew(std::slice::from_ref(&key), LONG).await.unwrap(), [key]);
    assert!(is_busy(&store, "s").await);
    assert!(!store.erase_lane("s", taken.session.epoch).await.unwrap(), "by the former holder");
    store.erase_records("s").await.unwrap();
    assert!(store.erase_lane("s", seized.epoch).await.unwrap());
    assert!(!store.erase_lane("s", seized.epoch).await.unwrap(), "again");
    assert!(store.session("s").await.unwrap().is_none());
    let new = grant(&store, "s", 2).await;
    assert!(new.session.epoch > seized.epoch, "{} {}", new.session.epoch, seized.epoch);
    assert_eq!(store.commit(late()).await.unwrap(), Committed::Fenced, "also once there is a new session");
    assert_eq!(store.commit(commit(&new, 2, Some(change(&new.session, "m-2")))).await.unwrap(), Committed::Released);
    assert_eq!(*store.session("s").await.unwrap().unwrap().recent_jobs, ["m-2"]);
    let idle = store.seize("s", "deletion", LONG).await.unwrap();
    assert_eq!(idle.busy_for, Duration::ZERO);
}

pub async fn a_placeholder_keeps_workers_out(store: Sessions) {
    let seized = store.seize("新", "deletion", LONG).await.unwrap();
    assert_eq!((seized.existed, seized.busy_for), (false, Duration::ZERO));
    assert!(is_busy(&store, "新").await);
    let again = store.seize("新", "deletion-2", LONG).await.unwrap();
    assert!(again.existed && !store.erase_lane("新", seized.epoch).await.unwrap(), "the second deletion has the lane");
    assert!(store.erase_lane("新", again.epoch).await.unwrap());
    assert!(store.session("新").await.unwrap().is_none());
    grant(&store, "新", 1).await;
}

/// Writes a bit of everything for a session.
async fn fill(store: &Sessions, session: &str) {
    run_turn(store, session, 1, |change| {
        change.profile = Some(odd_map());
        change.history = vec![entry(Role::User, "秘密"), entry(Role::Assistant, "好的")];
        change.steps = vec![step("0/act", json!({"secret": "秘密"}))];
        change.timers = TimerChange::Replace(vec![timer(&format!("t-{session}"), SHORT)]);
        change.outbox = [OutEvent { session_id: session.into(), ..event("秘密") }].into();
    })
    .await;
    let taken = grant(store, session, 2).await;
    store.record(record(&taken, "m-2", vec![step("0/act", json!("秘密"))], None)).await.unwrap();
    store.release(session, taken.session.epoch, true).await.unwrap();
    let of =
        RunRecord { origin_session: Some(session.into()), ..run(&format!("r-{session}"), "w", RunStatus::Completed) };
    store.put_run(of).await.unwrap();
    store
        .put_session_plan(super::session_plans::plan(&format!("w-{session}"), session, "秘密"), "planner")
        .await
        .unwrap();
}

/// The remaining records of a session.
async fn left(store: &Sessions, session: &str) -> [bool; 8] {
    let plan = super::session_plans::plan(&format!("w-{session}"), session, "秘密");
    let due = store.due_timers(LONG, 100).await.unwrap().timers;
    [
        store.session(session).await.unwrap().is_some(),
        !store.turns(session, 10).await.unwrap().is_empty(),
        !store.steps(session, "m-1").await.unwrap().is_empty(),
        !store.steps(session, "m-2").await.unwrap().is_empty(),
        store.run(&format!("r-{session}")).await.unwrap().is_some(),
        !store.plans_of(session).await.unwrap().is_empty(),
        store.workflow_version(plan.id(), &plan.hash).await.unwrap().is_some(),
        due.iter().any(|due| due.session_id == session),
    ]
}

pub async fn what_belongs_to_a_session_is_erased_and_nothing_else(store: Sessions) {
    for session in ["s", "s1", "s-"] {
        fill(&store, session).await;
        assert_eq!(left(&store, session).await, [true; 8], "{session}");
    }
    let seized = store.seize("s", "deletion", LONG).await.unwrap();
    assert_eq!(seized.timers, 1);
    let erased = store.erase_records("s").await.unwrap();
    assert_eq!((erased.turns, erased.steps, erased.runs, erased.plans), (1, 2, 1, 1));
    assert_eq!(store.erase_records("s").await.unwrap(), ErasedRecords::default(), "again");
    assert!(store.erase_lane("s", seized.epoch).await.unwrap());
    assert_eq!(left(&store, "s").await, [false; 8]);
    for session in ["s1", "s-"] {
        assert_eq!(left(&store, session).await, [true; 8], "{session} is another session");
    }
    let new = run_turn(&store, "s", 3, |change| change.history = vec![entry(Role::User, "新")]).await;
    assert_eq!(
        (new.history.len(), new.profile.len(), new.timers.len()),
        (1, 0, 0),
        "a new session begins from nothing"
    );
}

pub async fn sessions_and_runs_of_a_user_are_found(store: Sessions) {
    run_turn(&store, "s1", 1, |_| ()).await;
    run_turn(&store, "s2", 1, |change| change.user_id = "别人".into()).await;
    store.put_run(RunRecord { user_id: Some("u1".into()), ..run("r1", "w", RunStatus::Completed) }).await.unwrap();
    store.put_run(run("r2", "w", RunStatus::Completed)).await.unwrap();
    let of = async |user: &str| {
        let mut found = store.lanes_of_user(user, 10).await.unwrap();
        found.sort();
        found
    };
    assert_eq!(of("u1").await, ["r1", "s1"]);
    assert_eq!(of("别人").await, ["s2"]);
    assert!(of("u").await.is_empty() && store.lanes_of_user("u1", 0).await.unwrap().is_empty());
    assert_eq!(store.lanes_of_user("u1", 1).await.unwrap().len(), 1);
}

pub async fn a_deleted_agent_is_gone_with_its_versions_and_knowledge(store: Sessions) {
    for (id, hash) in [("sales", "h1"), ("sales", "h2"), ("sales2", "h1")] {
        store.put_agent(agent(id, hash, json!({"name": hash}))).await.unwrap();
        store.put_plan(plan(id, hash, "您好")).await.unwrap();
        store.plan(id, hash).await.unwrap().unwrap();
        store.agent_version(id, hash).await.unwrap().unwrap();
        let source = Source::new(id, "a.md", "三十天", Origin::Added, clock::now()).unwrap();
        store.put_knowledge(source).await.unwrap();
    }
    let erased = store.erase_agent("sales").await.unwrap();
    assert_eq!(erased, ErasedDefinition { existed: true, versions: 2, sources: 1, plans: 2 });
    assert_eq!(store.erase_agent("sales").await.unwrap(), ErasedDefinition::default(), "again");
    assert!(store.agent("sales").await.unwrap().is_none());
    for hash in ["h1", "h2"] {
        assert!(store.agent_version("sales", hash).await.unwrap().is_none(), "{hash}");
        assert!(store.plan("sales", hash).await.unwrap().is_none(), "{hash}");
    }
    assert!(store.knowledge("sales").await.unwrap().is_empty());
    assert!(store.agent("sales2").await.unwrap().is_some() && store.plan("sales2", "h1").await.unwrap().is_some());
    assert_eq!(store.knowledge("sales2").await.unwrap().len(), 1);
    assert!(store.put_agent(agent("sales", "h2", json!({"name": "h2"}))).await.unwrap(), "it can be stored again");
    assert!(store.agent("sales").await.unwrap().is_some());
}

pub async fn a_deleted_workflow_is_gone_with_its_versions(store: Sessions) {
    let (old, new) = (workflow("w", "v1"), workflow("w", "v2"));
    for version in [&old, &new, &workflow("w2", "v1")] {
        store.put_workflow(version.clone()).await.unwrap();
    }
    assert_eq!(store.erase_workflow("w").await.unwrap().versions, 2);
    assert!(store.workflow("w").await.unwrap().is_none());
    assert!(store.workflow_version("w", &old.hash).await.unwrap().is_none());
    assert!(store.workflow("w2").await.unwrap().is_some());
    assert!(!store.erase_workflow("w").await.unwrap().existed);
    let owned = super::session_plans::plan("p1", "s", "问");
    store.put_session_plan(owned.clone(), "planner").await.unwrap();
    assert!(store.erase_workflow("p1").await.unwrap().existed);
    assert!(store.plans_of("s").await.unwrap().is_empty());
    assert!(store.workflow_version("p1", &owned.hash).await.unwrap().is_none());
}

async fn send(queue: &Arc<dyn Queue>, session: &str, text: &str) {
    let payload = text.to_owned().into();
    queue.publish(Publish { session_id: session.into(), msg_id: None, payload }).await.unwrap();
}

pub async fn a_purged_lane_delivers_nothing(queue: Arc<dyn Queue>) {
    for text in ["一", "二"] {
        send(&queue, "会话", text).await;
    }
    let taken = queue.pull(1, DEADLINE).await.unwrap().remove(0);
    send(&queue, "会话2", "三").await;
    assert_eq!(queue.purge_lane("会话").await.unwrap(), 2);
    assert_eq!(queue.purge_lane("会话").await.unwrap(), 0, "again");
    assert!(queue.next_in_lane("会话", 0, 0).await.unwrap().is_none());
    queue.nak(&taken.token, Duration::ZERO).await.unwrap();
    let other = queue.pull(10, DEADLINE).await.unwrap();
    assert_eq!(other.iter().map(|one| one.message.session_id.as_str()).collect::<Vec<_>>(), ["会话2"]);
    queue.ack(&other[0].token).await.unwrap();
    send(&queue, "会话", "四").await;
    let next = queue.pull(10, DEADLINE).await.unwrap();
    assert_eq!(next.iter().map(|one| &*one.message.payload).collect::<Vec<_>>(), ["四".as_bytes()]);
}

pub async fn purged_events_are_gone(queue: Arc<dyn Queue>) {
    let of = |session: &str, text: &str| {
        let msg_id = Some(format!("{session}/{text}"));
        OutEvent { session_id: session.into(), msg_id, ..event(text) }
    };
    for text in ["一", "二"] {
        queue.emit([of("s", text), of("s2", text), of("s", &format!("{text}a"))].into()).await.unwrap();
    }
    assert_eq!(queue.purge_events("s").await.unwrap(), 4);
    assert_eq!(queue.purge_events("s").await.unwrap(), 0, "again");
    eventually(DEADLINE, "the session is unknown", || async { !queue.has_session("s").await.unwrap() }).await;
    let mut others = queue.events("s2", From::After(0)).await.unwrap();
    for text in ["一", "二"] {
        assert_eq!(others.next().await.unwrap().unwrap().payload, of("s2", text).payload);
    }
    queue.emit([of("s", "三")].into()).await.unwrap();
    let mut events = queue.events("s", From::After(0)).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().payload, of("s", "三").payload);
    assert!(others.next().now_or_never().is_none());
}
