//! Scenarios S-01 to S-07: planning, greeting, decisions, actions.

use super::{acts, answer, engine, on_both_backends, sales, sales_with};
use crate::support::engine::{Backend, statuses};
use crate::support::script::{action, decision, plan};
use serde_json::{Value, json};
use types::canonical;
use types::event::ReplyKind::{Final, Greeting, Handoff, Interim, Response};
use types::outcome::Outcome;
use types::session::Status::{Acknowledged, Processing, Ready, Transferred, Typing};

on_both_backends!(
    s01_first_message_is_planned_greeted_and_answered_with_one_model_call,
    s02_known_configuration_is_neither_planned_nor_greeted_again,
    s03_changed_sop_is_planned_and_greeted_anew_and_key_order_is_no_change,
    s04_skill_then_tool_then_answer,
    s05_goodbye_closes_silently_and_the_next_message_reopens,
    s06_handoff_says_so_before_it_calls_the_desk,
    s07_profile_update_is_silent_towards_the_model,
    s08_flow_takes_the_turn_over,
    interim_message_goes_out_before_its_action,
    an_action_is_executed_before_the_reply_it_comes_with,
    failed_action_is_told_to_the_model_as_it_is,
);

async fn s01_first_message_is_planned_greeted_and_answered_with_one_model_call(backend: Backend) {
    let engine = engine(backend, answer("好的，请问您想试驾哪款车？"), vec![]).await;
    let turn = engine.say("s1", "m-1", "你好，我想预约试驾").await;

    assert_eq!(statuses(&turn), [Acknowledged, Processing, Typing, Ready]);
    assert_eq!(turn.outcome, Outcome::Answered);
    let said = engine.said("s1").await;
    assert_eq!(said, [(Greeting, "您好，我是小智".into()), (Response, "好的，请问您想试驾哪款车？".into())]);
    assert_eq!(engine.replies("s1").await[1].reply_id, "s1/m-1/0/respond");
    assert_eq!(engine.model.asked().len(), 1);
    let session = engine.session("s1").await;
    assert!(!session.workflow_state.need_greeting);
    assert_eq!(session.workflow_state.status, Ready);
    assert_eq!(session.workflow_state.hash.len(), 32);
    let cached = engine.store.plan("sales", &session.workflow_state.hash).await.unwrap().expect("the plan is cached");
    assert_eq!(cached.skills[0].id, "query_order", "skills come from the configuration");
    let texts: Vec<_> = session.history.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["你好，我想预约试驾", "您好，我是小智", "好的，请问您想试驾哪款车？"]);
}

async fn s02_known_configuration_is_neither_planned_nor_greeted_again(backend: Backend) {
    let engine = engine(backend, answer("请问哪天？"), vec![answer("可以的。")]).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "周六上午可以吗？").await;

    assert_eq!(statuses(&turn), [Processing, Typing, Ready]);
    assert_eq!(engine.said("s1").await.len(), 3, "a greeting and two replies");
    let second = &engine.model.asked()[1];
    assert_eq!(second.schema, "decision");
    assert!(second.system.contains("您好，我是小智"), "the prompt contains the greeting");

    let other = engine.say("s2", "m-1", "你好").await;
    assert_eq!(statuses(&other), [Acknowledged, Processing, Typing, Ready]);
    assert_eq!(engine.model.asked()[2].schema, "decision", "the cached plan serves the second session");
    assert_eq!(engine.said("s2").await[0].0, Greeting);
}

async fn s03_changed_sop_is_planned_and_greeted_anew_and_key_order_is_no_change(backend: Backend) {
    let engine =
        engine(backend, answer("一"), vec![answer("二"), plan(json!("您好，我是新小智"), &answer("三"))]).await;
    engine.say("s1", "m-1", "你好").await;
    let before = engine.session("s1").await.workflow_state.hash;

    // The same fields in another order.
    let reordered: Vec<_> = sales().as_object().unwrap().clone().into_iter().rev().collect();
    let reordered = Value::Object(reordered.into_iter().collect());
    assert_eq!(canonical::hash(&reordered), canonical::hash(&sales()));
    engine.apply(reordered).await;
    let same = engine.say("s1", "m-2", "在吗").await;
    assert_eq!(statuses(&same), [Processing, Typing, Ready]);

    engine.apply(sales_with(&json!({"sop": "先推荐，再回答。"}))).await;
    let changed = engine.say("s1", "m-3", "还在吗").await;
    assert_eq!(statuses(&changed), [Acknowledged, Processing, Typing, Ready]);
    let after = engine.session("s1").await.workflow_state.hash;
    assert_ne!(before, after);
    assert!(engine.store.plan("sales", &before).await.unwrap().is_some());
    assert!(engine.store.plan("sales", &after).await.unwrap().is_some());
    let greetings = engine.said("s1").await.into_iter().filter(|(kind, _)| *kind == Greeting).count();
    assert_eq!(greetings, 2);
}

async fn s04_skill_then_tool_then_answer(backend: Backend) {
    let rest = vec![
        acts("processing", "SKILL", "query_order", &json!({"order_id": "A1001"})),
        acts("processing", "TOOL", "eta", &json!({"order_id": "A1001"})),
        answer("您的订单已发货，预计2天到。"),
    ];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.api.script(|path, _| match path {
        path if path.starts_with("/orders/") => (200, json!({"status": "已发货"})),
        _ => (200, json!({"days": 2})),
    });
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "查一下订单 A1001 的物流并告诉我几天到").await;

    assert_eq!(statuses(&turn), [Processing, Typing, Ready]);
    let (order, eta) = (&engine.api.calls("/orders/A1001")[0], &engine.api.calls("/eta?order_id=A1001")[0]);
    assert!(order.ended.unwrap() <= eta.began, "actions run one after the other");
    assert_eq!(order.idempotency_key, "s1/m-2/0/act");
    assert!(engine.model.asked()[2].system.contains("已发货"), "the second prompt has the first result");
    assert_eq!(engine.said("s1").await.last().unwrap().1, "您的订单已发货，预计2天到。");
    let steps = engine.store.steps("s1", "m-2").await.unwrap();
    let decided = steps.iter().find(|step| step.key == "0/decide").expect("recorded");
    assert_eq!(decided.model.as_deref(), Some("scripted-1"));
    assert_eq!(decided.tokens.unwrap().prompt, 11);
}

async fn s05_goodbye_closes_silently_and_the_next_message_reopens(backend: Backend) {
    let rest = vec![acts("ready", "SYSTEM", "close_conversation", &json!({})), answer("欢迎回来")];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.apply(sales_with(&json!({"timers": [{"name": "follow_up", "delay": "1h", "message": "还在吗？"}]}))).await;
    engine.say("s1", "m-1", "你好").await;
    assert_eq!(engine.session("s1").await.timers.len(), 1);
    let before = engine.said("s1").await.len();

    let turn = engine.say("s1", "m-2", "再见").await;
    assert_eq!(statuses(&turn), [Processing, Ready]);
    assert_eq!(turn.outcome, Outcome::Silent);
    let session = engine.session("s1").await;
    assert!(session.closed_at.is_some());
    assert!(session.timers.is_empty(), "pending timers are cancelled and none is armed");
    assert_eq!(engine.said("s1").await.len(), before, "no reply");
    assert_eq!(session.history.last().unwrap().text, "再见");

    engine.say("s1", "m-3", "我又来了").await;
    let session = engine.session("s1").await;
    assert!(session.closed_at.is_none());
    assert!(
        !engine.model.asked().last().unwrap().system.contains("close_conversation\","),
        "the prompt does not contain the silent action"
    );
    assert_eq!(engine.said("s1").await.len(), before + 1, "no second greeting");
}

async fn s06_handoff_says_so_before_it_calls_the_desk(backend: Backend) {
    let first = decision("transferred", action("SYSTEM", "handoff", &json!({})), json!("正在为您转接人工客服"));
    let engine = engine(backend, first, vec![]).await;
    engine.apply(sales_with(&json!({"timers": [{"name": "follow_up", "delay": "1h", "message": "还在吗？"}]}))).await;
    let turn = engine.say("s1", "m-1", "转人工").await;

    assert_eq!(statuses(&turn), [Acknowledged, Processing, Transferred, Ready]);
    assert_eq!(turn.outcome, Outcome::Transferred);
    let said = engine.said("s1").await;
    assert_eq!(said, [(Greeting, "您好，我是小智".into()), (Handoff, "正在为您转接人工客服".into())]);
    let desk = engine.api.calls("/desk");
    assert_eq!(desk.len(), 1);
    assert_eq!(desk[0].body["event"], "handoff");
    assert_eq!(desk[0].body["text"], "转人工");
    let heard: Vec<_> = desk[0].body["history"].as_array().unwrap().iter().map(|entry| entry["text"].clone()).collect();
    assert!(heard.contains(&json!("正在为您转接人工客服")), "the response was published before the call: {heard:?}");
    assert!(engine.session("s1").await.timers.is_empty());
}

async fn s07_profile_update_is_silent_towards_the_model(backend: Backend) {
    let rest = vec![
        acts("processing", "SYSTEM", "update_profile", &json!({"phone": "13800138000"})),
        answer("我们晚上九点关门。"),
    ];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.say("s1", "m-1", "你好").await;
    engine.say("s1", "m-2", "我换号码了，新号码13800138000，另外你们几点关门？").await;

    assert_eq!(engine.session("s1").await.profile["phone"], "13800138000");
    let (asked, next) = (&engine.model.asked()[1].system, &engine.model.asked()[2].system);
    assert_eq!(asked, next, "the next prompt does not contain the silent action");
    assert_eq!(engine.said("s1").await.last().unwrap().1, "我们晚上九点关门。");
}

async fn s08_flow_takes_the_turn_over(backend: Backend) {
    let flow = acts("processing", "FLOW", "parallel_analysis", &json!({}));
    let engine = engine(backend, answer("您好"), vec![flow, json!("要点")]).await;
    engine.apply(sales_with(&json!({"timers": [{"name": "follow_up", "delay": "1h", "message": "还在吗？"}]}))).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "分析一下这个项目").await;

    assert_eq!(turn.outcome, Outcome::Flow);
    assert_eq!(statuses(&turn), [Processing, Ready]);
    let said = engine.said("s1").await;
    let (kind, text) = said.last().unwrap();
    assert_eq!(*kind, Final);
    assert!(text.contains("## 技术分析") && text.contains("## 风险评估"), "{text}");
    assert_eq!(engine.model.asked().len(), 1 + 1 + 3, "plan, decision, three branches, and no response after the flow");
    assert!(engine.session("s1").await.timers.is_empty(), "a flow arms no timers");
}

async fn interim_message_goes_out_before_its_action(backend: Backend) {
    let first = decision("processing", action("TOOL", "eta", &json!({"order_id": "A1"})), json!("请稍等，正在查询"));
    let engine = engine(backend, first, vec![answer("两天")]).await;
    engine.say("s1", "m-1", "几天到").await;
    let kinds: Vec<_> = engine.said("s1").await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Greeting, Interim, Response]);
}

async fn an_action_is_executed_before_the_reply_it_comes_with(backend: Backend) {
    let with = |status: &str, kind: &str, target: &str, params: Value| {
        decision(status, action(kind, target, &params), json!("记下了"))
    };
    let rest = vec![
        with("typing", "SYSTEM", "update_profile", json!({"phone": "1"})),
        with("typing", "TOOL", "log_followup", json!({})),
    ];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "号码 1").await;
    assert_eq!((turn.outcome, turn.actions), (Outcome::Answered, vec!["update_profile".to_owned()]));
    assert_eq!(engine.session("s1").await.profile["phone"], "1");
    let turn = engine.say("s1", "m-3", "回访").await;
    assert_eq!(turn.outcome, Outcome::Answered);
    let reply = engine.replies("s1").await.pop().unwrap();
    assert!(reply.text == "记下了" && engine.api.calls("/followups")[0].at <= reply.at);
    assert_eq!(engine.model.asked().len(), 3, "no decision follows an action with a reply");
}

async fn failed_action_is_told_to_the_model_as_it_is(backend: Backend) {
    let rest = vec![
        acts("processing", "SKILL", "query_order", &json!({})),
        acts("processing", "SKILL", "no_such_skill", &json!({})),
        acts("processing", "SKILL", "query_order", &json!({"order_id": "X"})),
        answer("没有找到这个订单"),
    ];
    let engine = engine(backend, answer("您好"), rest).await;
    engine.api.script(|_, _| (404, json!({"error": "no such order"})));
    engine.say("s1", "m-1", "你好").await;
    let turn = engine.say("s1", "m-2", "查订单").await;

    assert_eq!(turn.outcome, Outcome::Answered);
    let asked = engine.model.asked();
    assert!(asked[2].system.contains("order_id"), "the model gets the errors of the params");
    assert!(asked[3].system.contains("there is no skill `no_such_skill`"));
    assert!(asked[4].system.contains("no such order") && asked[4].system.contains("404"));
    assert_eq!(engine.api.calls("/orders/").len(), 1, "a 404 is not retried");
}
