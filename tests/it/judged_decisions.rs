//! Decisions of a coordinator's model, judged over HTTP and by `turnwheel decisions`, without a model or a session.

use crate::commands::Folder;
use crate::gateway::Gateway;
use crate::support::backend::{embedded, embedded_with};
use crate::support::process::toml;
use base::config::Settings;
use decisions::examples::ALL;
use decisions::kind::DecisionType;
use serde_json::{Value, json};

const VALIDATE: &str = "/api/v1/decisions/validate";

/// The verdict on a payload, in the world if it is not null.
async fn verdict(gateway: &Gateway, payload: &Value, world: &Value) -> Value {
    let mut body = json!({"decision_type": payload["action_type"], "payload": payload});
    if !world.is_null() {
        body["world"] = world.clone();
    }
    let response = gateway.post(VALIDATE, &body).await;
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

fn example(kind: DecisionType) -> Value {
    let example = ALL.iter().find(|example| example.decision_type == kind).unwrap();
    serde_json::from_str(example.text).unwrap()
}

/// The world in which all examples are valid.
fn world() -> Value {
    let with_llm = json!({
        "nodes": [
            {"node_id": "node_1", "type": "HTTP", "name": "a", "config": {"url": "https://a.example.com", "method": "GET"}},
            {"node_id": "node_2", "type": "LLM", "name": "b", "config": {"prompt": "${node_1.output.data}"}},
        ],
        "edges": [{"source": "node_1", "target": "node_2"}],
    });
    json!({
        "workflows": [
            {"workflow_id": "workflow_123", "status": "READY", "definition": example(DecisionType::CreateWorkflowPlan)},
            {"workflow_id": "with_llm", "definition": with_llm},
        ],
        "current": "with_llm",
        "subagents": [{"type": "researcher", "runnable": "research_agent", "description": "x", "timeout": "120s",
            "input": {"type": "object", "required": ["query"]}}],
    })
}

#[tokio::test]
async fn every_example_is_valid_and_what_it_lacks_is_a_warning() {
    let gateway = Gateway::idle(&embedded().await).await;
    let mut warnings = String::new();
    for example in ALL {
        let payload: Value = serde_json::from_str(example.text).unwrap();
        let verdict = verdict(&gateway, &payload, &world()).await;
        assert_eq!((&verdict["is_valid"], &verdict["errors"]), (&json!(true), &json!([])), "{}", example.title);
        assert_eq!((&verdict["corrected"], &verdict["corrections"]), (&payload, &json!([])));
        warnings.push_str(&verdict["warnings"].to_string());
    }
    for part in ["${WEATHER_API_KEY}", "${input_data}", "`gpt-4`", "`sales_db`"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
}

#[tokio::test]
async fn a_verdict_has_every_error_and_the_corrections() {
    let gateway = Gateway::idle(&embedded().await).await;
    let payload = json!({"action_type": "respond", "response": "x", "intent": "greeting", "confidence": 1.5});
    let verdict = verdict(&gateway, &payload, &Value::Null).await;
    let correction = json!({"path": "confidence", "from": 1.5, "to": 1.0, "rule": "range"});
    assert_eq!((&verdict["is_valid"], &verdict["valid_after_correction"]), (&json!(false), &json!(true)));
    assert_eq!((&verdict["corrections"], &verdict["corrected"]["confidence"]), (&json!([correction]), &json!(1.0)));
    let payload = json!({"action_type": "create_node", "node_type": "HTTP", "node_name": "n", "config": {}});
    let verdict = self::verdict(&gateway, &payload, &Value::Null).await;
    let errors = verdict["errors"].as_array().unwrap();
    assert!(errors.len() == 2 && errors[0].as_str().unwrap().contains("url"), "{verdict}");
}

#[tokio::test]
async fn a_payload_of_exactly_one_mebibyte_is_judged() {
    let gateway = Gateway::idle(&embedded().await).await;
    let payload = |response: &str| json!({"action_type": "respond", "response": response, "intent": "greeting", "confidence": 1.0});
    let empty = payload("").to_string().len();
    // Every quotation mark takes two bytes, so the last byte may need a letter.
    let text = |bytes: usize| "\"".repeat((bytes - empty) / 2) + &"x".repeat((bytes - empty) % 2);
    assert_eq!(verdict(&gateway, &payload(&text(1_048_576)), &Value::Null).await["is_valid"], true);
    let verdict = verdict(&gateway, &payload(&text(1_048_577)), &Value::Null).await;
    let error = verdict["errors"][0].as_str().unwrap();
    assert!(error.contains("1048577") && error.contains("1048576"), "{error}");
}

#[tokio::test]
async fn conditions_have_the_grammar_of_workflow_files() {
    let gateway = Gateway::idle(&embedded().await).await;
    for (condition, problem) in [
        ("${node_1.output.row_count} > 5", ""),
        ("not ${node_1.output.data} contains 'x'", ""),
        ("true", ""),
        ("${node_1.output.row_count} >= 5", "`>=`"),
        ("${node_1.output.row_count} > 5 and true", "`and`"),
        ("{node_1} > 5", "brace"),
    ] {
        let mut plan = example(DecisionType::CreateWorkflowPlan);
        plan["edges"][0]["condition"] = json!(condition);
        let errors = verdict(&gateway, &plan, &Value::Null).await["errors"].to_string();
        assert!(if problem.is_empty() { errors == "[]" } else { errors.contains(problem) }, "{condition}: {errors}");
    }
}

#[tokio::test]
async fn settings_and_agents_limit_decisions() {
    let mut settings = Settings::default();
    settings.decisions.restrict_node_types = true;
    settings.decisions.allowed_hosts = vec!["*.example.com".into()];
    settings.decisions.max_llm_tokens = 100;
    let backend = embedded_with(settings).await;
    let gateway = Gateway::idle(&backend).await;
    let refused = |kind: &'static str, config: Value, part: &'static str| {
        let gateway = &gateway;
        async move {
            let payload = json!({"action_type": "create_node", "node_type": kind, "node_name": "n", "config": config});
            let errors = verdict(gateway, &payload, &Value::Null).await["errors"].to_string();
            assert!(if part.is_empty() { errors == "[]" } else { errors.contains(part) }, "{errors}");
        }
    };
    refused("CONDITION", json!({"expression": "true"}), "CONDITION").await;
    refused("LLM", json!({"prompt": "x", "max_tokens": 101}), "100 tokens").await;
    refused("HTTP", json!({"url": "https://example.com", "method": "GET"}), "`example.com`").await;
    refused("HTTP", json!({"url": "https://api.example.com", "method": "GET"}), "").await;
    let agent = json!({"id": "planner", "sop": "x", "mode": "coordinator", "coordinator": {"workflows": []}});
    assert_eq!(gateway.put("/api/v1/agents/planner", &agent).await.status(), 200);
    let run = json!({"action_type": "execute_workflow", "workflow_id": "smart_router"});
    let body = json!({"decision_type": "execute_workflow", "payload": run});
    let stored: Value = gateway.post(VALIDATE, &body).await.json().await.unwrap();
    assert_eq!(stored["errors"], json!([]), "a registered workflow is ready");
    let body = json!({"decision_type": "execute_workflow", "payload": run, "agent_id": "planner"});
    let narrowed: Value = gateway.post(VALIDATE, &body).await.json().await.unwrap();
    assert!(narrowed["errors"][0].as_str().unwrap().contains("may not run"), "{narrowed}");
}

#[tokio::test]
async fn an_agent_file_binds_secrets_and_registers_sub_agents() {
    let mut settings = Settings::default();
    settings.secrets.allow = vec!["WEATHER_API_KEY@api.weather.com".into()];
    let gateway = Gateway::idle(&embedded_with(settings).await).await;
    let agent = json!({
        "id": "planner", "sop": "x", "mode": "coordinator",
        "coordinator": {"connectors": [], "secrets": [{"name": "WEATHER_API_KEY", "hosts": ["api.weather.com"]}]},
        "subagents": [{"type": "researcher", "runnable": "planner", "timeout": "120s",
                       "input": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}],
    });
    assert_eq!(gateway.put("/api/v1/agents/planner", &agent).await.status(), 200);
    let errors = |payload: Value| {
        let gateway = &gateway;
        async move {
            let body = json!({"decision_type": payload["action_type"], "payload": payload, "agent_id": "planner"});
            let verdict: Value = gateway.post(VALIDATE, &body).await.json().await.unwrap();
            verdict["errors"].to_string()
        }
    };
    let mut call =
        serde_json::from_str::<Value>(ALL.iter().find(|example| example.title.contains("weather")).unwrap().text)
            .unwrap();
    assert_eq!(errors(call.clone()).await, "[]");
    call["config"]["url"] = json!("https://evil.example/v1");
    let refused = errors(call).await;
    assert!(refused.contains("WEATHER_API_KEY") && refused.contains("evil.example"), "{refused}");
    assert!(errors(example(DecisionType::CreateWorkflowPlan)).await.contains("sales_db"));
    let spawn = example(DecisionType::SpawnSubagent);
    assert_eq!(errors(spawn.clone()).await, "[]");
    for (field, value, part) in [
        ("priority", json!(11), "priority"),
        ("timeout", json!(0), "timeout"),
        ("subagent_type", json!("wizard"), "`researcher`"),
        ("task_payload", json!({}), "query"),
    ] {
        let mut payload = spawn.clone();
        payload[field] = value;
        assert!(errors(payload).await.contains(part), "{field}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_judges_without_servers() {
    let folder = Folder::embedded();
    std::fs::write(folder.path().join("turnwheel.toml"), toml(&folder.settings)).unwrap();
    let write = |name: &str, value: &Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    let respond = json!({"response": "x", "intent": "greeting", "confidence": 1.5});
    write("bare.json", &respond);
    write("wrapped.json", &json!({"decision_type": "respond", "payload": respond}));
    write("modify.json", &example(DecisionType::ModifyNode));
    write("world.json", &world());

    let judged = folder.run(&["decisions", "validate", "wrapped.json"], "").await;
    assert_eq!(judged.code, 1, "{judged:?}");
    for part in [
        "respond: not valid; valid after correction",
        "error: `action_type` is missing",
        "correction: `confidence` from 1.5 to 1.0 (range)",
    ] {
        assert!(judged.out.contains(part), "{part}: {judged:?}");
    }
    let judged = folder.run(&["decisions", "validate", "bare.json", "--type", "respond", "--json"], "").await;
    assert_eq!((judged.code, &judged.json()["valid_after_correction"]), (1, &json!(true)));
    let judged = folder.run(&["decisions", "validate", "modify.json", "--world", "world.json"], "").await;
    assert_eq!((judged.code, judged.out.as_str()), (0, "modify_node: valid\n"), "{judged:?}");
    let thought = json!({"action_type": "continue", "thought": "x"}).to_string();
    assert_eq!(folder.run(&["decisions", "validate", "-"], &thought).await.code, 0);

    for (args, input, part) in [
        (["validate", "bare.json"], "", "--type"),
        (["validate", "none.json"], "", "none.json"),
        (["validate", "-"], "{\"a\": NaN}", "standard input cannot be read"),
        (["validate", "-"], "{\"decision_type\": \"fly\", \"payload\": {}}", "no type `fly`"),
        (["schema", "fly"], "", "conversation_decision"),
    ] {
        let failed = folder.run(&["decisions", args[0], args[1]], input).await;
        assert!(failed.code == 1 && failed.err.contains(part), "{part}: {failed:?}");
    }
    let one = folder.run(&["decisions", "schema", "plan_and_conversation_decision"], "").await.json();
    assert_eq!(one["required"], json!(["plan", "answer"]));
    let all = folder.run(&["decisions", "schema"], "").await.json();
    assert_eq!(all.as_object().unwrap().len(), 12);
}

#[tokio::test]
async fn scripts_are_compiled_before_they_are_judged() {
    let gateway = Gateway::idle(&embedded().await).await;
    let plan = |code: &str| json!({"action_type": "create_node", "node_type": "PYTHON", "node_name": "a", "config": {"code": code}});
    let judged = verdict(&gateway, &plan("x = 1\ndef f():\n  yield x\nreturn 1"), &Value::Null).await;
    assert_eq!(judged["is_valid"], false);
    let error = "`config.code` does not compile: line 3: the built-in Python does not support yield expressions; build a \
                 list, or set python.runner";
    assert!(judged["errors"].as_array().unwrap().contains(&json!(error)), "{judged}");
    let judged = verdict(&gateway, &plan("import pandas\nreturn 1"), &Value::Null).await;
    assert_eq!(judged["is_valid"], true, "a missing module is a warning: {judged}");
    assert!(judged["warnings"].to_string().contains("in line 1 imports `pandas`"), "{judged}");
}
