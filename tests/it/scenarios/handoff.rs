//! Handing a conversation to a human and releasing it: further actions of a decision, other agents, attachments.

use super::{answer, engine, on_both_backends, sales_with};
use crate::support::engine::{Backend, DEADLINE, Engine, scripted, statuses};
use crate::support::eventually;
use crate::support::script::{Answer, ScriptedModel, action, decision, plan};
use base::config;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use types::event::ReplyKind::{Apology, Handoff};
use types::outcome::Outcome;
use types::session::Status::{Acknowledged, Cancelled, Processing, Ready, Transferred, Typing};

on_both_backends!(
    an_action_of_a_transfer_is_executed_after_the_response,
    the_desk_gets_summary_user_channel_and_all_merged_words,
    a_message_for_another_agent_takes_the_conversation_from_the_human,
    a_hold_ends_when_its_agent_holds_no_more,
    attachments_reach_the_desk_and_the_model_s_prompt,
    a_model_that_sees_is_shown_the_pictures_of_the_message,
    a_failed_handoff_of_a_timer_is_told_to_the_user,
);

fn desk() -> Value {
    json!({"http": {"method": "POST", "url": "{api}/desk"}})
}

async fn an_action_of_a_transfer_is_executed_after_the_response(backend: Backend) {
    let transfer = |kind: &str, target: &str, params: Value| {
        decision("transferred", action(kind, target, &params), json!("正在为您转接"))
    };
    let rest = vec![
        transfer("SYSTEM", "update_profile", json!({"phone": "13800138000"})),
        transfer("SKILL", "query_order", json!({"order_id": "A1"})),
        transfer("SYSTEM", "close_conversation", json!({})),
    ];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "换号码了，转人工").await;
    assert_eq!(turn.outcome, Outcome::Transferred);
    assert_eq!(statuses(&turn), [Processing, Transferred, Ready]);
    assert_eq!(engine.session("s1").await.profile["phone"], "13800138000");
    assert_eq!(turn.actions, ["update_profile"]);

    let turn = engine.say("s1", "m-3", "查订单，转人工").await;
    assert_eq!((turn.outcome, engine.api.calls("/orders/A1").len()), (Outcome::Transferred, 1));
    let said = engine.replies("s1").await.pop().unwrap();
    assert!(said.kind == Handoff && said.at <= engine.api.calls("/orders/A1")[0].at, "the response comes first");

    engine.say("s1", "m-4", "转人工，再见").await;
    assert!(engine.session("s1").await.closed_at.is_some());
    assert_eq!(engine.api.calls("/desk").len(), 3, "the desk gets every handoff");
}

async fn the_desk_gets_summary_user_channel_and_all_merged_words(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    engine.apply(sales_with(&json!({"double_text": "merge", "handoff": desk()}))).await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    engine.model.script(move |asked| {
        let first = plan(json!(null), &answer("一"));
        let summary = action("SYSTEM", "handoff", &json!({"summary": "用户要退款"}));
        let then = decision("transferred", summary, json!("正在为您转接"));
        if asked.index == 0 { Answer::json(&first).gated(&held) } else { Answer::json(&then) }
    });
    engine.publish("s1", "m-1", "第一").await;
    eventually(DEADLINE, "the model is asked", || async { !engine.model.asked().is_empty() }).await;
    engine.publish("s1", "m-2", "第二").await;
    engine.publish("s1", "m-3", "第三").await;
    gate.add_permits(1);
    engine.turn("s1", "m-2").await;
    let handoff = &engine.api.calls("/desk")[0].body;
    assert_eq!((&handoff["event"], &handoff["text"]), (&json!("handoff"), &json!("第二\n第三")));
    assert_eq!((&handoff["user_id"], &handoff["channel"]), (&json!("u1"), &json!("web")));
    assert_eq!((&handoff["session_id"], &handoff["job_id"]), (&json!("s1"), &json!("m-2")));
    assert_eq!(handoff["summary"], "用户要退款");
    engine.say("s1", "m-4", "有人吗").await;
    let message = &engine.api.calls("/desk")[1].body;
    assert_eq!((&message["event"], &message["text"]), (&json!("message"), &json!("有人吗")));
    assert_eq!((&message["summary"], &message["user_id"]), (&json!("用户要退款"), &json!("u1")));
}

/// A session of agent `sales` that a human has taken over.
async fn held(backend: Backend) -> Engine {
    let first = decision("transferred", Value::Null, json!("正在为您转接"));
    let engine = engine(backend, first, vec![plan(json!("您好，我是二号"), &answer("我在"))]).await;
    engine.apply(sales_with(&json!({"handoff": desk()}))).await;
    let turn = engine.say("s1", "m-1", "转人工").await;
    assert_eq!(turn.statuses.last().unwrap().status, Transferred);
    engine
}

async fn a_message_for_another_agent_takes_the_conversation_from_the_human(backend: Backend) {
    let engine = held(backend).await;
    engine.apply(sales_with(&json!({"id": "second", "greeting": "您好，我是二号", "handoff": desk()}))).await;
    let job =
        json!({"type": "user_message", "session_id": "s1", "agent_id": "second", "job_id": "m-2", "text": "有人吗"});
    engine.publish_job("s1", job).await;
    let turn = engine.turn("s1", "m-2").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    assert_eq!(statuses(&turn), [Acknowledged, Processing, Typing, Ready]);
    assert_eq!(engine.api.calls("/desk").len(), 1, "nothing is forwarded");
    let session = engine.session("s1").await;
    assert!(session.handoff.is_none() && session.timers.is_empty() && session.agent_id == "second");
    assert_eq!(engine.said("s1").await.last().unwrap().1, "我在");
}

async fn a_hold_ends_when_its_agent_holds_no_more(backend: Backend) {
    let engine = held(backend).await;
    engine.apply(sales_with(&json!({"handoff": {}}))).await;
    let turn = engine.say("s1", "m-2", "有人吗").await;
    assert_eq!((turn.outcome, engine.api.calls("/desk").len()), (Outcome::Answered, 1));
    assert_eq!(engine.said("s1").await.last().unwrap().1, "我在");
}

async fn attachments_reach_the_desk_and_the_model_s_prompt(backend: Backend) {
    let engine =
        engine(backend, answer("看到了"), vec![answer("好的"), decision("transferred", Value::Null, json!("转接"))])
            .await;
    let attached = |job_id: &str, text: &str| {
        let attachments = json!([{"type": "image", "url": "https://x.example/cat.png"}, {"type": "file", "url": "https://x.example/a.pdf"}]);
        json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": job_id, "text": text, "attachments": attachments})
    };
    let names = "[image] https://x.example/cat.png\n[file] https://x.example/a.pdf";
    engine.publish_job("s1", attached("m-1", "")).await;
    engine.turn("s1", "m-1").await;
    let asked = &engine.model.asked()[0];
    assert_eq!(asked.user, names, "a message without text is still a message");
    assert!(asked.system.contains("[image] https://x.example/cat.png"));
    engine.say("s1", "m-2", "看到什么？").await;
    let asked = &engine.model.asked()[1].system;
    assert!(asked.contains("User: [image] https://x.example/cat.png\n    [file] https://x.example/a.pdf"), "{asked}");
    engine.publish_job("s1", attached("m-3", "转人工")).await;
    engine.turn("s1", "m-3").await;
    let packet = &engine.api.calls("/desk")[0].body;
    assert_eq!(packet["text"], format!("转人工\n{names}"));
    assert_eq!(packet["attachments"][0]["url"], "https://x.example/cat.png");
}

async fn a_model_that_sees_is_shown_the_pictures_of_the_message(mut backend: Backend) {
    let model = ScriptedModel::answering(vec![plan(json!(null), &answer("一只猫")), answer("好的")]).await;
    let seeing = config::Model { vision: true, ..scripted(&model) };
    backend.settings.models.insert("seeing".into(), seeing);
    let engine = Engine::start(backend, model, 1).await;
    engine.apply(sales_with(&json!({"model": "seeing"}))).await;
    let attachments = json!([{"type": "file", "url": "https://x.example/a.pdf"}, {"type": "image", "url": "https://x.example/cat.png"}]);
    let job = json!({"type": "user_message", "session_id": "s1", "agent_id": "sales", "job_id": "m-1", "text": "这是什么？", "attachments": attachments});
    engine.publish_job("s1", job).await;
    engine.turn("s1", "m-1").await;
    engine.say("s1", "m-2", "多大了？").await;
    let asked = engine.model.asked();
    assert_eq!(asked[0].images, ["https://x.example/cat.png"]);
    assert!(asked[0].user.starts_with("这是什么？\n[file] https://x.example/a.pdf"), "{}", asked[0].user);
    assert!(asked[1].images.is_empty(), "earlier pictures appear only as addresses in the conversation");
}

async fn a_failed_handoff_of_a_timer_is_told_to_the_user(backend: Backend) {
    let engine = engine(backend, answer("您好"), vec![]).await;
    let action = json!({"type": "SYSTEM", "target": "handoff", "params": {}});
    let timers = json!([{"name": "escalate", "delay": "500ms", "action": action}]);
    engine.apply(sales_with(&json!({"timers": timers, "handoff": desk()}))).await;
    engine.api.script(|_, _| (403, json!({})));
    engine.say("s1", "m-1", "你好").await;
    eventually(DEADLINE, "the handoff has failed", || async {
        engine.session("s1").await.workflow_state.status == Cancelled
    })
    .await;
    let said = eventually(DEADLINE, "the user gets a reply", || async {
        engine.said("s1").await.into_iter().find(|(kind, _)| *kind == Apology)
    })
    .await;
    assert!(said.1.contains("没有办成"), "{said:?}");
}
