//! Scenario S-09: timers fire once, never early, and not after a message of the user.

use super::{acts, answer, engine, on_both_backends, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine};
use crate::support::eventually;
use crate::support::script::{Answer, plan};
use serde_json::json;
use std::time::Duration;
use types::duration::Text;
use types::event::ReplyKind;
use types::job::JobBody;
use types::outcome::Outcome;
use types::turn::TurnRecord;

on_both_backends!(
    s09_timer_fires_once_with_text_and_action_and_is_not_armed_again,
    s09_user_message_cancels_the_older_timer_and_arms_a_new_one,
    a_job_of_an_older_generation_does_nothing_while_a_newer_timer_waits,
    message_without_action_asks_no_model,
    a_timer_s_action_may_be_of_any_kind,
    a_timer_s_flow_leaves_the_other_timers,
    timers_due_while_no_scheduler_runs_fire_once_afterwards,
    a_timer_longer_than_the_idle_time_fires,
    an_idle_conversation_that_was_touched_meanwhile_is_not_closed,
);

async fn with_timer(backend: Backend, delay: &str) -> Engine {
    let engine = engine(backend, answer("您好"), vec![acts("ready", "TOOL", "now", &json!({}))]).await;
    let action = json!({"type": "TOOL", "target": "log_followup", "params": {}});
    let timers = json!([{"name": "follow_up", "delay": delay, "message": "还需要帮助吗？", "action": action}]);
    engine.apply(sales_with(&json!({"timers": timers}))).await;
    engine
}

/// Waits until the session's only timer has fired. Returns its turn.
async fn fired(engine: &Engine, session_id: &str) -> TurnRecord {
    eventually(DEADLINE, "the timer fires", || async {
        let turns = engine.store.turns(session_id, 10).await.unwrap();
        let timer = turns
            .into_iter()
            .find(|turn| matches!(turn.job.body, JobBody::Timer { .. }) && turn.outcome != Outcome::Noop);
        let done = engine.session(session_id).await;
        timer.filter(|turn| done.has_handled(&turn.turn_id))
    })
    .await
}

/// Number of follow-ups, once there is at least one: a turn's events are published shortly after its commit.
async fn follow_ups(engine: &Engine, session_id: &str) -> usize {
    eventually(DEADLINE, "the follow-up is published", || async {
        let said = engine.said(session_id).await;
        let count = said.into_iter().filter(|(kind, _)| *kind == ReplyKind::Timer).count();
        (count > 0).then_some(count)
    })
    .await
}

async fn s09_timer_fires_once_with_text_and_action_and_is_not_armed_again(backend: Backend) {
    let engine = with_timer(backend, "2s").await;
    engine.say("s1", "m-1", "你好").await;
    let armed = engine.session("s1").await.timers[0].clone();
    let turn = fired(&engine, "s1").await;

    assert!(turn.started_at >= armed.due_at, "the timer fired early: {} < {}", turn.started_at, armed.due_at);
    assert_eq!(turn.turn_id, format!("{}-{}", armed.timer_id, armed.generation));
    assert_eq!(engine.api.calls("/followups").len(), 1);
    assert_eq!(follow_ups(&engine, "s1").await, 1);
    assert!(engine.session("s1").await.timers.is_empty(), "the timer is not armed again");
}

async fn s09_user_message_cancels_the_older_timer_and_arms_a_new_one(backend: Backend) {
    let engine = with_timer(backend, "2s").await;
    engine.model.script(|asked| {
        let first = plan(json!("您好"), &answer("一"));
        Answer::json(&if asked.schema == "plan_and_decision" { first } else { answer("二") })
    });
    engine.say("s1", "m-1", "你好").await;
    let older = engine.session("s1").await.timers[0].clone();
    engine.say("s1", "m-2", "我还在").await;
    let newer = engine.session("s1").await.timers[0].clone();
    assert_ne!((&older.timer_id, older.generation), (&newer.timer_id, newer.generation));
    assert!(newer.due_at > older.due_at);
    let turn = fired(&engine, "s1").await;
    assert_eq!(turn.turn_id, format!("{}-{}", newer.timer_id, newer.generation), "only the newer one fires");
    assert_eq!(follow_ups(&engine, "s1").await, 1);
}

async fn a_job_of_an_older_generation_does_nothing_while_a_newer_timer_waits(backend: Backend) {
    let engine = with_timer(backend, "1h").await;
    engine.say("s1", "m-1", "你好").await;
    let older = engine.session("s1").await.timers[0].clone();
    engine.say("s1", "m-2", "在吗").await;
    let newer = engine.session("s1").await.timers[0].clone();
    assert!(newer.generation > older.generation);
    // The scheduler published the job before the user's second message was processed, or the job names the new timer by
    // mistake.
    for timer_id in [&older.timer_id, &newer.timer_id] {
        let job = json!({"type": "timer", "session_id": "s1", "timer_id": timer_id, "generation": older.generation,
                         "name": older.name, "due_at": older.due_at, "action": older.action, "message": older.message});
        engine.publish_job("s1", job).await;
        let turn = engine.turn("s1", &format!("{timer_id}-{}", older.generation)).await;
        assert_eq!((turn.outcome, turn.statuses.len()), (Outcome::Noop, 0));
    }
    assert_eq!(engine.session("s1").await.timers, [newer]);
    assert!(engine.said("s1").await.iter().all(|(kind, _)| *kind != ReplyKind::Timer));
}

async fn message_without_action_asks_no_model(backend: Backend) {
    let engine = with_timer(backend, "1h").await;
    let timers = json!([{"name": "follow_up", "delay": 1, "message": "还需要帮助吗？"}]);
    engine.apply(sales_with(&json!({"timers": timers}))).await;
    engine.say("s1", "m-1", "你好").await;
    let asked = engine.model.asked().len();
    fired(&engine, "s1").await;
    assert_eq!(follow_ups(&engine, "s1").await, 1);
    assert_eq!(engine.model.asked().len(), asked);
}

async fn timers_due_while_no_scheduler_runs_fire_once_afterwards(backend: Backend) {
    let engine = with_timer(backend, "1s").await;
    engine.stop_scheduler();
    let sessions = ["s1", "s2", "s3"];
    for session_id in sessions {
        engine.say(session_id, "m-1", "你好").await;
    }
    let due = engine.session("s3").await.timers[0].due_at;
    eventually(DEADLINE, "all timers are overdue", || async { (base::clock::now() > due).then_some(()) }).await;
    engine.start_scheduler();
    for session_id in sessions {
        fired(&engine, session_id).await;
        assert_eq!(follow_ups(&engine, session_id).await, 1);
    }
    assert_eq!(engine.api.calls("/followups").len(), sessions.len());
}

/// The first turn of a timer with this action.
async fn acted(engine: &Engine, session_id: &str, kind: &str, target: &str) -> TurnRecord {
    let action = json!({"type": kind, "target": target, "params": {"order_id": "A1", "phone": "1"}});
    let timers = json!([
        {"name": "later", "delay": "1h", "message": "还在吗？"},
        {"name": "act", "delay": "300ms", "action": action},
    ]);
    engine.apply(sales_with(&json!({"timers": timers, "tone": target}))).await;
    engine.say(session_id, "m-1", "你好").await;
    fired(engine, session_id).await
}

async fn a_timer_s_action_may_be_of_any_kind(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.model.script(|asked| {
        let first = plan(json!("您好"), &answer("一"));
        Answer::json(&match asked.schema.as_str() {
            "plan_and_decision" => first,
            "decision" => acts_no_more(),
            _ => json!("要点"),
        })
    });
    let turn = acted(&engine, "s1", "SKILL", "query_order").await;
    assert_eq!((turn.outcome, turn.actions), (Outcome::Silent, vec!["query_order".to_owned()]));
    assert_eq!(engine.api.calls("/orders/A1").len(), 1);
    assert_eq!(engine.session("s1").await.timers.len(), 1, "only the other timer remains");

    acted(&engine, "s2", "SYSTEM", "update_profile").await;
    let session = engine.session("s2").await;
    assert_eq!((&session.profile["phone"], session.timers.len()), (&json!("1"), 1));

    acted(&engine, "s3", "SYSTEM", "close_conversation").await;
    let session = engine.session("s3").await;
    assert!(session.closed_at.is_some() && session.timers.is_empty());

    let turn = acted(&engine, "s4", "SYSTEM", "handoff").await;
    assert_eq!(turn.outcome, Outcome::Transferred);
    assert_eq!(engine.api.calls("/desk").len(), 1);
    assert!(engine.session("s4").await.timers.is_empty());
}

fn acts_no_more() -> serde_json::Value {
    crate::support::script::decision("ready", serde_json::Value::Null, serde_json::Value::Null)
}

async fn a_timer_s_flow_leaves_the_other_timers(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.model.script(|asked| {
        let first = plan(json!("您好"), &answer("一"));
        Answer::json(&if asked.schema == "plan_and_decision" { first } else { json!("要点") })
    });
    let turn = acted(&engine, "s1", "FLOW", "parallel_analysis").await;
    assert_eq!((turn.outcome, turn.actions), (Outcome::Flow, vec!["parallel_analysis".to_owned()]));
    let names: Vec<String> = engine.session("s1").await.timers.iter().map(|timer| timer.name.clone()).collect();
    assert_eq!(names, ["later"]);
}

async fn a_timer_longer_than_the_idle_time_fires(mut backend: Backend) {
    backend.settings.retention.idle = Text(Duration::from_millis(500));
    let engine = with_timer(backend, "4s").await;
    engine.say("s1", "m-1", "你好").await;
    engine.apply(sales_with(&json!({}))).await;
    engine.say("idle", "m-1", "你好").await;
    engine.stop_scheduler();
    eventually(DEADLINE, "both are untouched for long enough", || async {
        let idle = engine.store.idle_sessions(Duration::from_millis(500), 10).await.unwrap();
        idle.iter().any(|idle| idle.session_id == "idle")
    })
    .await;
    // Housekeeping is the first work of a new leader.
    engine.start_scheduler();
    eventually(DEADLINE, "the one without a timer is closed", || async {
        engine.session("idle").await.closed_at.is_some()
    })
    .await;
    fired(&engine, "s1").await;
    assert_eq!(follow_ups(&engine, "s1").await, 1);
}

async fn an_idle_conversation_that_was_touched_meanwhile_is_not_closed(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("您好"), answer("还在")]).await;
    engine.apply(sales_with(&json!({}))).await;
    engine.say("s1", "m-1", "你好").await;
    let seen = engine.session("s1").await.last_seq;
    let close = |job_id: &str, left_at: u64| {
        json!({"type": "control", "session_id": "s1", "job_id": job_id, "command": "close", "reason": "idle",
               "by": "housekeeping", "left_at": left_at})
    };
    // The message arrives between the query and the closing.
    engine.publish("s1", "m-2", "还在吗").await;
    engine.publish_job("s1", close("idle-1", seen)).await;
    assert_eq!(engine.turn("s1", "idle-1").await.outcome, Outcome::Noop);
    assert_eq!(engine.session("s1").await.closed_at, None);
    engine.publish_job("s1", close("idle-2", engine.session("s1").await.last_seq)).await;
    engine.turn("s1", "idle-2").await;
    assert!(engine.session("s1").await.closed_at.is_some());
}
