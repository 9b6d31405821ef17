//! The model of `bench authoring`: a server in this process that answers each question immediately, as a stream if the
//! request asks for one. Its answers depend on the request only.

use crate::bench::graph;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use base::tasks::{OnPanic, Tasks};
use futures::stream;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::net::TcpListener;

/// The user's first message. It lacks the time, so the model asks for it.
pub(super) const FIRST: &str = "Summarise my notes every day";
/// The user's second message, which contains the time.
pub(super) const SECOND: &str = "At eight o'clock";
/// A message that leads directly to a graph of [`NODES`] nodes.
pub(super) const LARGE: &str = "At eight o'clock, in fifty steps";
/// Nodes of the large graph.
pub(super) const NODES: usize = 50;
/// Tests of the large graph.
pub(super) const TESTS: u64 = 4;
/// The size of a streamed piece, in characters.
const PIECE: usize = 64;
/// The largest request: a document of 50 nodes with its schema.
const MAX_REQUEST: usize = 8 * 1024 * 1024;

/// Serves the model until the tasks stop. Returns its base URL.
pub(super) async fn serve(tasks: &Tasks) -> anyhow::Result<String> {
    let router = Router::new().route("/v1/chat/completions", post(complete)).layer(DefaultBodyLimit::max(MAX_REQUEST));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    let stop = tasks.stop_token();
    tasks.spawn("model", OnPanic::Log, async move {
        let _ = stop.run_until_cancelled(axum::serve(listener, router).into_future()).await;
    });
    Ok(format!("http://{address}/v1"))
}

async fn complete(Json(request): Json<Value>) -> Response {
    let content = answer(&request);
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20});
    if request["stream"] != true {
        let message = json!({"role": "assistant", "content": content});
        let choice = json!({"index": 0, "finish_reason": "stop", "message": message});
        let whole =
            json!({"id": "bench", "object": "chat.completion", "model": "bench", "choices": [choice], "usage": usage});
        return Json(whole).into_response();
    }
    let choice = |delta: Value, reason: Value| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
        json!({"id": "bench", "object": "chat.completion.chunk", "model": "bench", "choices": choices}).to_string()
    };
    let characters: Vec<char> = content.chars().collect();
    let pieces =
        characters.chunks(PIECE).map(|piece| choice(json!({"content": piece.iter().collect::<String>()}), Value::Null));
    let end =
        [choice(json!({}), json!("stop")), json!({"choices": [], "usage": usage}).to_string(), "[DONE]".to_owned()];
    let events: Vec<_> =
        pieces.chain(end).map(|data| Ok::<_, Infallible>(Bytes::from(format!("data: {data}\n\n")))).collect();
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream::iter(events))).into_response()
}

/// Returns the answer to a request. A node of a rehearsal gets a plain text.
fn answer(request: &Value) -> String {
    let asked = request["messages"].to_string();
    let reply = |text: &str, rest: Value| format!("{{\"reply\":{},{}", json!(text), &rest.to_string()[1..]);
    match request["response_format"]["json_schema"]["name"].as_str().unwrap_or_default() {
        "authoring_clarification" => {
            let is_open = !asked.contains("eight o'clock");
            let question = json!({"id": "when", "question": "At what time?", "category": "trigger", "is_required": true, "options": []});
            let questions = if is_open { vec![question] } else { Vec::new() };
            let text = if is_open { "At what time should it run?" } else { "That is all that is needed." };
            reply(
                text,
                json!({"intent_summary": "A daily summary", "collected_info": [], "questions": questions, "ready": !is_open}),
            )
        }
        "authoring_negotiation" => {
            let agreed = json!({"collected_info": [], "requirements": ["A summary every day"], "questions": [], "agreed": true, "reopen": false});
            reply("It is done as you say.", agreed)
        }
        "authoring_gap_analysis" => {
            let summary = json!({"need": "summarise", "required": true, "provided_by": "node.LLM"});
            json!({"capabilities": [summary], "reopen": false}).to_string()
        }
        "authoring_workflow_generation" => {
            let (workflow, tests) = if asked.contains("in fifty steps") { large() } else { small() };
            let written = json!({"workflow": workflow, "agent": null, "tests": tests, "reopen": false});
            reply("The workflow is written.", written)
        }
        _ => "A summary.".to_owned(),
    }
}

fn test(number: u64) -> Value {
    json!({"name": format!("summary {number}"), "input": {"query": format!("notes {number}")},
           "expect": {"output_contains": "summary"}, "answers": {}})
}

fn small() -> (Value, Vec<Value>) {
    let node = json!({"node_id": "sum", "type": "LLM", "name": "summary", "config": {"prompt": "Summarise: ${query}"}});
    (json!({"type": "graph", "id": "new", "name": "Summary", "nodes": [node], "edges": []}), vec![test(1)])
}

fn large() -> (Value, Vec<Value>) {
    (graph::layers(NODES), (1..=TESTS).map(test).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(schema: &str, message: &str) -> Value {
        let request = json!({"messages": [{"role": "user", "content": message}],
                             "response_format": {"json_schema": {"name": schema}}});
        serde_json::from_str(&answer(&request)).unwrap()
    }

    #[test]
    fn the_second_message_answers_what_the_first_leaves_open() {
        let open = |message| asked("authoring_clarification", message)["questions"].as_array().map(Vec::len);
        assert_eq!((open(FIRST), open(SECOND), open(LARGE)), (Some(1), Some(0), Some(0)));
    }

    #[test]
    fn a_message_decides_the_size_of_the_graph() {
        let sizes = |message| {
            let written = asked("authoring_workflow_generation", message);
            let count = |list: &Value| list.as_array().map_or(0, Vec::len);
            (count(&written["workflow"]["nodes"]), count(&written["tests"]))
        };
        assert_eq!((sizes(SECOND), sizes(LARGE)), ((1, 1), (NODES, 4)));
    }
}
