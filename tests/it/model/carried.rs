//! Fields of a model's response that must be sent back with the results of its tool calls.

use super::{model, request};
use crate::support::model_server::{Answer, Call, ModelServer};
use crate::support::model_stream::Stream;
use engine::model::{DeltaSink, Model, ModelReply, ModelRequest, PromptMessage, ToolSpec};
use serde_json::{Value, json};
use std::sync::Arc;

fn tools() -> Vec<ToolSpec> {
    vec![ToolSpec { name: "eta".into(), description: String::new(), parameters: Arc::new(json!({})) }]
}

/// The request that follows a response with a call of `eta`, with the call's result.
fn next(reply: &ModelReply) -> ModelRequest {
    let mut messages = request(false).messages.to_vec();
    messages.push(PromptMessage::assistant(&*reply.content, reply.tool_calls.clone()).with_extra(reply.extra.clone()));
    messages.extend(reply.tool_calls.iter().map(|call| PromptMessage::tool(&*call.id, r#"{"ok":true}"#)));
    ModelRequest::new(messages).with_tools(tools())
}

async fn ask(model: &Arc<dyn Model>, request: ModelRequest, in_pieces: bool) -> ModelReply {
    let answered =
        if in_pieces { model.stream(request, DeltaSink::unread()).await } else { model.complete(request).await };
    answered.unwrap()
}

fn whole(message: &Value) -> Answer {
    Answer::Raw(json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).to_string())
}

/// The assistant's message in a request.
fn said(call: &Call) -> Value {
    call.body["messages"].as_array().unwrap().iter().find(|message| message["role"] == "assistant").unwrap().clone()
}

fn missing(field: &str) -> Answer {
    let message = format!("Missing `{field}` field in the assistant message at message index 2.");
    Answer::status(400, &json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string())
}

const CALLED: &str = r#"{"id":"c1","type":"function","function":{"name":"eta","arguments":"{}"},
    "extra_content":{"google":{"thought_signature":"c2ln"}}}"#;

#[tokio::test]
async fn reasoning_and_signatures_go_back_with_the_results() {
    let server = ModelServer::start().await;
    server.script(|call| {
        let messages = call.body["messages"].as_array().unwrap();
        let Some(said) = messages.iter().find(|message| message["role"] == "assistant") else {
            let mut called: Value = serde_json::from_str(CALLED).unwrap();
            if call.body["stream"] != true {
                return Some(whole(&json!({"role": "assistant", "content": null, "refusal": null, "annotations": [],
                    "reasoning_content": "想一想", "reasoning_details": [{"id": 1}, {"id": 2}], "tool_calls": [called]})));
            }
            called["index"] = json!(0);
            let deltas = [
                json!({"role": "assistant", "content": null, "reasoning_content": ""}),
                json!({"reasoning_content": "想", "reasoning_details": [{"id": 1}]}),
                json!({"reasoning_content": "一想", "reasoning_details": [{"id": 2}]}),
                json!({"reasoning_content": null, "tool_calls": [called]}),
            ];
            return Some(Answer::Stream(Stream::default().deltas(deltas).finished("tool_calls")));
        };
        if said["reasoning_content"] != "想一想" {
            return Some(missing("reasoning_content"));
        }
        Some(Answer::Content("后天".into()))
    });
    let model = model(&server);
    for in_pieces in [false, true] {
        server.forget();
        let reply = ask(&model, request(false).with_tools(tools()), in_pieces).await;
        assert_eq!((reply.content.as_str(), reply.tool_calls.len()), ("", 1), "the content has no reasoning");
        let last = ask(&model, next(&reply), in_pieces).await;
        assert_eq!((last.content.as_str(), last.attempts), ("后天", 1));
        let sent = said(&server.calls()[1]);
        assert_eq!(sent["reasoning_details"], json!([{"id": 1}, {"id": 2}]));
        assert_eq!(sent["tool_calls"][0], serde_json::from_str::<Value>(CALLED).unwrap());
        let names: Vec<_> = sent.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["content", "reasoning_content", "reasoning_details", "role", "tool_calls"],
            "exactly these fields"
        );
    }
}

#[tokio::test]
async fn an_answer_without_calls_keeps_no_reasoning() {
    let server = ModelServer::start().await;
    let message = json!({"content": "好", "reasoning_content": "想"});
    server.script(move |_| Some(whole(&message)));
    let reply = ask(&model(&server), request(false).with_tools(tools()), false).await;
    assert_eq!((reply.content.as_str(), reply.extra.len()), ("好", 0), "a response without calls needs no reasoning");
}

#[tokio::test]
async fn a_field_that_a_server_refuses_is_left_out_and_that_is_remembered() {
    let server = ModelServer::start().await;
    let called: Value = serde_json::from_str(CALLED).unwrap();
    server.script(move |call| {
        let messages = call.body["messages"].to_string();
        Some(
            match ["reasoning", "extra_content"].into_iter().find(|field| messages.contains(&format!("\"{field}\""))) {
                Some(field) => Answer::status(
                    400,
                    &json!({"error": {"message": format!("'messages.2' : property '{field}' is unsupported")}})
                        .to_string(),
                ),
                None if messages.contains("tool_call_id") => Answer::Content("后天".into()),
                None => whole(&json!({"content": null, "reasoning": "想", "tool_calls": [called]})),
            },
        )
    });
    let model = model(&server);
    let reply = ask(&model, request(false).with_tools(tools()), false).await;
    assert_eq!(reply.extra["reasoning"], "想");
    assert_eq!(ask(&model, next(&reply), false).await.attempts, 3);
    assert_eq!(ask(&model, next(&reply), false).await.attempts, 1);
}

#[tokio::test]
async fn reasoning_that_a_server_misses_in_the_answer_of_another_model_is_sent_empty() {
    let server = ModelServer::start().await;
    server.script(|call| {
        let has = said(call).get("reasoning_content").is_some();
        Some(if has { Answer::Content("后天".into()) } else { missing("reasoning_content") })
    });
    let reply = ModelReply {
        tool_calls: vec![engine::model::ModelToolCall::new("c1", "eta", "{}")],
        ..ModelReply::text("", "another")
    };
    let model = model(&server);
    assert_eq!(ask(&model, next(&reply), false).await.attempts, 2);
    assert_eq!(ask(&model, next(&reply), false).await.attempts, 1, "the client remembers the requirement");
    assert_eq!(said(&server.calls()[2])["reasoning_content"], "");
}

#[tokio::test]
async fn calls_have_ids_of_their_own() {
    let server = ModelServer::start().await;
    let call = |id: &str| json!({"id": id, "function": {"name": "eta", "arguments": "{}"}});
    let message = json!({"tool_calls": [call("a"), call(""), call("a"), call("call_2")]});
    server.script(move |_| Some(whole(&message)));
    let model = model(&server);
    let reply = ask(&model, request(false).with_tools(tools()), false).await;
    let ids: Vec<_> = reply.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["a", "call_2_", "call_3", "call_2"]);
    let again = ask(&model, next(&reply), false).await;
    assert_eq!(again.tool_calls[1].id, "call_6", "ids are unique in the conversation");
}
