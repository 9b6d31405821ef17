//! Agents and workflows as documents: versions, drafts, conditions, notes and texts, through the gateway and `dev`.
//! [`changes`] has the versions, [`drafts`] the messages that name one, [`findings`] the checks, [`dev`] the files, and
//! [`terminal`] the commands.

mod changes;
mod dev;
mod drafts;
mod findings;
mod terminal;

use crate::conformance::kit::clock_is_past;
use crate::gateway::Gateway;
use base::clock;
use reqwest::{Method, Response};
use serde_json::{Value, json};

/// An agent of the offline model that always replies with these words.
pub(crate) fn shop(words: &str) -> Value {
    let rules = json!([{"when": {"always": true}, "decide": {"next_status": "typing", "response": words}}]);
    json!({"id": "shop", "model": "offline", "sop": "问候", "rules": rules})
}

/// The same agent as a file with a comment.
pub(crate) fn shop_text(comment: &str, words: &str) -> String {
    let rules = format!("rules:\n  - when: {{always: true}}\n    decide: {{next_status: typing, response: {words}}}\n");
    format!("# {comment}\nid: shop\nmodel: offline\nsop: 问候\n{rules}")
}

/// A workflow file with a comment.
pub(crate) fn report_text(description: &str) -> String {
    let stages = "stages:\n  - {id: a, runnable: smart_router, input: '{query}'}\n";
    format!("# 报告\nid: report\ndescription: {description}\n{stages}")
}

/// Sends the text of a file, with these headers.
async fn send_text(gateway: &Gateway, method: Method, path: &str, text: &str, headers: &[(&str, &str)]) -> Response {
    let request = gateway.client.request(method, format!("{}{path}", gateway.base));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.header("content-type", "application/yaml").body(text.to_owned()).send().await.unwrap()
}

/// The body of a response with this status.
async fn body(response: Response, status: u16) -> Value {
    let (found, body) = (response.status().as_u16(), response.text().await.unwrap());
    assert_eq!(found, status, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Applies the text of a file. Returns the hash.
async fn put_text(gateway: &Gateway, path: &str, text: &str, headers: &[(&str, &str)]) -> String {
    let applied = body(send_text(gateway, Method::PUT, path, text, headers).await, 200).await;
    // Versions of one millisecond have no order.
    clock_is_past(clock::now()).await;
    applied["hash"].as_str().unwrap().to_owned()
}
