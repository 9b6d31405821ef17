//! Requests and documents for the cases.

use crate::support::eventually;
use base::clock;
use base::config::Settings;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use storage::store::*;
use types::duration::Text;
use types::event::{EventType, OutEvent};
use types::job::{Job, JobBody, UserMessage};
use types::outcome::Outcome;
use types::session::{Entry, Role, Session, Status, Task, Waiting, WorkflowState};
use types::step::StepRecord;
use types::timer::NewTimer;
use types::timestamp::Timestamp;
use types::turn::{StatusAt, TurnRecord};

/// A lease that no case outlives.
pub const LONG: Duration = Duration::from_secs(60);
/// A lease short enough to wait for its expiry.
pub const SHORT: Duration = Duration::from_millis(200);
/// How far a store's estimate may be ahead of its server's clock.
pub const AHEAD: Duration = Duration::from_millis(100);

/// Returns when every estimate of the store's clock is after `at`.
pub async fn clock_is_past(at: Timestamp) {
    eventually(DEADLINE, "the clock moves on", || async { clock::now() > at.plus(AHEAD) }).await;
}
/// Time limit for every wait.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Settings of all cases, with short time limits.
pub fn settings(mut settings: Settings) -> Settings {
    settings.worker.ack_wait = Text(Duration::from_millis(300));
    settings.lane.max_depth = 20;
    settings
}

/// Creation time of the stream in all cases.
pub fn stream() -> Timestamp {
    Timestamp::from_millis(1_767_000_000_000)
}

pub fn acquire(session: &str, seq: u64, owner: &str) -> Acquire {
    Acquire {
        session_id: session.into(),
        seq,
        stream: stream(),
        rewind: None,
        job_id: format!("m-{seq}"),
        owner: owner.into(),
        token: format!("{owner}-{seq}"),
        lease: LONG,
        new_session: NewSession {
            agent_id: "sales".into(),
            user_id: "u1".into(),
            channel: "web".into(),
            ..NewSession::default()
        },
        pin: Some(Pin { agent_id: "sales".into(), hash: "h1".into(), announce: false }),
    }
}

/// Acquires the lane, which must be free.
pub async fn grant(store: &Arc<dyn Store>, session: &str, seq: u64) -> Grant {
    granted(store.acquire(acquire(session, seq, "w1")).await.unwrap())
}

/// Acquires the lane once its lease has expired.
pub async fn grant_in_time(store: &Arc<dyn Store>, session: &str, seq: u64) -> Grant {
    let taken = eventually(DEADLINE, "the lane is free", || async {
        match store.acquire(acquire(session, seq, "w2")).await.unwrap() {
            Acquired::Granted(grant) => Some(grant),
            Acquired::Busy(_) | Acquired::Handled | Acquired::OtherStream => None,
        }
    });
    *taken.await
}

pub fn granted(acquired: Acquired) -> Grant {
    match acquired {
        Acquired::Granted(grant) => *grant,
        other => panic!("the lane was not granted: {other:?}"),
    }
}

pub fn commit(grant: &Grant, last_seq: u64, change: Option<Change>) -> Commit {
    Commit {
        session_id: grant.session.session_id.clone(),
        epoch: grant.session.epoch,
        last_seq,
        stream: stream(),
        at: stream().plus(Duration::from_secs(last_seq)),
        lease: LONG,
        sure_until: None,
        change: change.map(Box::new),
    }
}

/// The smallest possible change.
pub fn change(session: &Session, turn_id: &str) -> Change {
    Change {
        agent_id: session.agent_id.clone(),
        user_id: session.user_id.clone(),
        channel: session.channel.clone(),
        workflow_state: WorkflowState { hash: "h1".into(), need_greeting: false, status: Status::Ready },
        status_reason: None,
        profile: None,
        history: Vec::new(),
        history_drop: 0,
        jobs: vec![turn_id.into()],
        timer_generation: session.timer_generation,
        timers: TimerChange::Keep,
        closed_at: None,
        handoff: None,
        tokens: session.tokens,
        days: Vec::new(),
        waiting: None,
        task: None,
        current_workflow: None,
        turn: turn(&session.session_id, turn_id),
        run: None,
        steps: Vec::new(),
        outbox: Arc::default(),
    }
}

/// Runs one whole turn. The lane must be free.
pub async fn run_turn(store: &Arc<dyn Store>, session: &str, seq: u64, edit: impl FnOnce(&mut Change)) -> Session {
    let grant = grant(store, session, seq).await;
    let mut change = change(&grant.session, &format!("m-{seq}"));
    edit(&mut change);
    assert_eq!(store.commit(commit(&grant, seq, Some(change))).await.unwrap(), Committed::Released);
    store.session(session).await.unwrap().unwrap()
}

/// A flow that waits for the user.
pub fn waiting() -> Box<Waiting> {
    let now = clock::now();
    Box::new(Waiting {
        flow: "退款".into(),
        agent_id: "a".into(),
        turn_id: "m-1".into(),
        prefix: "0/退款".into(),
        asked: 1,
        question: "$哪个订单？".into(),
        choices: vec!["A1001".into()],
        run_id: Some("r1".into()),
        began_at: now,
        asked_at: now,
        until: now.plus(Duration::from_secs(3600)),
    })
}

/// A task that waits for the user's answer.
pub fn task() -> Box<Task> {
    let now = clock::now();
    let object = |value: Value| value.as_object().cloned().unwrap();
    Box::new(Task {
        agent_id: "a".into(),
        turn_id: "m-1".into(),
        question: "$哪个月？".into(),
        options: vec!["十月".into()],
        required_fields: vec!["month".into()],
        context: object(json!({"$已知": {"a.b": [1, 2.5, null]}})),
        blocked: vec![json!({"decision_type": "create_node", "payload": {"config": {"url": "${a.b}"}}})],
        results: vec![json!({"name": "create_node", "result": {"ok": true}})],
        asked_at: now,
        until: now.plus(Duration::from_secs(3600)),
    })
}

/// Waits for `count` idle sessions, and returns their ids and last sequences. The server's clock may be slightly ahead.
pub async fn idle(store: &Arc<dyn Store>, count: usize) -> Vec<(String, u64)> {
    let found = eventually(DEADLINE, "the idle sessions are found", || async {
        let found = store.idle_sessions(Duration::ZERO, 10).await.unwrap();
        (found.len() >= count).then_some(found)
    });
    let mut idle: Vec<_> = found.await.into_iter().map(|idle| (idle.session_id, idle.last_seq)).collect();
    idle.sort();
    idle
}

pub fn job(session: &str, job_id: &str) -> Job {
    let message = UserMessage { agent_id: Some("sales".into()), text: "你好".into(), ..UserMessage::default() };
    Job { session_id: session.into(), job_id: job_id.into(), body: JobBody::UserMessage(message) }
}

pub fn turn(session: &str, turn_id: &str) -> TurnRecord {
    let now = clock::now();
    TurnRecord {
        session_id: session.into(),
        turn_id: turn_id.into(),
        job: job(session, turn_id),
        statuses: vec![StatusAt { status: Status::Processing, at: now }, StatusAt { status: Status::Ready, at: now }],
        outcome: Outcome::Answered,
        reason: None,
        attempts: 1,
        queued_at: None,
        started_at: now,
        committed_at: now,
        hash: "h1".into(),
        actions: vec!["query_order".into()],
        tokens: 18,
    }
}

pub fn step(key: &str, output: Value) -> Arc<StepRecord> {
    Arc::new(StepRecord {
        key: key.into(),
        kind: "action".into(),
        target: "query_order".into(),
        input_hash: "i1".into(),
        output,
        ok: true,
        ms: 12,
        model: None,
        tokens: None,
        attempts: Some(1),
        charged: None,
        at: clock::now(),
        prompt: None,
    })
}

pub fn record(grant: &Grant, turn_id: &str, steps: Vec<Arc<StepRecord>>, status: Option<Status>) -> Record {
    Record {
        session_id: grant.session.session_id.clone(),
        epoch: grant.session.epoch,
        turn_id: turn_id.into(),
        steps,
        status,
    }
}

pub fn entry(role: Role, text: &str) -> Entry {
    Entry {
        role,
        text: text.into(),
        at: Timestamp::from_millis(1_767_322_984_005),
        turn_id: "m-1".into(),
        kind: None,
        metadata: Default::default(),
    }
}

pub fn event(text: &str) -> OutEvent {
    OutEvent {
        channel: "web".into(),
        session_id: "s".into(),
        event_type: EventType::Reply,
        msg_id: Some(format!("s/m-1/{text}")),
        payload: json!({ "text": text, "metadata": odd_values() }).to_string().into(),
    }
}

pub fn timer(id: &str, delay: Duration) -> NewTimer {
    NewTimer {
        timer_id: id.into(),
        name: "follow_up".into(),
        delay,
        action: None,
        message: Some("还在吗？".into()),
        traceparent: None,
    }
}

/// Values with unusual keys and contents, as users, models and APIs may produce them.
pub fn odd_values() -> Value {
    json!({
        "$set": {"$inc": 1, "a.b": {"": "empty key", ".": [], "$": {}}},
        "a.b.c": null,
        "订单": {"物流": ["已发货", null, {"深": {"层": null}}], "🚚": "“全角”\u{3000}\n\t\"\\"},
        "numbers": [0, -1, i64::MAX, i64::MIN, 9_007_199_254_740_993_i64, 0.1, 0.1 + 0.2, -2.5, 1.0, 1.7e300],
        "_id": "no key of ours",
        "false": false,
        "empty": [{}, [], "", null],
    })
}

pub fn odd_map() -> Map<String, Value> {
    odd_values().as_object().unwrap().clone()
}
