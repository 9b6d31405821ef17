//! The agent files that come with the program.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use turnwheel::agent::load;
use turnwheel::agent::validate::{Context, Report, validate};
use turnwheel::model::offline::Offline;
use turnwheel::model::{Facts, Model, ModelRequest, ResponseSchema};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("agents")
}

#[test]
fn every_agent_file_has_neither_errors_nor_warnings() {
    let loaded = load::read_path(&folder());
    assert!(!loaded.is_empty());
    for (path, agent) in loaded {
        let agent = agent.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let flows = ["parallel_analysis".to_owned()];
        let context = Context { known_flows: Some(&flows), ..Context::default() };
        let report = validate(&agent.config, &agent.document, context);
        assert_eq!(report, Report::default(), "{}:\n{report}", path.display());
    }
}

#[test]
fn the_starter_agent_is_compiled_in_and_calls_the_demo_api() {
    let (_, starter) = load::builtin().into_iter().find(|(path, _)| path.ends_with("agents/sales.yaml")).unwrap();
    let starter = starter.unwrap();
    let file = load::file(&folder().join("sales.yaml")).unwrap();
    assert_eq!(starter.hash, file.hash);
    assert_eq!((starter.id(), starter.config.name.as_str()), ("sales", "小智"));
    let base = format!("http://127.0.0.1:{}/", turnwheel::demo::PORT);
    let skills = starter.config.skills.iter().filter_map(|skill| skill.http.as_ref());
    let tools = starter.config.tools.iter().filter_map(|tool| tool.http.as_ref());
    for call in skills.chain(tools).chain(&starter.config.handoff.http) {
        assert!(call.url.starts_with(&base), "{}", call.url);
    }
}

/// What the offline model decides for the starter agent, in short: status, target and response.
async fn decides(message: &str, last: Option<(&str, Value)>) -> (String, String, Value) {
    let path = folder().join("sales.yaml");
    let facts = Facts {
        agent: Some(load::file(&path).unwrap().config),
        message: message.into(),
        last_action: last.map(|(target, result)| (target.into(), result)),
        plan: false,
    };
    let schema = ResponseSchema { name: "decision".into(), strict: false, schema: json!({}).into() };
    let request =
        ModelRequest { messages: Vec::new().into(), schema: Some(schema), idempotency_key: String::new(), facts };
    let reply = Offline::new().complete(request).await.unwrap();
    let decision: Value = serde_json::from_str(&reply.content).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&decision["next_status"]), text(&decision["action"]["target"]), decision)
}

#[tokio::test]
async fn the_starter_agent_answers_by_its_rules_in_chinese_and_english() {
    for (message, status, target) in [
        ("你好", "typing", ""),
        ("hi there", "typing", ""),
        ("查一下订单 A1001 的物流并告诉我几天到", "processing", "query_order"),
        ("订单A1001的物流到哪了", "processing", "query_order"),
        ("where is my order a1002?", "processing", "query_order"),
        ("我想查物流", "typing", ""),
        ("想预约试驾", "typing", ""),
        ("预约周六试驾，手机 13800138000", "processing", "book_test_drive"),
        ("我想约新车试驾，手机 13800138000", "processing", "book_test_drive"),
        ("你们几点关门？", "typing", ""),
        ("我换号码了，新号码13800138000，另外你们几点关门？", "typing", "update_profile"),
        ("我换手机号了：13800138000", "ready", "update_profile"),
        ("my new phone number is 13800138000", "ready", "update_profile"),
        ("今天几号", "processing", "now"),
        ("转人工", "transferred", "handoff"),
        ("I want to talk to a human", "transferred", "handoff"),
        ("再见", "ready", "close_conversation"),
        ("Bye!", "ready", "close_conversation"),
        ("帮我分析一下新能源市场", "processing", "parallel_analysis"),
        ("嗯", "typing", ""),
    ] {
        let (found, action, decision) = decides(message, None).await;
        assert_eq!((found.as_str(), action.as_str()), (status, target), "{message}: {decision}");
    }
    let (_, _, decision) = decides("我换号码了，新号码13800138000，另外你们几点关门？", None).await;
    assert_eq!(decision["action"]["params"]["phone"], "13800138000");
    assert!(decision["response"].as_str().unwrap().contains("18:00"), "{decision}");
}

#[tokio::test]
async fn the_starter_agent_goes_from_the_order_to_its_delivery() {
    let message = "查一下订单 A1001 的物流并告诉我几天到";
    let order = json!({"ok": true, "result": {"order_id": "A1001", "summary": "已发货"}});
    let (status, target, decision) = decides(message, Some(("query_order", order.clone()))).await;
    assert_eq!((status.as_str(), target.as_str()), ("processing", "eta"));
    assert_eq!(decision["action"]["params"], json!({"order_id": "A1001"}));
    let both = json!({"ok": true, "result": {"summary": "已发货，预计还有 2 天送到"}});
    let (status, target, decision) = decides(message, Some(("eta", both))).await;
    assert_eq!((status.as_str(), target.as_str()), ("typing", ""));
    assert_eq!(decision["response"], "为您查到：已发货，预计还有 2 天送到");

    let (status, _, decision) = decides("订单 A1001 到哪了", Some(("query_order", order))).await;
    assert_eq!((status.as_str(), &decision["response"]), ("typing", &json!("为您查到：已发货")));
    let failed = json!({"ok": false, "error": "HTTP 404"});
    let (_, _, decision) = decides("订单 X9 到哪了", Some(("query_order", failed))).await;
    assert!(decision["response"].as_str().unwrap().contains("HTTP 404"), "{decision}");
    assert_eq!(decides("", Some(("log_followup", json!({"ok": true})))).await.0, "ready");
}
