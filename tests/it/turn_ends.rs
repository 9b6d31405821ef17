//! The last event of each turn of a conversation, and no other, has the end of the turn, whatever its outcome.

use crate::scenarios::{acts, answer, on_both_backends, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::script::{Answer, ScriptedModel, action, decision, plan};
use crate::support::{api, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::duration::Text;
use types::event::{Event, EventType, OutEvent, ReplyKind, TurnEnd};
use types::ids;
use types::outcome::Outcome;
use types::session::RECENT_JOBS;

on_both_backends!(
    merged_messages_end_together,
    turns_without_a_reply_or_a_status_end_once,
    turns_of_operators_and_failed_turns_end_once,
    turn_that_a_stopped_worker_began_ends_once,
    job_id_that_is_used_again_ends_a_turn_of_its_own,
    end_is_published_although_an_earlier_attempt_used_the_number_of_its_status,
    reply_that_the_stream_has_twice_counts_once,
);

/// The end of a turn, with the turn's id.
struct Ended {
    turn_id: String,
    end: TurnEnd,
}

/// The ends of the session's turns, each checked against the turn's other events.
async fn ends(engine: &Engine, session_id: &str) -> Vec<Ended> {
    let events = engine.events(session_id).await;
    let mut ends: Vec<Ended> = Vec::new();
    for (place, event) in events.iter().enumerate() {
        let Some((turn_id, end)) = event.end() else { continue };
        assert!(ends.iter().all(|known| known.turn_id != turn_id), "one end for each turn: {events:#?}");
        let later = events[place..].iter().filter(|event| event.turn_id() == Some(turn_id)).count();
        assert_eq!(later, 1, "the end is the last event of its turn: {events:#?}");
        let replies = events[..place].iter().filter(
            |event| matches!(event, Event::Reply(reply) if reply.turn_id == turn_id && reply.kind != ReplyKind::Chunk),
        );
        assert_eq!(replies.count(), end.replies as usize, "{end:?}");
        ends.push(Ended { turn_id: turn_id.to_owned(), end: end.clone() });
    }
    let turns = engine.store.turns(session_id, 1_000).await.unwrap();
    assert_eq!(ends.len(), turns.len(), "every turn ends: {events:#?}");
    for turn in turns {
        let Ended { end, .. } = ends.iter().find(|ended| ended.turn_id == turn.turn_id).unwrap();
        assert_eq!((end.outcome, end.attempts), (turn.outcome, turn.attempts));
        assert_eq!(end.jobs[0], turn.job.job_id);
    }
    ends
}

fn jobs(ended: &Ended) -> Vec<&str> {
    ended.end.jobs.iter().map(String::as_str).collect()
}

/// An engine without a worker, whose model decides by the user's words.
async fn engine(mut backend: Backend, agent: Value, decide: fn(&str, &str) -> Value) -> Engine {
    backend.settings.worker.drain_timeout = Text(Duration::from_millis(100));
    let model = ScriptedModel::start(move |asked| {
        let decided = decide(&asked.user, &asked.system);
        Answer::json(&if asked.schema == "plan_and_decision" { plan(json!("您好"), &decided) } else { decided })
    });
    let engine = Engine::watching(backend, model.await).await;
    engine.apply(sales_with(&agent)).await;
    engine
}

async fn merged_messages_end_together(backend: Backend) {
    let engine = engine(backend, json!({"double_text": "merge"}), |_, _| answer("好的")).await;
    for job_id in ["m-1", "m-2", "m-3"] {
        engine.publish("s1", job_id, "在吗").await;
    }
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    let ends = ends(&engine, "s1").await;
    let [ended] = &ends[..] else { panic!("{} ends", ends.len()) };
    assert_eq!((ended.turn_id.as_str(), jobs(ended)), ("m-1", vec!["m-1", "m-2", "m-3"]));
    assert_eq!((ended.end.outcome, ended.end.replies), (Outcome::Answered, 2), "greeting and response");
}

async fn turns_without_a_reply_or_a_status_end_once(backend: Backend) {
    let holds = json!({"handoff": {"mode": "hold"}});
    let engine = engine(backend, holds, |text, _| match text {
        "转人工" => decision("transferred", action("SYSTEM", "handoff", &json!({})), json!("正在转接")),
        _ => decision("ready", Value::Null, Value::Null),
    });
    let engine = engine.await;
    engine.start_worker();
    for (job_id, text) in [("m-1", "嗯"), ("m-2", "嗯"), ("m-3", "转人工"), ("m-4", "有人吗")] {
        engine.say("s1", job_id, text).await;
    }
    let ends = ends(&engine, "s1").await;
    let told: Vec<_> = ends.iter().map(|Ended { turn_id, end }| (turn_id.as_str(), end.outcome, end.replies)).collect();
    let expected = [
        ("m-1", Outcome::Silent, 1),
        ("m-2", Outcome::Silent, 0),
        ("m-3", Outcome::Transferred, 1),
        ("m-4", Outcome::Transferred, 0),
    ];
    assert_eq!(told, expected);
    let events = engine.events("s1").await;
    let of_last = events.iter().filter(|event| event.turn_id() == Some("m-4")).count();
    assert_eq!(of_last, 1, "a message during a handoff has no other event: {events:?}");
}

async fn turns_of_operators_and_failed_turns_end_once(backend: Backend) {
    let engine = engine(backend, json!({"max_iterations": 1}), |text, _| match text {
        "查" => acts("processing", "TOOL", "now", &json!({})),
        _ => answer("好的"),
    });
    let engine = engine.await;
    engine.start_worker();
    engine.say("s1", "m-1", "你好").await;
    engine.say("s1", "m-2", "查").await;
    for (job_id, command) in [("c-1", "release"), ("c-2", "close"), ("c-3", "close")] {
        let job = json!({"type": "control", "session_id": "s1", "job_id": job_id, "command": command});
        engine.publish_job("s1", job).await;
        engine.turn("s1", job_id).await;
    }
    let reply = json!({"type": "reply", "session_id": "s1", "job_id": "h-1", "text": "我来", "by": "李"});
    engine.publish_job("s1", reply).await;
    engine.turn("s1", "h-1").await;
    let ends = ends(&engine, "s1").await;
    let told: Vec<_> = ends.iter().map(|Ended { turn_id, end }| (turn_id.as_str(), end.outcome, end.replies)).collect();
    let expected = [
        ("m-1", Outcome::Answered, 2),
        ("m-2", Outcome::Cancelled, 1),
        ("c-1", Outcome::Noop, 0),
        ("c-2", Outcome::Silent, 0),
        ("c-3", Outcome::Noop, 0),
        ("h-1", Outcome::Answered, 1),
    ];
    assert_eq!(told, expected);
}

async fn turn_that_a_stopped_worker_began_ends_once(backend: Backend) {
    let engine = engine(backend, json!({}), |_, prompt| match prompt.contains("shipped") {
        true => answer("查到了"),
        false => decision("processing", action("SKILL", "query_order", &json!({"order_id": "A1"})), json!("我查一下")),
    });
    let engine = engine.await;
    let open = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&open);
    engine.api.script(move |_, _| match is_open.load(Ordering::SeqCst) {
        true => api::Answer::Now(200, json!({"state": "shipped"})),
        false => api::Answer::Hang,
    });
    let worker = engine.start_worker();
    engine.publish("s1", "m-1", "查A1").await;
    eventually(DEADLINE, "greeting and interim text are published, and the order is looked up", || async {
        engine.replies("s1").await.len() == 2 && !engine.api.calls("/orders").is_empty()
    })
    .await;
    worker.cancel();
    open.store(true, Ordering::SeqCst);
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    let ends = ends(&engine, "s1").await;
    assert_eq!(ends.len(), 1);
    assert_eq!(
        (ends[0].end.outcome, ends[0].end.replies),
        (Outcome::Answered, 3),
        "those of the first attempt count once"
    );
}

async fn job_id_that_is_used_again_ends_a_turn_of_its_own(backend: Backend) {
    let engine = engine(backend, json!({"double_text": "merge"}), |_, _| answer("好的")).await;
    engine.start_worker();
    engine.say("s1", "m-1", "你好").await;
    for n in 0..=RECENT_JOBS {
        engine.publish("s1", &format!("other-{n}"), "嗯").await;
    }
    let last = format!("other-{RECENT_JOBS}");
    eventually(DEADLINE, "the session has forgotten m-1", || async { engine.session("s1").await.has_handled(&last) })
        .await;
    engine.publish("s1", "m-1", "还在吗").await;
    eventually(DEADLINE, "m-1 is handled again", || async { engine.session("s1").await.has_handled("m-1") }).await;
    let turns = engine.store.turns("s1", 1_000).await.unwrap();
    let second = turns.iter().find(|turn| ids::is_repeated_id(&turn.turn_id, "m-1")).unwrap();
    engine.turn("s1", &second.turn_id).await;
    let ends = ends(&engine, "s1").await;
    let of_job: Vec<_> = ends.iter().filter(|ended| jobs(ended).contains(&"m-1")).collect();
    let ids: Vec<_> = of_job.iter().map(|ended| ended.turn_id.as_str()).collect();
    assert_eq!(ids, ["m-1", second.turn_id.as_str()]);
    let handled: Vec<_> = ends.iter().flat_map(jobs).collect();
    assert_eq!(handled.len(), RECENT_JOBS + 3, "each job ends once: {handled:?}");
}

/// An engine whose worker gives the turn `m-1` up. `published` are events of its first attempt, with their ids.
async fn given_up(mut backend: Backend, published: Vec<(EventType, Option<&str>, Value)>) -> Engine {
    backend.settings.worker.max_attempts = 1;
    let engine = engine(backend, json!({"greeting": null}), |_, _| answer("好的")).await;
    engine.publish("s1", "m-1", "你好").await;
    engine.attempt_dies("s1").await;
    let event = |(event_type, msg_id, payload): (EventType, Option<&str>, Value)| OutEvent {
        channel: "web".into(),
        session_id: "s1".into(),
        event_type,
        msg_id: msg_id.map(str::to_owned),
        payload: payload.to_string().into(),
    };
    engine.queue.emit(published.into_iter().map(event).collect()).await.unwrap();
    engine.start_worker();
    engine.turn("s1", "m-1").await;
    engine
}

/// The stream no longer has the status before the published one.
async fn end_is_published_although_an_earlier_attempt_used_the_number_of_its_status(backend: Backend) {
    let status = json!({"session_id": "s1", "turn_id": "m-1", "status": "processing", "previous": "ready",
        "reason": null, "at": "2026-01-02T03:04:05.210Z"});
    let engine = given_up(backend, vec![(EventType::Status, Some("s1/m-1/status/1"), status)]).await;
    let ends = ends(&engine, "s1").await;
    let [ended] = &ends[..] else { panic!("{} ends", ends.len()) };
    assert_eq!(ended.end.outcome, Outcome::Cancelled);
}

/// The queue stores a repeat whose id it has forgotten.
async fn reply_that_the_stream_has_twice_counts_once(backend: Backend) {
    let reply = json!({"reply_id": "s1/m-1/0/interim", "session_id": "s1", "agent_id": "sales", "user_id": "u1",
        "channel": "web", "turn_id": "m-1", "kind": "interim", "text": "我查一下", "seq": 0,
        "at": "2026-01-02T03:04:05.210Z", "metadata": {}});
    let published = vec![(EventType::Reply, None, reply); 2];
    let engine = given_up(backend, published).await;
    let end = engine.events("s1").await.iter().find_map(|event| event.end().map(|(_, end)| end.clone())).unwrap();
    assert_eq!(end.replies, 2, "the interim text and the apology");
    let session = engine.session("s1").await;
    let texts: Vec<_> = session.history.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts.iter().filter(|text| **text == "我查一下").count(), 1, "{texts:?}");
}
