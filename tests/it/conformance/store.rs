//! Cases for commits, step records and queries.

use super::kit::*;
use crate::support::eventually;
use base::clock;
use futures::future::join_all;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;
use types::handoff::{HeldText, Note};
use types::session::{Handoff, Kind, Role, Status, WorkflowState};
use types::timestamp::Timestamp;
use types::turn::DayUse;

pub async fn a_commit_applies_every_field(store: Arc<dyn Store>) {
    let taken = grant(&store, "s", 1).await;
    let state = WorkflowState { hash: "h2".into(), need_greeting: false, status: Status::Cancelled };
    let handoff = Handoff { summary: "要求人工".into(), ..handoff_with_everything() };
    let closed = clock::now();
    let change = Change {
        agent_id: "support".into(),
        user_id: "u2".into(),
        channel: "app".into(),
        workflow_state: state.clone(),
        status_reason: Some("no_progress: twice".into()),
        profile: Some(odd_map()),
        history: vec![entry(Role::User, "你好"), entry(Role::Assistant, "您好")],
        jobs: vec!["m-1".into(), "m-2".into()],
        timer_generation: 3,
        timers: TimerChange::Replace(vec![timer("t1", LONG)]),
        closed_at: Some(closed),
        handoff: Some(handoff.clone()),
        steps: vec![step("0/reply", json!("您好"))],
        ..change(&taken.session, "m-1")
    };
    let turn = change.turn.clone();
    let before = store.due_timers(Duration::ZERO, 1).await.unwrap().now;
    assert_eq!(store.commit(commit(&taken, 2, Some(change))).await.unwrap(), Committed::Released);
    let after = store.due_timers(Duration::ZERO, 1).await.unwrap().now;
    let session = store.session("s").await.unwrap().unwrap();
    assert_eq!(
        (session.agent_id.as_str(), session.user_id.as_str(), session.channel.as_str()),
        ("support", "u2", "app")
    );
    assert_eq!((session.workflow_state.clone(), session.status_reason.as_deref()), (state, Some("no_progress: twice")));
    assert_eq!(session.profile, odd_map());
    assert_eq!(*session.history, [entry(Role::User, "你好"), entry(Role::Assistant, "您好")]);
    assert_eq!(*session.recent_jobs, ["m-1", "m-2"]);
    assert!(session.has_handled("m-2"));
    assert_eq!((session.timer_generation, session.timers.len()), (3, 1));
    let armed = &session.timers[0];
    assert_eq!((armed.timer_id.as_str(), armed.generation, armed.message.as_deref()), ("t1", 3, Some("还在吗？")));
    // A store that estimates its server's clock may be ahead of it, but never behind.
    let latest = after.plus(LONG).plus(AHEAD);
    assert!(before.plus(LONG) <= armed.due_at && armed.due_at <= latest, "the due time is based on the store's clock");
    assert_eq!((session.closed_at, session.handoff), (Some(closed), Some(handoff)));
    assert_eq!((session.last_seq, session.kind, session.created_at), (2, Kind::Chat, taken.session.created_at));
    assert_eq!(store.turn("s", "m-1").await.unwrap(), Some(turn));
    assert_eq!(store.steps("s", "m-1").await.unwrap().len(), 1);
}

pub async fn the_history_drops_what_the_caller_says(store: Arc<dyn Store>) {
    let texts = |session: &types::session::Session| -> Vec<String> {
        session.history.iter().map(|entry| entry.text.clone()).collect()
    };
    let say = |texts: &'static [&'static str], drop: usize| {
        move |change: &mut Change| {
            change.history = texts.iter().map(|text| entry(Role::User, text)).collect();
            change.history_drop = drop;
        }
    };
    assert_eq!(texts(&run_turn(&store, "s", 1, say(&["1", "2", "3"], 0)).await), ["1", "2", "3"]);
    assert_eq!(texts(&run_turn(&store, "s", 2, say(&["4"], 2)).await), ["3", "4"]);
    assert_eq!(texts(&run_turn(&store, "s", 3, say(&[], 0)).await), ["3", "4"]);
    assert_eq!(texts(&run_turn(&store, "s", 4, say(&["5", "6"], 3)).await), ["6"]);
    assert_eq!(texts(&run_turn(&store, "s", 5, say(&["7"], 0)).await), ["6", "7"]);
    assert_eq!(texts(&grant(&store, "s", 6).await.session), ["6", "7"], "the grant has the shortened history");
}

pub async fn recent_jobs_are_the_last_hundred(store: Arc<dyn Store>) {
    for seq in 1..=3_u64 {
        run_turn(&store, "s", seq, |change| change.jobs = (0..45).map(|i| format!("{seq}-{i}")).collect()).await;
    }
    let session = store.session("s").await.unwrap().unwrap();
    assert_eq!(session.recent_jobs.len(), 100);
    assert_eq!((session.recent_jobs[0].as_str(), session.recent_jobs[99].as_str()), ("1-35", "3-44"));
}

/// A handoff of which no field is empty.
fn handoff_with_everything() -> Handoff {
    let mut handoff = Handoff::begin("m-1", clock::now(), 3);
    handoff.taken_over = true;
    handoff.give_to("李雷", clock::now(), clock::now().plus(LONG));
    handoff.add_note(Note { id: "c-1".into(), by: "韩梅梅".into(), at: clock::now(), text: "$set: {}".into() });
    handoff.hold(HeldText { text: "稍等".into(), at: clock::now() });
    handoff
}

pub async fn closing_and_handoff_are_set_and_cleared(store: Arc<dyn Store>) {
    let (closed, handoff) = (clock::now(), Handoff::begin("m-1", clock::now(), 0));
    let set = run_turn(&store, "s", 1, |change| {
        change.closed_at = Some(closed);
        change.handoff = Some(handoff.clone());
        change.status_reason = Some("operator".into());
    })
    .await;
    assert_eq!((set.closed_at, set.handoff, set.status_reason), (Some(closed), Some(handoff), Some("operator".into())));
    let cleared = run_turn(&store, "s", 2, |_| ()).await;
    assert_eq!((cleared.closed_at, cleared.handoff, cleared.status_reason), (None, None, None));
}

pub async fn a_flow_that_waits_is_set_and_cleared(store: Arc<dyn Store>) {
    let waiting = waiting();
    for seq in [1, 3] {
        let set = run_turn(&store, "s", seq, |change| change.waiting = Some(waiting.clone())).await;
        assert_eq!(set.waiting.as_ref(), Some(&waiting));
        let listed = store.sessions(SessionQuery::default()).await.unwrap();
        assert_eq!(listed[0].waiting.as_ref(), Some(&waiting));
        assert_eq!(run_turn(&store, "s", seq + 1, |_| ()).await.waiting, None);
    }
}

pub async fn a_suspended_task_is_set_and_cleared(store: Arc<dyn Store>) {
    let task = task();
    for seq in [1, 3] {
        let change = |change: &mut Change| {
            change.task = Some(task.clone());
            change.current_workflow = Some("w.计划".into());
        };
        let set = run_turn(&store, "s", seq, change).await;
        assert_eq!((set.task.as_ref(), set.current_workflow.as_deref()), (Some(&task), Some("w.计划")));
        let cleared = run_turn(&store, "s", seq + 1, |_| ()).await;
        assert_eq!((cleared.task, cleared.current_workflow), (None, None));
    }
}

pub async fn a_stale_epoch_shows_no_status(store: Arc<dyn Store>) {
    let mut taken = grant(&store, "s", 1).await;
    store.record(record(&taken, "m-1", Vec::new(), Some(Status::Typing))).await.unwrap();
    assert_eq!(store.session("s").await.unwrap().unwrap().workflow_state.status, Status::Typing);
    taken.session.epoch -= 1;
    let steps = vec![step("0/late", json!(1))];
    let recorded = store.record(record(&taken, "m-1", steps, Some(Status::Cancelled))).await.unwrap();
    assert_eq!(recorded, [Recorded::New], "a step counts regardless of the epoch");
    assert_eq!(store.session("s").await.unwrap().unwrap().workflow_state.status, Status::Typing);
}

pub async fn the_first_record_of_a_step_counts(store: Arc<dyn Store>) {
    let taken = grant(&store, "s", 1).await;
    let (first, other) = (step("0/act", json!({"n": 1})), step("0/act", json!({"n": 2})));
    let new = store.record(record(&taken, "m-1", vec![first.clone()], None)).await.unwrap();
    assert_eq!(new, [Recorded::New]);
    let steps = vec![step("1/act", json!(3)), other, step("2/act", Value::Null)];
    let mixed = store.record(record(&taken, "m-1", steps, None)).await.unwrap();
    assert_eq!(mixed, [Recorded::New, Recorded::Existing(first), Recorded::New]);
    let keys: Vec<String> = store.steps("s", "m-1").await.unwrap().into_iter().map(|step| step.key).collect();
    assert_eq!(keys, ["0/act", "1/act", "2/act"]);
    assert!(store.steps("s", "m-2").await.unwrap().is_empty());
}

pub async fn twenty_writers_of_one_step_adopt_the_same_output(store: Arc<dyn Store>) {
    let taken = Arc::new(grant(&store, "s", 1).await);
    let outputs = join_all((0..20).map(|writer| {
        let (store, taken) = (Arc::clone(&store), Arc::clone(&taken));
        async move {
            let mine = step("0/act", json!({"writer": writer}));
            let steps = vec![mine.clone()];
            match store.record(record(&taken, "m-1", steps, None)).await.unwrap().remove(0) {
                Recorded::New => (true, mine.output.clone()),
                Recorded::Existing(step) => (false, step.output.clone()),
            }
        }
    }))
    .await;
    assert_eq!(outputs.iter().filter(|(new, _)| *new).count(), 1);
    let distinct: HashSet<String> = outputs.iter().map(|(_, output)| output.to_string()).collect();
    assert_eq!(distinct.len(), 1);
    assert_eq!(store.steps("s", "m-1").await.unwrap()[0].output, outputs[0].1);
}

pub async fn turns_whose_ids_begin_alike_are_kept_apart(store: Arc<dyn Store>) {
    let taken = grant(&store, "s", 1).await;
    let turns = ["m-1", "m-10", "m-1-x", "m"];
    for turn in turns {
        store.record(record(&taken, turn, vec![step("0/act", json!(turn))], None)).await.unwrap();
    }
    for turn in turns {
        let steps = store.steps("s", turn).await.unwrap();
        assert_eq!(steps.iter().map(|step| &step.output).collect::<Vec<_>>(), [&json!(turn)]);
    }
    let longer = grant(&store, "s-1", 1).await;
    store.record(record(&longer, "m-1", vec![step("9/act", json!("other"))], None)).await.unwrap();
    assert_eq!(store.steps("s", "m-1").await.unwrap().len(), 1);
}

async fn outputs(store: &Arc<dyn Store>, turn: &str) -> Vec<Value> {
    store.steps("s", turn).await.unwrap().into_iter().map(|step| step.output).collect()
}

pub async fn steps_of_the_commit_replace_what_was_recorded(store: Arc<dyn Store>) {
    let stale = granted(store.acquire(Acquire { lease: Duration::ZERO, ..acquire("s", 1, "w1") }).await.unwrap());
    store.record(record(&stale, "m-1", vec![step("0/act", json!("first"))], None)).await.unwrap();
    let taken = grant_in_time(&store, "s", 1).await;
    // The previous holder has another result, and its commit is late.
    let mut late = change(&stale.session, "m-1");
    late.steps = vec![step("1/decide", json!("late"))];
    assert_eq!(store.commit(commit(&stale, 1, Some(late))).await.unwrap(), Committed::Fenced);
    let mut change = change(&taken.session, "m-1");
    change.steps = vec![step("1/decide", json!("counts")), step("2/reply", json!("new"))];
    assert_eq!(store.commit(commit(&taken, 1, Some(change))).await.unwrap(), Committed::Released);
    assert_eq!(outputs(&store, "m-1").await, [json!("first"), json!("counts"), json!("new")]);
    store.record(record(&stale, "m-1", vec![step("1/decide", json!("later still"))], None)).await.unwrap();
    assert_eq!(outputs(&store, "m-1").await[1], json!("counts"));
}

pub async fn steps_of_a_fenced_commit_replace_nothing_of_the_next_holder(store: Arc<dyn Store>) {
    let stale = granted(store.acquire(Acquire { lease: Duration::ZERO, ..acquire("s", 1, "w1") }).await.unwrap());
    let taken = grant_in_time(&store, "s", 1).await;
    store.record(record(&taken, "m-1", vec![step("0/decide", json!("the way it goes"))], None)).await.unwrap();
    let mut late = change(&stale.session, "m-1");
    late.steps = vec![step("0/decide", json!("late"))];
    assert_eq!(store.commit(commit(&stale, 1, Some(late))).await.unwrap(), Committed::Fenced);
    assert_eq!(outputs(&store, "m-1").await, [json!("the way it goes")]);
}

pub async fn an_outbox_is_kept_until_the_next_commit(store: Arc<dyn Store>) {
    let said = |texts: &'static [&'static str]| {
        move |change: &mut Change| change.outbox = texts.iter().map(|text| event(text)).collect()
    };
    assert_eq!(run_turn(&store, "s", 1, said(&["收到", "$b"])).await.outbox, [event("收到"), event("$b")]);
    let arms = |change: &mut Change| {
        change.outbox = [event("$c")].into();
        change.timers = TimerChange::Replace(vec![timer("t1", LONG)]);
    };
    assert_eq!(run_turn(&store, "s", 2, arms).await.outbox, [event("$c")]);
    assert_eq!(run_turn(&store, "s", 3, said(&[])).await.outbox, []);
    run_turn(&store, "s", 4, said(&["d"])).await;
    let taken = grant(&store, "s", 5).await;
    let outbox = match taken.session.outbox_unread {
        true => store.session("s").await.unwrap().unwrap().outbox,
        false => taken.session.outbox.clone(),
    };
    assert_eq!(outbox, [event("d")], "the next holder may have to publish it");
    store.record(record(&taken, "m-5", vec![step("0/act", json!(1))], Some(Status::Processing))).await.unwrap();
    assert_eq!(store.session("s").await.unwrap().unwrap().outbox, [event("d")]);
    assert_eq!(store.commit(commit(&taken, 5, None)).await.unwrap(), Committed::Released);
    assert_eq!(store.session("s").await.unwrap().unwrap().outbox, []);
}

pub async fn turns_are_listed_newest_first(store: Arc<dyn Store>) {
    let start = clock::now();
    for seq in 1..=12_u64 {
        run_turn(&store, "s", seq, |change| change.turn.committed_at = start.plus(Duration::from_millis(seq))).await;
    }
    let listed: Vec<String> = store.turns("s", 3).await.unwrap().into_iter().map(|turn| turn.turn_id).collect();
    assert_eq!(listed, ["m-12", "m-11", "m-10"]);
    assert_eq!(store.turns("s", 100).await.unwrap().len(), 12);
    assert!(store.turn("s", "m-13").await.unwrap().is_none() && store.turns("t", 9).await.unwrap().is_empty());
}

pub async fn sessions_are_listed_last_changed_first_and_filtered(store: Arc<dyn Store>) {
    let mut last = Timestamp::default();
    for (seq, id) in ["a", "b", "c", "a"].into_iter().enumerate() {
        // The order is by milliseconds, so the test waits for the next one.
        let passed = || async { store.due_timers(Duration::ZERO, 1).await.unwrap().now > last };
        eventually(DEADLINE, "the next millisecond begins", passed).await;
        let agent = if id == "b" { "support" } else { "sales" };
        let changed = run_turn(&store, id, seq as u64 + 1, |change| {
            change.agent_id = agent.into();
            change.history = vec![entry(Role::User, "你好")];
            change.workflow_state.status = if id == "c" { Status::Cancelled } else { Status::Ready };
        })
        .await;
        last = changed.updated_at;
    }
    let list = |query: SessionQuery| async {
        let sessions = store.sessions(query).await.unwrap();
        assert!(sessions.iter().all(|session| session.history.len() == 1), "only the last entries");
        sessions.into_iter().map(|session| session.session_id).collect::<Vec<_>>()
    };
    assert_eq!(list(SessionQuery::default()).await, ["a", "c", "b"]);
    assert_eq!(list(SessionQuery { limit: 1, ..SessionQuery::default() }).await, ["a"]);
    assert_eq!(list(SessionQuery { agent_id: Some("support".into()), ..SessionQuery::default() }).await, ["b"]);
    assert_eq!(list(SessionQuery { status: Some(Status::Cancelled), ..SessionQuery::default() }).await, ["c"]);
}

pub async fn idle_sessions_are_open_ready_chats(store: Arc<dyn Store>) {
    run_turn(&store, "ready", 1, |_| ()).await;
    run_turn(&store, "cancelled", 2, |change| change.workflow_state.status = Status::Cancelled).await;
    run_turn(&store, "transferred", 3, |change| change.workflow_state.status = Status::Transferred).await;
    run_turn(&store, "closed", 4, |change| change.closed_at = Some(clock::now())).await;
    let mut authoring = acquire("authoring", 5, "w1");
    authoring.new_session.kind = Kind::Authoring;
    let taken = granted(store.acquire(authoring).await.unwrap());
    store.commit(commit(&taken, 5, None)).await.unwrap();
    run_turn(&store, "timer", 6, |change| change.timers = TimerChange::Replace(vec![timer("t", LONG)])).await;
    run_turn(&store, "flow", 7, |change| change.waiting = Some(waiting())).await;
    run_turn(&store, "task", 8, |change| change.task = Some(task())).await;
    let expected = [("cancelled", 2), ("ready", 1)];
    assert_eq!(idle(&store, expected.len()).await, expected.map(|(id, seq)| (id.to_owned(), seq)));
    assert_eq!(store.idle_sessions(Duration::ZERO, 1).await.unwrap().len(), 1);
    assert!(store.idle_sessions(LONG, 10).await.unwrap().is_empty());
}

pub async fn one_leads_until_it_resigns_or_its_lease_ends(store: Arc<dyn Store>) {
    assert!(store.lead("scheduler", "w1", LONG).await.unwrap());
    assert!(store.lead("scheduler", "w1", LONG).await.unwrap(), "the leader renews");
    assert!(!store.lead("scheduler", "w2", LONG).await.unwrap());
    assert!(store.lead("other", "w2", LONG).await.unwrap(), "roles are independent");
    store.resign("scheduler", "w2").await.unwrap();
    assert!(!store.lead("scheduler", "w2", LONG).await.unwrap(), "only the leader can resign");
    store.resign("scheduler", "w1").await.unwrap();
    assert!(store.lead("scheduler", "w2", SHORT).await.unwrap());
    assert!(!store.lead("scheduler", "w1", SHORT).await.unwrap());
    eventually(DEADLINE, "the lease ends", || async { store.lead("scheduler", "w1", LONG).await.unwrap() }).await;
    assert!(!store.lead("scheduler", "w2", LONG).await.unwrap());
}

pub async fn tokens_of_a_session_and_of_days_count_once(store: Arc<dyn Store>) {
    let used = |agent_id: &str, day: &str, tokens| DayUse { agent_id: agent_id.into(), day: day.into(), tokens };
    let of_day = async |day: &str| {
        let agents = ["客服", "sales", "nobody"].map(str::to_owned).to_vec();
        let mut of_day: Vec<_> = store.tokens_of_day(day, agents).await.unwrap().into_iter().collect();
        of_day.sort();
        of_day
    };
    assert_eq!(of_day("2026-01-02").await, []);
    let session = run_turn(&store, "s", 1, |change| {
        change.tokens = 40;
        change.days = vec![used("sales", "2026-01-02", 30), used("客服", "2026-01-02", 10)];
    })
    .await;
    assert_eq!(session.tokens, 40);
    // A holder that has lost its lane counts no tokens. The next holder counts the same turn once.
    let short = Acquire { lease: SHORT, ..acquire("s", 2, "w1") };
    let lost = granted(store.acquire(short).await.unwrap());
    let taken = grant_in_time(&store, "s", 2).await;
    assert_eq!(taken.session.tokens, 40);
    let ends = |grant: &Grant| Change {
        tokens: grant.session.tokens + 5,
        days: vec![used("sales", "2026-01-02", 5)],
        ..change(&grant.session, "m-2")
    };
    assert_eq!(store.commit(commit(&lost, 2, Some(ends(&lost)))).await.unwrap(), Committed::Fenced);
    assert_eq!(of_day("2026-01-02").await, [("sales".to_owned(), 30), ("客服".to_owned(), 10)]);
    assert_eq!(store.commit(commit(&taken, 2, Some(ends(&taken)))).await.unwrap(), Committed::Released);
    // Calls that belong to no turn.
    store.use_tokens(used("nobody", "2026-01-05", 3)).await.unwrap();
    store.use_tokens(used("nobody", "2026-01-05", 4)).await.unwrap();
    assert_eq!(of_day("2026-01-05").await, [("nobody".to_owned(), 7)]);
    assert_eq!(
        store.commit(commit(&taken, 2, Some(ends(&taken)))).await.unwrap(),
        Committed::Fenced,
        "the same commit again"
    );
    assert_eq!(of_day("2026-01-02").await, [("sales".to_owned(), 35), ("客服".to_owned(), 10)]);
    // Another session on the next day, which stays held; then many concurrently.
    let held = grant(&store, "s2", 1).await;
    assert!(matches!(store.acquire(acquire("s2", 2, "w2")).await.unwrap(), Acquired::Busy(_)));
    let next = Change { tokens: 7, days: vec![used("sales", "2026-01-03", 7)], ..change(&held.session, "m-1") };
    assert_eq!(store.commit(commit(&held, 1, Some(next))).await.unwrap(), Committed::Held);
    let many = futures::future::join_all((0..40).map(|number| {
        let store = &store;
        async move {
            run_turn(store, &format!("many-{number}"), 1, |change| {
                change.days = vec![used("sales", "2026-01-03", 1)];
            })
            .await
        }
    }));
    many.await;
    assert_eq!(of_day("2026-01-03").await, [("sales".to_owned(), 47)]);
    assert_eq!(store.session("s2").await.unwrap().unwrap().tokens, 7);
    assert_eq!(store.session("s").await.unwrap().unwrap().tokens, 45);
}
