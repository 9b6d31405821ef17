//! Tools in the form of the OpenAI protocol: offers, calls and results.

use super::{KEY, model, model_of, request, settings};
use crate::support::model_server::{Answer, ModelServer, PLAIN};
use base::config;
use engine::model::{ModelToolCall, PromptMessage, ToolSpec};
use serde_json::{Value, json};
use std::sync::Arc;

fn tool(name: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: "什么时候到".into(), parameters: Arc::new(parameters) }
}

#[tokio::test]
async fn tools_are_offered_called_and_answered_in_the_form_of_the_protocol() {
    let server = ModelServer::start().await;
    let schema = json!({"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]});
    let tools = vec![tool("eta", schema.clone()), tool("现在", json!({}))];
    let calls = [("eta", r#"{"order_id":"A1"}"#), ("tool_2", "{}")].map(|(name, args)| (name.into(), args.into()));
    server.push(PLAIN, [Answer::Calls(calls.to_vec()), Answer::Content("后天".into())]);
    let model = model(&server);
    let reply = model.complete(request(false).with_tools(tools.clone())).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.tokens.completion), ("", 7));
    let call = |id: &str, name: &str, arguments: &str| ModelToolCall::new(id, name, arguments);
    assert_eq!(reply.tool_calls, [call("call-0-0", "eta", r#"{"order_id":"A1"}"#), call("call-0-1", "现在", "{}")]);

    let mut messages = request(false).messages.to_vec();
    messages.push(PromptMessage::assistant("", reply.tool_calls));
    messages.push(PromptMessage::tool("call-0-0", r#"{"ok":true}"#));
    let again = engine::model::ModelRequest::new(messages).with_tools(tools);
    assert_eq!(model.complete(again).await.unwrap().content, "后天");
    let calls = server.calls();
    let offered = |name: &str, description: &str, parameters: &Value| json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}});
    assert_eq!(
        calls[0].body["tools"],
        json!([
            offered("eta", "什么时候到", &schema),
            offered("tool_2", "现在: 什么时候到", &json!({"type": "object", "properties": {}})),
        ])
    );
    assert!(calls[0].body.get("tool_choice").is_none());
    let written = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        calls[1].body["messages"].as_array().unwrap()[2..],
        [
            json!({"role": "assistant", "content": null, "tool_calls":
                [written("call-0-0", "eta", r#"{"order_id":"A1"}"#), written("call-0-1", "tool_2", "{}")]}),
            json!({"role": "tool", "content": r#"{"ok":true}"#, "tool_call_id": "call-0-0"}),
        ]
    );
}

#[tokio::test]
async fn calls_in_the_forms_of_other_servers_are_read_too() {
    let server = ModelServer::start().await;
    let raw = |message: Value| Answer::Raw(json!({"choices": [{"message": message}]}).to_string());
    let called = |arguments: Value| raw(json!({"tool_calls": [{"function": {"name": "eta", "arguments": arguments}}]}));
    server.push(
        PLAIN,
        [called(json!({"order_id": "A1"})), called(Value::Null), called(json!(format!("{{\"k\":\"{KEY}\"}}")))],
    );
    let model = model(&server);
    let mut answered = Vec::new();
    for _ in 0..3 {
        let reply = model.complete(request(false).with_tools(vec![tool("eta", json!({}))])).await.unwrap();
        assert_eq!((reply.tool_calls[0].id.as_str(), reply.tool_calls[0].name.as_str()), ("call_1", "eta"));
        answered.push(reply.tool_calls[0].arguments.clone());
    }
    assert_eq!(answered, [r#"{"order_id":"A1"}"#, "", r#"{"k":"***"}"#], "the key is masked");
}

#[tokio::test]
async fn a_call_that_nobody_offered_is_no_answer() {
    let server = ModelServer::start().await;
    server.script(|_| Some(Answer::call("eta", &json!({}))));
    let model = model_of(config::Model { max_retries: 0, ..settings(server.base_url()) });
    let error = model.complete(request(false)).await.unwrap_err().to_string();
    assert!(error.contains("no content (finish_reason `tool_calls`)"), "{error}");
}
