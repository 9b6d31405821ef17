//! Cases for the order, the filters and the limits of listings.

use super::kit::*;
use super::runs::run;
use base::clock;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;
use types::access::{self, Scope};
use types::audit::{AuditEntry, AuditQuery};
use types::page::Bounds;
use types::run::{RunQuery, RunRecord, RunStatus};
use types::session::{Handoff, Role, Status};
use types::timestamp::Timestamp;

pub async fn turns_are_listed_by_start_then_commit_then_id(store: Arc<dyn Store>) {
    let begin = clock::now();
    let at = |ms: u64| begin.plus(Duration::from_millis(ms));
    // Start and commit of each turn. The workers' clocks differ, so a later turn may have an earlier commit.
    for (seq, (start, commit)) in (1..).zip([(10, 90), (30, 80), (20, 70), (30, 85), (30, 80)]) {
        run_turn(&store, "s", seq, |change| {
            (change.turn.started_at, change.turn.committed_at) = (at(start), at(commit));
        })
        .await;
    }
    let listed = |limit| {
        let turns = store.turns("s", limit);
        async { turns.await.unwrap().into_iter().map(|turn| turn.turn_id).collect::<Vec<_>>() }
    };
    assert_eq!(listed(10).await, ["m-4", "m-5", "m-2", "m-3", "m-1"]);
    assert_eq!(listed(2).await, ["m-4", "m-5"]);
    assert_eq!(listed(usize::MAX).await.len(), 5);
}

pub async fn steps_are_listed_by_key(store: Arc<dyn Store>) {
    let taken = grant(&store, "s", 1).await;
    let steps = |keys: &[&str]| keys.iter().map(|key| step(key, json!(1))).collect::<Vec<_>>();
    for keys in [&["2/act", "10/act"][..], &["0/流程/ask[1]", "0/decide"], &["1/act", "0/a.b"]] {
        store.record(record(&taken, "m-1", steps(keys), None)).await.unwrap();
    }
    let change = Change { steps: steps(&["3/act", "0/act"]), ..change(&taken.session, "m-1") };
    store.commit(commit(&taken, 1, Some(change))).await.unwrap();
    let listed: Vec<_> = store.steps("s", "m-1").await.unwrap().into_iter().map(|step| step.key).collect();
    assert_eq!(listed, ["0/a.b", "0/act", "0/decide", "0/流程/ask[1]", "1/act", "10/act", "2/act", "3/act"]);
}

async fn ids(store: &Arc<dyn Store>, query: RunQuery) -> Vec<String> {
    store.runs(query).await.unwrap().into_iter().map(|run| run.run_id).collect()
}

pub async fn runs_of_a_lane_and_of_a_turn_are_found(store: Arc<dyn Store>) {
    let created_at = clock::now();
    for (id, lane, turn_id) in [("a", "s1", "m-1"), ("b", "s1", "m-2"), ("c", "s2", "m-1"), ("d", "s1", "m-1")] {
        let (lane, turn_id) = (lane.to_owned(), turn_id.to_owned());
        store.put_run(RunRecord { lane, turn_id, created_at, ..run(id, "w", RunStatus::Running) }).await.unwrap();
    }
    let (lane, turn_id) = (Some("s1".to_owned()), Some("m-1".to_owned()));
    let of_lane = RunQuery { lane, ..RunQuery::default() };
    assert_eq!(ids(&store, of_lane.clone()).await, ["d", "b", "a"], "equal times are ordered by id");
    assert_eq!(ids(&store, RunQuery { turn_id: turn_id.clone(), ..of_lane }).await, ["d", "a"]);
    assert_eq!(ids(&store, RunQuery { turn_id, limit: usize::MAX, ..RunQuery::default() }).await, ["d", "c", "a"]);
}

pub async fn runs_are_listed_by_their_end(store: Arc<dyn Store>) {
    let begin = clock::now();
    for (at, (id, end)) in (0..).zip([("a", Some(30)), ("b", None), ("c", Some(10)), ("d", Some(30)), ("e", Some(20))])
    {
        let ended_at = end.map(|end| begin.plus(Duration::from_millis(end)));
        let status = if end.is_some() { RunStatus::Failed } else { RunStatus::Running };
        let created_at = begin.plus(Duration::from_millis(at));
        store.put_run(RunRecord { created_at, ended_at, ..run(id, "w", status) }).await.unwrap();
    }
    let by_end = RunQuery { by_end: true, ..RunQuery::default() };
    assert_eq!(ids(&store, by_end.clone()).await, ["d", "a", "e", "c"]);
    assert_eq!(ids(&store, RunQuery { limit: 1, ..by_end.clone() }).await, ["d"]);
    let resumed = RunRecord { created_at: begin, ..run("d", "w", RunStatus::Running) };
    store.update_run(resumed, 1).await.unwrap();
    assert_eq!(ids(&store, by_end).await, ["a", "e", "c"], "a resumed run has not ended");
}

pub async fn handoffs_are_listed_by_their_wait_and_counted(store: Arc<dyn Store>) {
    let begin = clock::now();
    let at = |seconds: u64| begin.plus(Duration::from_secs(seconds));
    // Since when the user waits, when the handoff began, and who has the claim. `f` is not handed off.
    let all = [
        ("a", Some(30), 1, None),
        ("b", None, 5, Some("li")),
        ("c", Some(10), 9, Some("li")),
        ("d", None, 2, None),
        ("e", Some(10), 3, Some("wang")),
    ];
    for (id, waits, since, claimed) in all {
        run_turn(&store, id, 1, |change| {
            let mut handoff = Handoff::begin("m-1", at(since), 0);
            handoff.waiting_since = waits.map(at);
            if let Some(name) = claimed {
                handoff.give_to(name, at(0), at(60));
            }
            change.workflow_state.status = Status::Transferred;
            change.handoff = Some(handoff);
            change.history = vec![entry(Role::User, "第一句"), entry(Role::User, &format!("最后一句 {id}"))];
            change.agent_id = if id == "e" { "support".into() } else { "sales".into() };
        })
        .await;
    }
    run_turn(&store, "f", 1, |change| change.history = vec![entry(Role::User, "你好")]).await;
    let listed = async |query: HandoffQuery| {
        let HandoffPage { page, counts } = store.handoffs(query).await.unwrap();
        let last = |session: &types::session::Session| {
            assert_eq!(session.history.len(), 1, "only the last entry");
            assert_eq!(session.history[0].text, format!("最后一句 {}", session.session_id));
            session.session_id.clone()
        };
        let ids: Vec<String> = page.items.iter().map(last).collect();
        (ids.join(""), page.has_more, (counts.waiting, counts.mine, counts.all))
    };
    let query = |state, by: Option<&str>| HandoffQuery { state, ..HandoffQuery::all(by, 10) };
    assert_eq!(listed(query(HandoffState::All, Some("li"))).await, ("ceadb".into(), false, (2, 2, 5)));
    assert_eq!(listed(query(HandoffState::Waiting, Some("li"))).await, ("ad".into(), false, (2, 2, 5)));
    assert_eq!(listed(query(HandoffState::Mine, Some("li"))).await, ("cb".into(), false, (2, 2, 5)));
    assert_eq!(listed(query(HandoffState::Mine, None)).await, (String::new(), false, (2, 0, 5)));
    let of_agent = HandoffQuery { agent_id: Some("support".into()), ..HandoffQuery::all(None, 10) };
    assert_eq!(listed(of_agent).await, ("e".into(), false, (0, 0, 1)));
    let scope = Scope { agents: vec!["sales".into()], ..Scope::default() };
    assert_eq!(listed(HandoffQuery { scope, ..HandoffQuery::all(None, 10) }).await.0, "cadb");
    for limit in 1..=5 {
        let (mut found, mut after) = (String::new(), None);
        loop {
            let bounds = Bounds { after: after.clone(), ..Bounds::first(limit) };
            let page = store.handoffs(HandoffQuery { bounds, ..HandoffQuery::all(None, limit) }).await.unwrap().page;
            assert!(page.items.len() <= limit);
            found.extend(page.items.iter().map(|session| session.session_id.as_str()));
            after = page.items.last().and_then(handoff_place);
            if !page.has_more {
                break;
            }
        }
        assert_eq!(found, "ceadb", "in pages of {limit}");
    }
    run_turn(&store, "c", 2, |change| change.agent_id = "sales".into()).await;
    assert_eq!(listed(query(HandoffState::All, Some("li"))).await, ("eadb".into(), false, (2, 1, 4)));
}

pub async fn processes_are_listed_by_start_then_id_until_they_depart(store: Arc<dyn Store>) {
    let process = |id: &str, start: Option<i64>| Process {
        process_id: id.into(),
        roles: vec!["worker".into()],
        started_at: start.map(Timestamp::from_millis),
        ..Process::default()
    };
    for (id, start) in [("d", Some(1)), ("a", Some(9)), ("c", Some(5)), ("b", Some(5)), ("e", None)] {
        store.announce(process(id, start)).await.unwrap();
    }
    store.announce(process("a", Some(9))).await.unwrap();
    let listed =
        || async { store.processes().await.unwrap().into_iter().map(|one| one.process_id).collect::<Vec<_>>() };
    assert_eq!(listed().await, ["e", "d", "b", "c", "a"]);
    store.depart("b").await.unwrap();
    assert_eq!(listed().await, ["e", "d", "c", "a"]);
}

pub async fn a_session_whose_lane_is_open_is_not_idle(store: Arc<dyn Store>) {
    for (seq, id) in (1..).zip(["held", "released", "idle"]) {
        run_turn(&store, id, seq, |_| ()).await;
    }
    grant(&store, "held", 11).await;
    let taken = grant(&store, "released", 12).await;
    assert!(store.release("released", taken.session.epoch, true).await.unwrap());
    assert_eq!(idle(&store, 1).await, [("idle".to_owned(), 3)]);
}

pub async fn a_limit_of_zero_lists_nothing(store: Arc<dyn Store>) {
    run_turn(&store, "s", 1, |_| ()).await;
    run_turn(&store, "t", 2, |change| change.timers = TimerChange::Replace(vec![timer("t1", LONG)])).await;
    store.put_run(run("r", "w", RunStatus::Pending)).await.unwrap();
    let taken = grant(&store, "u", 3).await;
    store.release("u", taken.session.epoch, true).await.unwrap();
    idle(&store, 1).await;
    assert!(store.turns("s", 0).await.unwrap().is_empty());
    assert!(store.sessions(SessionQuery { limit: 0, ..SessionQuery::default() }).await.unwrap().is_empty());
    assert!(store.runs(RunQuery { limit: 0, ..RunQuery::default() }).await.unwrap().is_empty());
    assert!(store.due_timers(LONG * 2, 0).await.unwrap().timers.is_empty());
    assert!(store.abandoned_lanes(Duration::ZERO, 0).await.unwrap().is_empty());
    assert!(store.idle_sessions(Duration::ZERO, 0).await.unwrap().is_empty());
}

pub async fn the_audit_trail_is_read_from_its_end_and_on_from_an_entry(store: Arc<dyn Store>) {
    let at = clock::now();
    let entry = |id: &str| AuditEntry {
        id: id.to_owned(),
        at,
        by: "李雷".into(),
        role: access::Role::Operator,
        action: "cancel_session".into(),
        target: "session/s1".into(),
        detail: serde_json::Map::from_iter([("a.b".to_owned(), json!("$x"))]),
    };
    for id in ["0003-c", "0001-a", "0002-b"] {
        store.put_audit(entry(id)).await.unwrap();
    }
    let done =
        AuditEntry { detail: serde_json::Map::from_iter([("status".to_owned(), json!(202))]), ..entry("0002-b") };
    store.put_audit(done.clone()).await.unwrap();
    let listed = |after: Option<&str>, limit| store.audit(AuditQuery { after: after.map(str::to_owned), limit });
    assert_eq!(listed(None, 2).await.unwrap(), [done.clone(), entry("0003-c")], "the last ones, in their order");
    assert_eq!(listed(Some(""), 2).await.unwrap(), [entry("0001-a"), done], "the first ones");
    assert_eq!(listed(Some("0002-b"), 9).await.unwrap(), [entry("0003-c")]);
    assert!(listed(Some("0003-c"), 9).await.unwrap().is_empty() && listed(None, 0).await.unwrap().is_empty());
}
