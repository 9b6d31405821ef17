//! Cases for the lane: lease holders, and the effects of commits and releases.

use super::kit::*;
use crate::support::eventually;
use futures::future::join_all;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use storage::store::lane::first_epoch;
use storage::store::*;
use types::outcome::Outcome;
use types::session::{Kind, Session, Status};

async fn session(store: &Arc<dyn Store>, id: &str) -> Session {
    store.session(id).await.unwrap().unwrap()
}

pub async fn a_new_session_is_created_as_asked(store: Arc<dyn Store>) {
    assert!(store.session("s").await.unwrap().is_none());
    let mut request = acquire("s", 3, "w1");
    request.new_session.kind = Kind::Authoring;
    let grant = granted(store.acquire(request).await.unwrap());
    assert!(!grant.resumed);
    let made = session(&store, "s").await;
    assert_eq!(made, grant.session);
    assert_eq!((made.agent_id.as_str(), made.user_id.as_str(), made.channel.as_str()), ("sales", "u1", "web"));
    assert_eq!((made.kind, made.last_seq, made.pending_seq), (Kind::Authoring, 0, 3));
    assert_eq!(made.epoch, first_epoch(made.created_at) + 1, "no session of the same id before had an epoch so high");
    let lease = made.lease.unwrap();
    assert_eq!((lease.owner.as_str(), lease.token.as_str()), ("w1", "w1-3"));
    let turn = made.turn.unwrap();
    assert_eq!((turn.seq, turn.agent_id.as_str(), turn.hash.as_str(), turn.attempt), (3, "sales", "h1", 1));
    assert_eq!((turn.status, made.workflow_state.status), (Status::Ready, Status::Ready));
}

pub async fn a_held_lane_is_busy_and_remembers_the_later_job(store: Arc<dyn Store>) {
    let grant = grant(&store, "s", 1).await;
    for seq in [5, 3] {
        let Acquired::Busy(until) = store.acquire(acquire("s", seq, "w2")).await.unwrap() else { panic!("not busy") };
        assert_eq!(until, grant.session.lease.clone().unwrap().until);
    }
    let held = session(&store, "s").await;
    assert_eq!((held.pending_seq, held.epoch, held.lease), (5, grant.session.epoch, grant.session.lease));
}

pub async fn a_handled_job_is_handled_for_good(store: Arc<dyn Store>) {
    let before = run_turn(&store, "s", 4, |_| ()).await;
    for seq in [1, 4] {
        assert!(matches!(store.acquire(acquire("s", seq, "w2")).await.unwrap(), Acquired::Handled));
    }
    assert_eq!(session(&store, "s").await, before, "the session is unchanged");
}

pub async fn an_expired_lease_is_taken_and_the_turn_resumed(store: Arc<dyn Store>) {
    let first = granted(store.acquire(Acquire { lease: SHORT, ..acquire("s", 1, "w1") }).await.unwrap());
    let second = eventually(DEADLINE, "the expired lease is taken", || async {
        let mut request = acquire("s", 2, "w2");
        request.pin = Some(Pin { agent_id: "other".into(), hash: "h2".into(), announce: true });
        match store.acquire(request).await.unwrap() {
            Acquired::Granted(grant) => Some(grant),
            _ => None,
        }
    })
    .await;
    assert!(second.resumed);
    assert_eq!(second.session.epoch, first.session.epoch + 1);
    let (before, now) = (first.session.turn.unwrap(), second.session.turn.unwrap());
    assert_eq!(now.attempt, 2);
    assert_eq!((now.seq, now.agent_id, now.hash, now.at), (before.seq, before.agent_id, before.hash, before.at));
    assert_eq!(second.session.lease.unwrap().owner, "w2");
}

pub async fn a_graceful_release_is_not_counted_as_an_attempt(store: Arc<dyn Store>) {
    for (counts_as_attempt, attempt) in [(false, 1), (false, 1), (true, 2), (false, 2)] {
        let taken = grant(&store, "s", 1).await;
        store.release("s", taken.session.epoch, counts_as_attempt).await.unwrap();
        let again = grant(&store, "s", 1).await;
        assert!(again.resumed);
        assert_eq!(again.session.turn.unwrap().attempt, attempt);
        store.release("s", again.session.epoch, false).await.unwrap();
    }
    assert_eq!(session(&store, "s").await.lease, None);
}

pub async fn a_stale_release_does_nothing(store: Arc<dyn Store>) {
    let grant = grant(&store, "s", 1).await;
    assert!(!store.release("s", grant.session.epoch + 1, true).await.unwrap());
    assert!(!store.release("unknown", 1, true).await.unwrap());
    assert_eq!(session(&store, "s").await, grant.session);
}

pub async fn an_unpinned_turn_is_marked_without_a_configuration(store: Arc<dyn Store>) {
    let grant = granted(store.acquire(Acquire { pin: None, ..acquire("s", 7, "w1") }).await.unwrap());
    let turn = grant.session.turn.unwrap();
    assert_eq!((turn.seq, turn.agent_id.as_str(), turn.hash.as_str(), turn.attempt), (0, "", "", 1));
}

pub async fn processing_is_announced_only_under_its_conditions(store: Arc<dyn Store>) {
    use Status::{Cancelled, Processing, Ready, Transferred};
    let cases = [
        ("ready", Ready, "h1", true, Processing),
        ("cancelled", Cancelled, "h1", true, Processing),
        ("transferred", Transferred, "h1", true, Transferred),
        ("other-hash", Ready, "h2", true, Ready),
        ("silent", Ready, "h1", false, Ready),
    ];
    for (id, status, hash, announce, shown) in cases {
        run_turn(&store, id, 1, |change| change.workflow_state.status = status).await;
        let mut request = acquire(id, 2, "w1");
        request.pin = Some(Pin { agent_id: "sales".into(), hash: hash.into(), announce });
        let grant = granted(store.acquire(request.clone()).await.unwrap());
        assert_eq!(grant.session.workflow_state.status, shown, "{id}");
        assert_eq!(session(&store, id).await.workflow_state.status, shown, "{id}");
        assert_eq!(grant.session.turn.unwrap().status, status, "{id}: the marker has the status before the turn");
    }
    // A resumed turn keeps its status.
    let grant = grant(&store, "resumed", 1).await;
    store.release("resumed", grant.session.epoch, false).await.unwrap();
    let mut request = acquire("resumed", 1, "w1");
    request.pin = Some(Pin { agent_id: "sales".into(), hash: String::new(), announce: true });
    let again = granted(store.acquire(request).await.unwrap());
    assert_eq!(again.session.workflow_state.status, Ready);
}

pub async fn a_commit_releases_the_lane_unless_a_later_job_is_known(store: Arc<dyn Store>) {
    let taken = grant(&store, "s", 1).await;
    assert!(matches!(store.acquire(acquire("s", 2, "w2")).await.unwrap(), Acquired::Busy(_)));
    let mut first = change(&taken.session, "m-1");
    first.workflow_state.status = Status::Cancelled;
    assert_eq!(store.commit(commit(&taken, 1, Some(first))).await.unwrap(), Committed::Held);
    let held = session(&store, "s").await;
    assert_eq!((held.last_seq, held.pending_seq, held.epoch), (1, 2, taken.session.epoch));
    assert_eq!(held.lease.as_ref().map(|lease| lease.owner.as_str()), Some("w1"));
    // A commit calculates the server's time again, with limited precision.
    assert!(held.lease.unwrap().until.plus(AHEAD) >= taken.session.lease.clone().unwrap().until);
    let turn = held.turn.unwrap();
    assert_eq!((turn.seq, turn.hash.as_str(), turn.attempt, turn.status), (0, "", 1, Status::Cancelled));
    let second = change(&taken.session, "m-2");
    assert_eq!(store.commit(commit(&taken, 2, Some(second))).await.unwrap(), Committed::Released);
    let free = session(&store, "s").await;
    assert_eq!((free.last_seq, free.lease, free.turn), (2, None, None));
    assert!(!grant(&store, "s", 3).await.resumed);
}

pub async fn a_commit_without_a_change_only_moves_on(store: Arc<dyn Store>) {
    let before = run_turn(&store, "s", 1, |change| change.profile = Some(odd_map())).await;
    let mut request = acquire("s", 5, "w1");
    request.pin = Some(Pin { agent_id: "sales".into(), hash: "h1".into(), announce: true });
    let taken = granted(store.acquire(request).await.unwrap());
    assert_eq!(taken.session.workflow_state.status, Status::Processing);
    assert_eq!(store.commit(commit(&taken, 5, None)).await.unwrap(), Committed::Released);
    let after = session(&store, "s").await;
    assert_eq!((after.last_seq, after.lease.as_ref(), after.turn.as_ref()), (5, None, None));
    assert_eq!((after.profile, after.recent_jobs), (before.profile, before.recent_jobs));
    assert_eq!(after.workflow_state, before.workflow_state, "the announced status is reverted");
}

pub async fn a_fenced_commit_changes_nothing(store: Arc<dyn Store>) {
    let stale = granted(store.acquire(Acquire { lease: Duration::ZERO, ..acquire("s", 1, "w1") }).await.unwrap());
    let fresh = grant_in_time(&store, "s", 1).await;
    let mut late = change(&stale.session, "m-1");
    late.profile = Some(odd_map());
    late.timers = TimerChange::Replace(vec![timer("t1", LONG)]);
    late.outbox = [event("late")].into();
    let mut good = change(&fresh.session, "m-0");
    good.outbox = [event("said")].into();
    assert_eq!(store.commit(commit(&fresh, 0, Some(good))).await.unwrap(), Committed::Held);
    let fresh = Grant { session: session(&store, "s").await, resumed: false, earlier: None };
    late.turn.turn_id = "m-0".into();
    late.turn.attempts = 77;
    assert_eq!(store.commit(commit(&stale, 1, Some(late))).await.unwrap(), Committed::Fenced);
    assert_eq!(
        store.turn("s", "m-0").await.unwrap().unwrap().attempts,
        1,
        "the turn's record belongs to the lease holder"
    );
    assert_eq!(session(&store, "s").await, fresh.session);
    assert!(store.due_timers(LONG * 2, 10).await.unwrap().timers.is_empty());
    let unknown = Commit { session_id: "unknown".into(), ..commit(&stale, 1, None) };
    assert_eq!(store.commit(unknown).await.unwrap(), Committed::Fenced);
    let good = change(&fresh.session, "m-1");
    assert_eq!(store.commit(commit(&fresh, 1, Some(good))).await.unwrap(), Committed::Released);
    let mut later_still = change(&stale.session, "m-1");
    later_still.turn.outcome = Outcome::Cancelled;
    assert_eq!(store.commit(commit(&stale, 1, Some(later_still))).await.unwrap(), Committed::Fenced);
    let record = store.turn("s", "m-1").await.unwrap().unwrap();
    assert_eq!(record.outcome, Outcome::Answered, "the record is that of the valid commit");
}

pub async fn an_attempt_that_was_nobody_s_fault_is_taken_back(store: Arc<dyn Store>) {
    let first = granted(store.acquire(Acquire { lease: Duration::ZERO, ..acquire("s", 1, "w1") }).await.unwrap());
    let second = grant_in_time(&store, "s", 1).await;
    assert_eq!(second.session.turn.as_ref().unwrap().attempt, 2);
    assert!(!store.release("s", first.session.epoch, false).await.unwrap(), "another worker has the lease");
    let begun = first.session.turn.unwrap().at;
    store.undo_attempt("s", begun).await.unwrap();
    store.undo_attempt("s", begun.plus(LONG)).await.unwrap();
    store.undo_attempt("unknown", begun).await.unwrap();
    assert_eq!(session(&store, "s").await.turn.unwrap().attempt, 1);
    assert!(store.release("s", second.session.epoch, true).await.unwrap());
}

pub async fn a_commit_counts_once_and_only_while_the_lane_is_held(store: Arc<dyn Store>) {
    let taken = grant(&store, "s", 1).await;
    let done = || commit(&taken, 1, Some(change(&taken.session, "m-1")));
    assert_eq!(store.commit(done()).await.unwrap(), Committed::Released);
    let after = session(&store, "s").await;
    assert_eq!(store.commit(done()).await.unwrap(), Committed::Fenced, "the same commit again");
    assert_eq!(session(&store, "s").await, after);
    let taken = grant(&store, "s", 2).await;
    store.release("s", taken.session.epoch, false).await.unwrap();
    let late = commit(&taken, 2, Some(change(&taken.session, "m-2")));
    assert_eq!(store.commit(late).await.unwrap(), Committed::Fenced, "a commit after the release");
    assert_eq!(session(&store, "s").await.last_seq, 1);
}

pub async fn renewing_keeps_leases_and_names_the_lost(store: Arc<dyn Store>) {
    let (a, b, c) = (grant(&store, "a", 1).await, grant(&store, "b", 1).await, grant(&store, "c", 1).await);
    store.commit(commit(&c, 1, None)).await.unwrap();
    let held = |grant: &Grant, later: u64| LeaseKey {
        session_id: grant.session.session_id.clone(),
        epoch: grant.session.epoch + later,
    };
    let unknown = LeaseKey { session_id: "unknown".into(), epoch: 1 };
    let asked = [held(&a, 0), held(&b, 1), held(&c, 0), unknown.clone()];
    let mut lost = store.renew(&asked, LONG * 2).await.unwrap();
    lost.sort_by(|x, y| x.session_id.cmp(&y.session_id));
    assert_eq!(lost, [held(&b, 1), held(&c, 0), unknown]);
    let until = |session: Session| session.lease.unwrap().until;
    assert!(until(session(&store, "a").await) > until(a.session.clone()).plus(LONG / 2));
    assert_eq!(until(session(&store, "b").await), until(b.session));
    assert!(store.renew(&[], LONG).await.unwrap().is_empty());

    // The holder can renew its lease repeatedly, even if another worker asks for the lane.
    let later = store.acquire(acquire("a", 2, "w2")).await.unwrap();
    assert!(matches!(later, Acquired::Busy(_)), "{later:?}");
    for times in 3..6 {
        assert!(store.renew(&[held(&a, 0)], LONG * times).await.unwrap().is_empty());
    }
    let renewed = session(&store, "a").await;
    assert_eq!((renewed.pending_seq, renewed.epoch), (2, a.session.epoch));
    assert!(until(renewed) > until(a.session.clone()).plus(LONG * 3));
    assert_eq!(store.commit(commit(&a, 1, None)).await.unwrap(), Committed::Held);
}

pub async fn a_commit_of_a_lane_that_is_lost_leaves_nothing_on_record(store: Arc<dyn Store>) {
    let stale = granted(store.acquire(Acquire { lease: Duration::ZERO, ..acquire("s", 1, "w1") }).await.unwrap());
    let fresh = grant_in_time(&store, "s", 1).await;
    let mut late = change(&stale.session, "m-1");
    late.steps = vec![step("0/decide", json!("late")), step("0/respond", json!("late"))];
    assert_eq!(store.commit(commit(&stale, 1, Some(late))).await.unwrap(), Committed::Fenced);
    assert_eq!(store.turn("s", "m-1").await.unwrap(), None);
    assert!(store.steps("s", "m-1").await.unwrap().is_empty());
    let good = change(&fresh.session, "m-1");
    assert_eq!(store.commit(commit(&fresh, 1, Some(good))).await.unwrap(), Committed::Released);
    // The holder keeps an expired lease until another worker acquires the lane.
    let over = granted(store.acquire(Acquire { lease: Duration::ZERO, ..acquire("s", 2, "w1") }).await.unwrap());
    let good = change(&over.session, "m-2");
    assert_eq!(store.commit(commit(&over, 2, Some(good))).await.unwrap(), Committed::Released);
    assert!(store.turn("s", "m-2").await.unwrap().is_some());
}

pub async fn a_session_of_another_stream_is_set_back_where_it_was_found(store: Arc<dyn Store>) {
    let before = run_turn(&store, "s", 7, |change| change.outbox = [event("said")].into()).await;
    assert_eq!((before.stream, before.last_at), (Some(stream()), Some(stream().plus(Duration::from_secs(7)))));
    let other = stream().plus(LONG);
    let wish = |seq: u64, rewind: Option<Rewind>| {
        let store = Arc::clone(&store);
        async move { store.acquire(Acquire { stream: other, rewind, ..acquire("s", seq, "w2") }).await.unwrap() }
    };
    for seq in [2, 9] {
        assert!(matches!(wish(seq, None).await, Acquired::OtherStream), "regardless of its sequence");
    }
    let found = Rewind { stream: Some(stream()), last_seq: 7, to: 1 };
    for stale in [Rewind { last_seq: 6, ..found }, Rewind { stream: None, ..found }] {
        assert!(matches!(wish(2, Some(stale)).await, Acquired::OtherStream));
    }
    assert_eq!(session(&store, "s").await, before, "the session is unchanged");
    let held = grant(&store, "s", 8).await;
    assert!(matches!(wish(2, Some(found)).await, Acquired::OtherStream), "another worker holds the lease");
    assert!(store.release("s", held.session.epoch, true).await.unwrap());
    let granted = granted(wish(2, Some(found)).await);
    assert!(granted.resumed, "the turn in flight may be redelivered");
    let now = session(&store, "s").await;
    assert_eq!((now.stream, now.last_seq, now.pending_seq, now.last_at), (Some(other), 1, 2, before.last_at));
    let turn = now.turn.clone().unwrap();
    assert_eq!((turn.seq, turn.attempt, turn.agent_id.as_str(), turn.hash.as_str()), (0, 1, "", ""));
    assert_eq!((now.outbox, now.history.len(), now.recent_jobs), (before.outbox, 0, before.recent_jobs));
    let done = Commit { stream: other, at: other, ..commit(&granted, 2, Some(change(&granted.session, "m-2"))) };
    assert_eq!(store.commit(done).await.unwrap(), Committed::Released);
    let after = session(&store, "s").await;
    assert_eq!((after.stream, after.last_seq, after.last_at), (Some(other), 2, Some(other)));
    // From here on the session behaves like any other, in this process and in one that reads it.
    assert!(matches!(wish(2, None).await, Acquired::Handled));
    assert!(matches!(store.acquire(acquire("s", 9, "w1")).await.unwrap(), Acquired::OtherStream));
    assert!(matches!(wish(3, None).await, Acquired::Granted(_)));
}

pub async fn a_session_whose_stream_lost_its_end_is_set_back_within_it(store: Arc<dyn Store>) {
    run_turn(&store, "s", 7, |_| ()).await;
    assert!(matches!(store.acquire(acquire("s", 5, "w1")).await.unwrap(), Acquired::Handled));
    let found = Rewind { stream: Some(stream()), last_seq: 7, to: 4 };
    let taken = granted(store.acquire(Acquire { rewind: Some(found), ..acquire("s", 5, "w1") }).await.unwrap());
    assert!(!taken.resumed);
    assert_eq!((taken.session.last_seq, taken.session.pending_seq), (4, 5));
    let done = commit(&taken, 5, Some(change(&taken.session, "m-5")));
    assert_eq!(store.commit(done).await.unwrap(), Committed::Released);
    assert_eq!(session(&store, "s").await.last_seq, 5);
    assert_eq!(run_turn(&store, "s", 6, |_| ()).await.last_seq, 6);
}

pub async fn a_grant_tells_of_a_turn_whose_job_was_forgotten(store: Arc<dyn Store>) {
    let queued_at = stream().plus(SHORT);
    run_turn(&store, "s", 1, |change| change.turn.queued_at = Some(queued_at)).await;
    let wish = |seq: u64, job_id: &str| {
        let (store, job_id) = (Arc::clone(&store), job_id.to_owned());
        async move { granted(store.acquire(Acquire { job_id, ..acquire("s", seq, "w1") }).await.unwrap()) }
    };
    let none = wish(2, "m-1").await;
    assert!(none.earlier.flatten().is_none(), "the session has forgotten nothing");
    let mut many = change(&none.session, "m-2");
    many.jobs = (0..types::session::RECENT_JOBS).map(|n| format!("j-{n}")).collect();
    assert_eq!(store.commit(commit(&none, 2, Some(many))).await.unwrap(), Committed::Released);
    let found = wish(3, "m-1").await;
    let mark = found.earlier.expect("the lookup was made").expect("it was found");
    assert!(mark.is_of(queued_at) && !mark.is_of(queued_at.plus(SHORT)));
    assert_eq!(store.commit(commit(&found, 3, None)).await.unwrap(), Committed::Released);
    assert!(wish(4, "m-9").await.earlier.flatten().is_none());
}

pub async fn one_of_many_takes_the_lane(store: Arc<dyn Store>) {
    let asked = join_all((1..=50_u64).map(|seq| {
        let store = Arc::clone(&store);
        async move { store.acquire(acquire("s", seq, &format!("w{seq}"))).await.unwrap() }
    }))
    .await;
    let granted = asked.iter().filter(|acquired| matches!(acquired, Acquired::Granted(_))).count();
    assert_eq!((granted, asked.iter().filter(|acquired| matches!(acquired, Acquired::Busy(_))).count()), (1, 49));
    let session = session(&store, "s").await;
    assert_eq!((session.epoch, session.pending_seq), (first_epoch(session.created_at) + 1, 50));
}

pub async fn lanes_with_work_and_no_holder_are_abandoned(store: Arc<dyn Store>) {
    run_turn(&store, "done", 1, |_| ()).await;
    grant(&store, "held", 1).await;
    let released = grant(&store, "released", 1).await;
    store.release("released", released.session.epoch, true).await.unwrap();
    let expired = granted(store.acquire(Acquire { lease: SHORT, ..acquire("expired", 1, "w1") }).await.unwrap());
    let mut expected = [&released, &expired]
        .map(|grant| AbandonedLane { session_id: grant.session.session_id.clone(), epoch: grant.session.epoch });
    expected.sort_by(|a, b| a.session_id.cmp(&b.session_id));
    eventually(DEADLINE, "the abandoned lanes are found", || async {
        let mut found = store.abandoned_lanes(Duration::ZERO, 10).await.unwrap();
        found.sort_by(|a, b| a.session_id.cmp(&b.session_id));
        found == expected
    })
    .await;
    assert_eq!(store.abandoned_lanes(Duration::ZERO, 1).await.unwrap().len(), 1);
    let oldest = |limit| store.abandoned_lanes(Duration::ZERO, limit);
    assert_eq!(oldest(10).await.unwrap()[0].session_id, "released", "the longest abandoned lane comes first");
    assert_eq!(oldest(1).await.unwrap()[0].session_id, "released");
    assert_eq!(store.abandoned_lanes(LONG, 10).await.unwrap(), [], "the grace period also applies after a release");
    // A whole lease has expired since the first release, so this release is later by the store's clock.
    let later = grant(&store, "a-later-one", 1).await;
    store.release("a-later-one", later.session.epoch, true).await.unwrap();
    assert_eq!(oldest(1).await.unwrap()[0].session_id, "released", "the order does not depend on the id");
}

pub async fn two_hundred_sessions_at_once_end_right(store: Arc<dyn Store>) {
    let sessions: Vec<String> = (0..200).map(|i| format!("会话-{i}")).collect();
    join_all(sessions.iter().map(|id| {
        let store = Arc::clone(&store);
        async move {
            for seq in 1..=3 {
                let (turn, taken) = (format!("m-{seq}"), grant(&store, id, seq).await);
                let steps = vec![step("0/begin", json!({"seq": seq})), step("0/decide", json!(id))];
                let recorded = store.record(record(&taken, &turn, steps, Some(Status::Processing))).await.unwrap();
                assert_eq!(recorded, [Recorded::New, Recorded::New]);
                let change = change(&taken.session, &turn);
                assert_eq!(store.commit(commit(&taken, seq, Some(change))).await.unwrap(), Committed::Released);
            }
        }
    }))
    .await;
    for id in &sessions {
        let session = session(&store, id).await;
        let leases = session.epoch - first_epoch(session.created_at);
        assert_eq!((session.last_seq, leases, session.recent_jobs.len(), session.lease), (3, 3, 3, None));
        assert_eq!(store.turns(id, 10).await.unwrap().len(), 3);
        let steps = store.steps(id, "m-3").await.unwrap();
        assert_eq!(steps.iter().filter(|step| step.output == json!(id)).count(), 1);
        assert_eq!(steps.len(), 2);
    }
}
