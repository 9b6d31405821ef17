//! Checks of the agent files that come with the program.

use definitions::agent::load;
use definitions::agent::validate::{Context, validate};
use definitions::document::Report;
use engine::model::offline::Offline;
use engine::model::{Facts, Model, ModelRequest, ResponseSchema};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use types::agent::schema::schema;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("agents")
}

#[test]
fn every_agent_file_has_neither_errors_nor_warnings() {
    let loaded = load::read_paths(&[folder(), folder().join("tasks")]);
    assert_eq!(loaded.len(), load::builtin().len());
    for (path, agent) in loaded {
        let agent = agent.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let flows = ["parallel_analysis", "dynamic_ops"].map(str::to_owned);
        let context = Context { known_flows: Some(&flows), ..Context::default() };
        let report = validate(&agent.config, &agent.document, context);
        assert_eq!(report, Report::default(), "{}:\n{report}", path.display());
    }
}

#[test]
fn the_starter_agent_is_compiled_in_and_calls_the_demo_api() {
    let (_, starter) = load::starters().into_iter().find(|(path, _)| path.ends_with("agents/sales.yaml")).unwrap();
    let starter = starter.unwrap();
    let file = load::file(&folder().join("sales.yaml")).unwrap();
    assert_eq!(starter.hash, file.hash);
    assert_eq!((starter.id(), starter.config.name.as_str()), ("sales", "小智"));
    let base = format!("http://127.0.0.1:{}/", lab::demo::PORT);
    let skills = starter.config.skills.iter().filter_map(|skill| skill.http.as_ref());
    let tools = starter.config.tools.iter().filter_map(|tool| tool.http.as_ref());
    for call in skills.chain(tools).chain(&starter.config.handoff.http) {
        assert!(call.url.starts_with(&base), "{}", call.url);
    }
}

/// Decision of the offline model for `sales`: status, target and the whole decision.
async fn decides(message: &str, last: Option<(&str, Value)>) -> (String, String, Value) {
    of_agent("sales.yaml", message, last).await
}

/// Decision of the offline model for the agent of a file: status, target and the whole decision.
async fn of_agent(file: &str, message: &str, last: Option<(&str, Value)>) -> (String, String, Value) {
    let path = folder().join(file);
    let facts = Facts {
        agent: Some(load::file(&path).unwrap().config),
        message: message.into(),
        last_action: last.map(|(target, result)| Arc::new((target.into(), result))),
        ..Facts::default()
    };
    let schema = ResponseSchema { name: "decision".into(), strict: false, schema: json!({}).into() };
    let request = ModelRequest::new(Vec::new()).with_schema(schema).with_facts(facts);
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
    let failed = json!({"ok": false, "error": "HTTP 404 from http://10.0.0.1"});
    for target in ["query_order", "eta", "book_test_drive", "now"] {
        let (status, _, decision) = decides("订单 X9 几天到", Some((target, failed.clone()))).await;
        let response = decision["response"].as_str().unwrap();
        assert!(status == "typing" && response.contains("抱歉") && !response.contains("HTTP"), "{target}: {decision}");
    }
    for result in [json!({"ok": true}), failed] {
        assert_eq!(decides("", Some(("log_followup", result))).await.0, "ready");
    }
}

#[tokio::test]
async fn the_english_agent_answers_by_its_rules() {
    let support = async |message: &str, last| of_agent("support.yaml", message, last).await;
    for (message, status, target) in [
        ("Hi", "typing", ""),
        ("good evening, anybody there?", "typing", ""),
        ("Where is order A1001?", "processing", "track_router"),
        ("when does my router a1002 come", "processing", "track_router"),
        ("parcel SLOW-1 please", "processing", "track_router"),
        ("Where is my delivery?", "typing", ""),
        ("My internet is slow", "processing", "report_fault"),
        ("no connection since this morning", "processing", "report_fault"),
        ("the router is not working", "processing", "report_fault"),
        ("Please send an engineer on Friday, +44 7700 900123", "processing", "book_engineer"),
        ("I need a technician", "typing", ""),
        ("How much is Fibre 500?", "typing", ""),
        ("My new e-mail is ava@example.com", "ready", "update_profile"),
        ("my email changed to a.b@example.co.uk; and what does a plan cost?", "typing", "update_profile"),
        ("what time is it", "processing", "now"),
        ("I want to talk to a person", "transferred", "handoff"),
        ("I want to cancel my contract", "transferred", "handoff"),
        ("Bye!", "ready", "close_conversation"),
        ("see you", "ready", "close_conversation"),
        ("hm", "typing", ""),
        ("我的网络很慢", "typing", ""),
    ] {
        let (found, action, decision) = support(message, None).await;
        assert_eq!((found.as_str(), action.as_str()), (status, target), "{message}: {decision}");
    }
    let (_, _, decision) = support("Where is order a1001?", None).await;
    assert_eq!(decision["action"]["params"], json!({"order_id": "a1001"}));
    let (_, _, decision) = support("engineer please, call 0770 900 123", None).await;
    assert_eq!(decision["action"]["params"]["phone"], "0770 900 123");
    let (_, _, decision) = support("my email changed to a.b@example.co.uk; and what does a plan cost?", None).await;
    assert_eq!(decision["action"]["params"], json!({"email": "a.b@example.co.uk"}));
    assert!(decision["response"].as_str().unwrap().contains("39"), "{decision}");

    for (target, result, words) in [
        ("track_router", json!({"ok": true, "result": {"days": 2, "summary": "已发货"}}), "arrives: 2"),
        ("track_router", json!({"ok": false, "error": "HTTP 404"}), "check the number"),
        ("book_engineer", json!({"ok": false, "error": "HTTP 500"}), "does not answer right now"),
        ("book_engineer", json!({"ok": true, "result": {"booking_id": "TD-0001"}}), "TD-0001"),
        ("report_fault", json!({"ok": true, "result": {"followup_id": "F-0001"}}), "reference F-0001"),
        ("now", json!({"ok": true, "result": {"now": "2026-01-02T03:04:05.000Z"}}), "2026-01-02"),
    ] {
        let (status, action, decision) = support("My internet is slow", Some((target, result))).await;
        assert_eq!((status.as_str(), action.as_str()), ("typing", ""), "{target}: {decision}");
        let response = decision["response"].as_str().unwrap();
        assert!(
            response.contains(words) && !response.contains("已发货") && !response.contains("HTTP"),
            "{target}: {response}"
        );
    }
}

/// A task agent with one rule.
#[allow(clippy::needless_pass_by_value, reason = "as a test writes it")]
fn task_rule(decide: Value) -> Value {
    json!({"id": "a", "system_prompt": "x", "rules": [{"when": {"always": true}, "decide": decide}]})
}

#[test]
fn all_agents_fit_the_schema_and_a_wrong_one_does_not() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/embedding/shop.yaml");
    let agents = load::read_paths(&[folder(), folder().join("tasks"), examples]);
    assert_eq!(agents.len(), 31);
    for (path, agent) in agents {
        let errors: Vec<_> = schema.iter_errors(&agent.unwrap().document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
    }
    for right in [
        json!({"id": "a", "sop": "x"}),
        json!({"id": "客服", "system_prompt": "x", "updated_at": 5}),
        json!({"id": "a", "sop": "x", "greeting": null, "timers": [{"delay": 90, "message": "在吗", "action": null}]}),
        json!({"id": "a", "sop": "x", "skills": [{"id": "s", "http": null}], "handoff": {"timeout": "2h", "mode": null}}),
        json!({"id": "a", "sop": "x", "tools": [{"id": "t", "http": {"method": "post", "url": "https://x", "retries": 0}}]}),
        task_rule(json!({"response": "x"})),
        task_rule(json!({"output": {"is_complete": true}})),
        task_rule(json!({"next_status": "typing", "action": {"type": "TOOL", "target": "t"}})),
    ] {
        assert!(
            schema.is_valid(&right),
            "{right}: {:?}",
            schema.iter_errors(&right).map(|e| e.to_string()).collect::<Vec<_>>()
        );
    }
    for wrong in [
        json!({"sop": "x"}),
        json!({"id": "a"}),
        json!({"id": "a.b", "sop": "x"}),
        json!({"id": "a", "sop": " "}),
        json!({"id": "a", "sop": "x", "greating": "hi"}),
        json!({"id": "a", "sop": "x", "max_iterations": 0}),
        json!({"id": "a", "sop": "x", "double_text": "both"}),
        json!({"id": "a", "sop": "x", "knowledge": {"files": [""]}}),
        json!({"id": "a", "sop": "x", "timers": [{"delay": "0s", "message": "x"}]}),
        json!({"id": "a", "sop": "x", "timers": [{"delay": "5 years", "message": "x"}]}),
        json!({"id": "a", "sop": "x", "timers": [{"delay": "5s"}]}),
        json!({"id": "a", "sop": "x", "timers": vec![json!({"delay": "5s", "message": "x"}); 17]}),
        json!({"id": "a", "sop": "x", "skills": [{"id": "s", "http": {"url": "x", "haeders": {}}}]}),
        json!({"id": "a", "sop": "x", "skills": [{"id": "s", "params": {"type": "string"}}]}),
        json!({"id": "a", "sop": "x", "tools": [{"id": "t", "builtin": "nov"}]}),
        json!({"id": "a", "sop": "x", "tools": [{"id": "t", "builtin": "now", "http": {"url": "https://x"}}]}),
        json!({"id": "a", "sop": "x", "tools": [{"id": "t", "http": {"url": "https://x", "method": "GTE"}}]}),
        json!({"id": "a", "sop": "x", "handoff": {"mode": "keep"}}),
        json!({"id": "a", "sop": "x", "rules": [{"when": {}, "decide": {"next_status": "ready"}}]}),
        json!({"id": "a", "sop": "x", "rules": [{"when": {"always": false}, "decide": {"next_status": "ready"}}]}),
        json!({"id": "a", "sop": "x", "rules": [{"when": {"always": true}, "decide": {"next_status": "typing"}}]}),
        json!({"id": "a", "sop": "x", "rules": [{"when": {"always": true}, "decide": {"next_status": "ready",
            "action": {"type": "SYSTEM", "target": "close"}}}]}),
        json!({"id": "a", "sop": "x", "rules": [{"when": {"always": true}, "decide": {"response": "x"}}]}),
        json!({"id": "a", "sop": "x", "rules": [{"when": {"always": true}, "decide": {"next_status": null}}]}),
        task_rule(json!({"next_status": "ready"})),
        task_rule(json!({"output": "words"})),
        task_rule(json!({"action": {"type": "SKILL", "target": "t"}})),
    ] {
        assert!(!schema.is_valid(&wrong), "{wrong}");
    }
}

#[test]
fn every_field_of_the_schema_has_a_description_and_is_in_the_docs() {
    let docs = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents.md")).unwrap();
    let section = |title: &str| {
        let begin = docs.find(&format!("\n{title}\n")).unwrap_or_else(|| panic!("docs/agents.md has no {title}")) + 1;
        let end = docs[begin + 2..].find("\n## ").map_or(docs.len(), |end| begin + 2 + end);
        &docs[begin..end]
    };
    let schema = schema();
    let mut seen = 0;
    for (table, title) in [
        ("", "## Fields"),
        ("KnowledgeConfig", "## Fields"),
        ("Skill", "## Skills and tools"),
        ("Tool", "## Skills and tools"),
        ("HttpCall", "### `http`"),
        ("TimerConfig", "## Timers"),
        ("Action", "## Timers"),
        ("HandoffConfig", "## Handoff"),
        ("Budget", "## Budgets"),
        ("CoordinatorConfig", "## Coordinators"),
        ("BoundSecret", "## Coordinators"),
        ("SubagentConfig", "## Coordinators"),
        ("Rule", "## Rules"),
        ("When", "## Rules"),
        ("Decide", "## Rules"),
    ] {
        let of = if table.is_empty() { &schema } else { &schema["$defs"][table] };
        let fields = of["properties"].as_object().unwrap_or_else(|| panic!("the schema has no {table}"));
        for (name, field) in fields {
            // A field with `$ref` may have its description in the referenced type.
            assert!(field["description"].is_string() || field["$ref"].is_string(), "{table}.{name}: {field}");
            let code = [format!("`{name}`"), format!("{{{name}"), format!(", {name},"), format!(", {name}}}")];
            assert!(code.iter().any(|code| section(title).contains(code)), "{title} of docs/agents.md has no `{name}`");
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} fields");
}

#[test]
fn the_schema_in_the_docs_is_what_the_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agent.schema.json");
    let printed = Command::new(env!("CARGO_BIN_EXE_turnwheel")).args(["agents", "schema"]).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        printed,
        "regenerate it: cargo run -- agents schema > docs/agent.schema.json"
    );
}
