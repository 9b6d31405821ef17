//! Tests of an agent: the real engine in memory, with a scripted model or with the agent's own rules.

use super::{flow, tool};
use serde_json::json;
use std::time::Duration;
use turnwheel::events::ReplyKind;
use turnwheel::testing::{self, Script, act, say};

fn shop() -> testing::TestEngineBuilder {
    testing::TestEngine::builder().agent(tool::AGENT).skill("order_status", tool::order_status).tool("eta", tool::eta)
}

#[tokio::test]
async fn the_rules_answer_without_a_model() {
    let mut engine = shop().flow("refund", flow::refund).start().await;
    let answer = engine.say("s1", "Where is B1001?").await;
    assert_eq!(answer.texts(), ["Hello, this is Robin from the bookshop.", "The Dispossessed is in Leipzig."]);
    let answer = engine.say("s1", "I want a refund for B1001").await;
    assert_eq!(answer.question(), Some("Shall I pay 12.90 euros for B1001 back to you?"));
    let answer = engine.say("s1", "Yes, please").await;
    assert_eq!(answer.of_kind(ReplyKind::Final), Some("Then all stays as it is."), "only the choice itself is a yes");
}

#[tokio::test]
async fn a_flow_asks_before_it_pays() {
    let mut engine = shop().flow("refund", flow::refund).start().await;
    let asked = engine.say("s1", "I want a refund for B1001").await;
    assert!(asked.question().is_some(), "{asked:?}");
    assert_eq!(engine.session("s1").await.waiting.unwrap().flow, "refund");
    assert!(engine.say("s1", "YES.").await.text().starts_with("12.90 euros are on their way"));
    engine.say("s1", "I want a refund for B1001").await;
    engine.say("s1", "cancel").await;
    assert!(engine.session("s1").await.waiting.is_none(), "the user can leave the flow");
}

#[tokio::test]
async fn the_model_sees_the_schema_of_a_function_and_what_it_answered() {
    let model = Script::answers([
        act("SKILL", "order_status", json!({"number": 5})),
        act("SKILL", "order_status", json!({"order": "B1002"})),
        say("三体 is in 上海."),
    ]);
    let mut engine = shop().flow("refund", flow::refund).model(&model).start().await;
    assert_eq!(engine.say("s1", "where is my book, B1002?").await.text(), "三体 is in 上海.");
    let asked = model.asked();
    assert!(asked[0].prompt.contains("The order's number, such as B1001."), "{}", asked[0].prompt);
    let (_, refused) = asked[1].last_action.as_ref().unwrap();
    assert!(refused["error"].as_str().unwrap().contains("\"order\" is a required property"), "{refused}");
    let (_, result) = asked[2].last_action.as_ref().unwrap();
    assert_eq!(result["result"]["city"], "上海");
    assert_eq!(model.left(), 0);
}

#[tokio::test]
async fn its_timer_asks_once_more() {
    let mut engine = shop().flow("refund", flow::refund).timers_after(Duration::from_millis(50)).start().await;
    engine.say("s1", "hello").await;
    assert_eq!(engine.timer("s1", "anything_else").await.text(), "Is there anything else?");
    assert!(engine.session("s1").await.timers.is_empty());
}
