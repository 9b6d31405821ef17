//! The HTTP call of a tool or skill as an HTTP node of a graph.

use super::words::literal;
use crate::template::{TemplatePart, pieces};
use serde_json::{Map, Value, json};

/// Names of a parameter that carries a text, the best first.
const CARRIERS: [&str; 10] = ["text", "message", "content", "body", "msg", "title", "内容", "消息", "文字", "正文"];

/// A tool's call as a node.
#[derive(Debug)]
pub(super) struct HttpNode {
    /// The settings of the node.
    pub(super) config: Value,
    /// The inputs that a run must have: the other required parameters, with their types.
    pub(super) inputs: Vec<(String, String)>,
}

/// Returns true if a graph can make the call of a tool or skill. Graphs have no session, and their inputs have plain
/// names.
pub(super) fn can_be_node(part: &Value) -> bool {
    let Some(http) = part.get("http").filter(|http| http.is_object()) else { return false };
    let has_plain_names =
        required(part).iter().all(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-'));
    has_plain_names && !http.to_string().contains("{session.")
}

/// The call of a tool or skill, with `text` in the parameter that carries a text.
pub(super) fn http_node(part: &Value, text: &str) -> HttpNode {
    let http = part.get("http").cloned().unwrap_or_default();
    let required = required(part);
    let carrier = carrier(part, &required);
    let value = |name: &str| -> Option<String> {
        if Some(name) == carrier.as_deref() {
            return Some(text.to_owned());
        }
        required.iter().any(|known| known == name).then(|| format!("${{input.{name}}}"))
    };
    let method = http["method"].as_str().unwrap_or("GET").to_uppercase();
    let url = filled(http["url"].as_str().unwrap_or_default(), &value).unwrap_or_default();
    let mut config = Map::from_iter([("url".to_owned(), json!(url)), ("method".to_owned(), json!(method))]);
    for (from, to) in [("query", "params"), ("headers", "headers")] {
        if let Some(found) =
            http.get(from).and_then(|found| filled_value(found, &value)).filter(|found| *found != json!({}))
        {
            config.insert(to.to_owned(), found);
        }
    }
    let all = || {
        let names = carrier.iter().chain(required.iter().filter(|name| Some(*name) != carrier.as_ref()));
        Value::Object(names.filter_map(|name| Some((name.clone(), json!(value(name)?)))).collect())
    };
    let body = match http.get("body").filter(|body| !body.is_null()) {
        Some(body) => filled_value(body, &value),
        None if matches!(method.as_str(), "POST" | "PUT" | "PATCH") => Some(all()),
        None => None,
    };
    config.extend(body.map(|body| ("body".to_owned(), body)));
    let inputs = required.iter().filter(|name| Some(*name) != carrier.as_ref());
    HttpNode { config: Value::Object(config), inputs: inputs.map(|name| (name.clone(), kind(part, name))).collect() }
}

/// The required parameters.
fn required(part: &Value) -> Vec<String> {
    let names = part.get("params").and_then(|params| params.get("required")).and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The type of a parameter, as inputs have it.
fn kind(part: &Value, name: &str) -> String {
    let kind = part["params"]["properties"][name]["type"].as_str().unwrap_or("string");
    let known = ["string", "number", "boolean", "object", "array"].contains(&kind);
    if known {
        kind
    } else if kind == "integer" {
        "number"
    } else {
        "string"
    }
    .to_owned()
}

/// Returns the parameter that carries the text: one with a known name, or the first required text.
fn carrier(part: &Value, required: &[String]) -> Option<String> {
    let properties = part.get("params").and_then(|params| params.get("properties")).and_then(Value::as_object);
    let named = CARRIERS.iter().find(|name| properties.is_some_and(|known| known.contains_key(**name)));
    let text = || required.iter().find(|name| kind(part, name) == "string").cloned();
    named.map(|name| (*name).to_owned()).or_else(text)
}

/// Replaces the placeholders in a text by references. Returns `None` if a placeholder has no value, as in a call
/// without that parameter.
fn filled(template: &str, value: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    pieces(template)
        .into_iter()
        .map(|piece| match piece {
            TemplatePart::Text(text) => Some(literal(text)),
            TemplatePart::Secret(secret) => Some(secret.to_owned()),
            TemplatePart::Placeholder(name) => value(name),
        })
        .collect()
}

/// Replaces the placeholders in the texts of a value by references. Omits the texts that contain a placeholder without
/// a value.
fn filled_value(template: &Value, value: &dyn Fn(&str) -> Option<String>) -> Option<Value> {
    Some(match template {
        Value::String(text) => json!(filled(text, value)?),
        Value::Array(items) => items.iter().filter_map(|item| filled_value(item, value)).collect(),
        Value::Object(fields) => Value::Object(
            fields.iter().filter_map(|(name, field)| Some((name.clone(), filled_value(field, value)?))).collect(),
        ),
        other => other.clone(),
    })
}
