//! Takeovers: a human takes a conversation from the agent, and hands it back with a note.

use super::{claim, handoff, history_of_changes, post, reply};
use crate::gateway::Gateway;
use crate::scenarios::{answer, engine, on_both_backends, sales, sales_with};
use crate::support::api;
use crate::support::engine::{Backend, DEADLINE, Engine, statuses};
use crate::support::eventually;
use crate::support::script::{Answer, action, decision};
use serde_json::{Value, json};
use types::event::{HandoffChange, ReplyKind};
use types::outcome::Outcome;
use types::session::Status::{self, Cancelled, Processing, Ready, Transferred};

on_both_backends!(
    a_takeover_ends_the_running_turn_and_the_agent_says_nothing_more,
    the_model_is_told_what_the_human_said_and_the_note,
    a_decided_reply_that_was_not_sent_is_held,
    a_takeover_ends_timers_and_reopens_a_closed_conversation,
    a_conversation_of_the_agent_is_claimed_only_by_a_takeover,
    a_takeover_does_not_interrupt_the_message_to_a_human,
    a_claimed_conversation_stays_with_its_person,
);

/// An engine that has greeted in `s1`, and whose model does not respond to `慢`.
async fn hanging(backend: Backend) -> Engine {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.say("s1", "m-1", "你好").await;
    engine.model.script(|asked| match asked.user.as_str() {
        "慢" => Answer::Hang,
        _ => Answer::json(&answer("好的")),
    });
    engine
}

/// Sends `慢`, and returns when the model is asked.
async fn model_hangs(engine: &Engine) {
    engine.publish("s1", "m-2", "慢").await;
    eventually(DEADLINE, "the model is asked", || async {
        engine.model.asked().iter().any(|asked| asked.user == "慢")
    })
    .await;
}

/// Number of the agent's texts: the ones that are not of a human.
async fn texts_of_agent(engine: &Engine) -> usize {
    engine.replies("s1").await.iter().filter(|reply| !reply.metadata.contains_key("by")).count()
}

async fn a_takeover_ends_the_running_turn_and_the_agent_says_nothing_more(backend: Backend) {
    let engine = hanging(backend).await;
    // On a cluster the command may wake either worker.
    engine.start_worker();
    let gateway = Gateway::of(&engine).await;
    model_hangs(&engine).await;
    let said = texts_of_agent(&engine).await;
    engine.publish("s1", "m-3", "在吗").await;
    // The model's own timeout is longer than this wait.
    let taken = claim(&gateway, json!({"by": "li", "take_over": true, "reason": "投诉"})).await;
    assert_eq!((taken.taken_over, taken.claim.unwrap().by.as_str()), (true, "li"));
    assert_eq!((taken.unread, taken.waiting_since), (2, Some(taken.since)));
    assert!(taken.summary.contains("User: 在吗"), "{}", taken.summary);
    for job_id in ["m-2", "m-3"] {
        let turn = engine.turn("s1", job_id).await;
        let ended = (turn.outcome, turn.reason.as_deref(), turn.statuses.last().map(|last| last.status));
        assert_eq!(ended, (Outcome::Cancelled, Some("taken_over: li: 投诉"), Some(Cancelled)), "{turn:?}");
    }
    let turn = engine.turn("s1", &taken.turn_id).await;
    assert_eq!((turn.outcome, statuses(&turn)), (Outcome::Transferred, vec![Processing, Transferred]));

    assert_eq!(engine.say("s1", "m-4", "喂").await.outcome, Outcome::Transferred);
    reply(&engine, &gateway, "li", "我是李雷").await;
    assert_eq!(texts_of_agent(&engine).await, said, "no apology and no answer");
    assert_eq!(engine.replies("s1").await.last().unwrap().text, "我是李雷");
    assert!(engine.api.calls("/desk").is_empty(), "the desk knows nothing of this conversation");
    let expected = [(HandoffChange::Opened, "li"), (HandoffChange::Claimed, "li")];
    assert_eq!(history_of_changes(&engine).await, expected.map(|(change, by)| (change, Some(by.to_owned()))));
    assert!(engine.dead_letters().await.is_empty());
}

async fn the_model_is_told_what_the_human_said_and_the_note(backend: Backend) {
    let engine = hanging(backend).await;
    let gateway = Gateway::of(&engine).await;
    claim(&gateway, json!({"by": "li", "take_over": true})).await;
    engine.say("s1", "m-2", "我要退款").await;
    reply(&engine, &gateway, "li", "已经为您退款").await;
    let (status, released) = post(&gateway, "release", json!({"note": "退款单号 R-7，不要再退", "by": "li"})).await;
    assert_eq!(status, 202);
    let turn = engine.turn("s1", released["job_id"].as_str().unwrap()).await;
    assert_eq!((turn.outcome, statuses(&turn)), (Outcome::Silent, vec![Ready]));
    let session = engine.session("s1").await;
    assert!(session.handoff.is_none() && session.timers.is_empty());

    assert_eq!(engine.say("s1", "m-3", "退款到哪了").await.outcome, Outcome::Answered);
    let prompt = engine.model.asked().pop().unwrap().system;
    let parts = ["User: 我要退款", "Human agent: 已经为您退款", "unseen by the user: 退款单号 R-7，不要再退"];
    let places: Vec<_> = parts.map(|part| prompt.find(part)).into();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {prompt}");
    assert!(engine.said("s1").await.iter().all(|(_, text)| !text.contains("R-7")), "the user does not get the note");
    let (change, by) = history_of_changes(&engine).await.pop().unwrap();
    assert_eq!((change, by.as_deref()), (HandoffChange::Released, Some("li")));
}

async fn a_decided_reply_that_was_not_sent_is_held(backend: Backend) {
    let engine = hanging(backend).await;
    let gateway = Gateway::of(&engine).await;
    engine.model.script(|_| {
        let asks = action("SKILL", "query_order", &json!({"order_id": "A1"}));
        Answer::json(&decision("typing", asks, json!("订单明天到")))
    });
    engine.api.script(|_, _| api::Answer::Hang);
    engine.publish("s1", "m-2", "查 A1").await;
    eventually(DEADLINE, "the action runs", || async { engine.api.calls("/orders").len() == 1 }).await;
    let taken = claim(&gateway, json!({"by": "li", "take_over": true})).await;
    assert_eq!(taken.held.iter().map(|held| held.text.as_str()).collect::<Vec<_>>(), ["订单明天到"]);
    assert_eq!(engine.turn("s1", "m-2").await.outcome, Outcome::Cancelled);
    assert!(engine.said("s1").await.iter().all(|(_, text)| text != "订单明天到"), "shown, and never sent");
    assert!(!json!(engine.session("s1").await.history).to_string().contains("订单明天到"));
}

async fn a_takeover_ends_timers_and_reopens_a_closed_conversation(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![answer("好的")]).await;
    let gateway = Gateway::of(&engine).await;
    let timers = json!([{"name": "follow_up", "delay": "1h", "message": "还在吗？"}]);
    engine.apply(sales_with(&json!({"timers": timers, "handoff": {"claim_timeout": "20m"}}))).await;
    engine.say("s1", "m-1", "你好").await;
    let before = engine.session("s1").await;
    assert_eq!(before.timers.len(), 1);
    let closed: Value = post(&gateway, "close", json!({})).await.1;
    engine.turn("s1", closed["job_id"].as_str().unwrap()).await;
    let taken = claim(&gateway, json!({"by": "li", "take_over": true})).await;
    assert_eq!(taken.unread, 0, "the agent has answered everything");
    let session = engine.session("s1").await;
    let names: Vec<&str> = session.timers.iter().map(|timer| timer.name.as_str()).collect();
    assert_eq!(names, ["handoff_timeout", "claim_timeout"]);
    assert!(session.closed_at.is_none() && session.timer_generation > before.timer_generation);
    let waits = session.handoff.unwrap().claim.unwrap();
    let length = waits.at.until(waits.until.unwrap());
    assert_eq!(length.as_secs(), 20 * 60);
    let cancelled: Value = post(&gateway, "cancel", json!({"by": "op"})).await.1;
    engine.turn("s1", cancelled["job_id"].as_str().unwrap()).await;
    assert!(engine.session("s1").await.handoff.is_none());
    let last = history_of_changes(&engine).await.pop().unwrap();
    assert_eq!(last, (HandoffChange::Released, Some("op".to_owned())));
}

async fn a_conversation_of_the_agent_is_claimed_only_by_a_takeover(backend: Backend) {
    let engine = hanging(backend).await;
    let gateway = Gateway::of(&engine).await;
    let (status, refused) = post(&gateway, "claim", json!({"by": "li"})).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("not_transferred")));
    // A claim that was accepted while the conversation was handed off, and is behind its release in the lane.
    let late = json!({"type": "control", "session_id": "s1", "job_id": "c-1", "command": "claim", "by": "li"});
    engine.publish_job("s1", late).await;
    assert_eq!(engine.turn("s1", "c-1").await.outcome, Outcome::Noop);
    assert_eq!(engine.session("s1").await.workflow_state.status, Status::Ready);
    assert_eq!(engine.say("s1", "m-2", "在吗").await.outcome, Outcome::Answered);
    assert!(history_of_changes(&engine).await.is_empty());
    let unknown = gateway.post("/api/v1/sessions/nobody/claim", &json!({"take_over": true})).await;
    assert_eq!(unknown.status(), 404);
}

/// While a human has the conversation, `take_over` finds nothing to interrupt: the message to the desk is not lost.
async fn a_takeover_does_not_interrupt_the_message_to_a_human(backend: Backend) {
    let transfer = decision("transferred", Value::Null, json!("正在为您转接"));
    let engine = engine(backend, transfer, vec![]).await;
    let mut agent = sales();
    agent["handoff"]["mode"] = "hold".into();
    engine.apply(agent).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "转人工").await;
    claim(&gateway, json!({"by": "li"})).await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = std::sync::Arc::clone(&gate);
    engine.api.script(move |_, _| api::Answer::Gated(std::sync::Arc::clone(&held), 200, json!({})));
    engine.publish("s1", "m-2", "有人吗").await;
    eventually(DEADLINE, "the desk is asked", || async { engine.api.calls("/desk").len() == 2 }).await;
    let refused = post(&gateway, "claim", json!({"by": "wang", "take_over": true}));
    let opened = async {
        eventually(DEADLINE, "the command is in the lane", || async {
            let last = engine.session("s1").await.last_seq;
            let message = engine.queue.next_in_lane("s1", last, 0).await.unwrap()?;
            engine.queue.next_in_lane("s1", message.seq, 0).await.unwrap()
        })
        .await;
        gate.add_permits(10);
    };
    let ((status, refused), ()) = futures::join!(refused, opened);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("claimed")));
    let turn = engine.turn("s1", "m-2").await;
    assert_eq!((turn.outcome, engine.api.calls("/desk").len()), (Outcome::Transferred, 2));
    assert_eq!(handoff(&engine).await.claim.unwrap().by, "li");
    let kinds: Vec<_> = engine.said("s1").await.into_iter().map(|(kind, _)| kind).collect();
    assert!(!kinds.contains(&ReplyKind::Apology), "{kinds:?}");
}

/// Neither a desk that fails nor a changed agent file gives a claimed conversation to the agent.
async fn a_claimed_conversation_stays_with_its_person(backend: Backend) {
    let transfer = decision("transferred", Value::Null, json!("正在为您转接"));
    let engine = engine(backend, transfer, vec![answer("在的")]).await;
    let mut agent = sales();
    agent["handoff"]["mode"] = "hold".into();
    agent["handoff"]["http"]["retries"] = 0.into();
    engine.apply(agent).await;
    let gateway = Gateway::of(&engine).await;
    engine.say("s1", "m-1", "转人工").await;
    claim(&gateway, json!({"by": "li"})).await;
    engine.api.script(|_, _| api::Answer::Now(400, json!({})));
    let said = texts_of_agent(&engine).await;
    assert_eq!(engine.say("s1", "m-2", "有人吗").await.outcome, Outcome::Transferred);
    engine.apply(sales_with(&json!({"handoff": {}}))).await;
    assert_eq!(engine.say("s1", "m-3", "喂").await.outcome, Outcome::Transferred);
    let kept = handoff(&engine).await;
    assert_eq!((kept.unread, kept.claim.unwrap().by.as_str()), (3, "li"));
    assert_eq!(texts_of_agent(&engine).await, said, "neither an apology nor an answer");
}
