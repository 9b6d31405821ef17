//! Reading an answer that was to be a structure. Every error is a text that goes back to the model.

use crate::depth;
use crate::http_client::bounded;
use serde_json::{Map, Value};

/// The one JSON object of an answer. A byte order mark, a reasoning model's `<think>` block and a code fence around it
/// are taken off; any other prose is an error.
pub(crate) fn object(content: &str) -> Result<Map<String, Value>, String> {
    let text = unwrapped(content);
    match serde_json::from_str(text) {
        Ok(answer) if !depth::is_legal(&answer) => {
            Err(format!("the answer is nested more than {} levels deep; flatten it", depth::MAX_DEPTH))
        }
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("the answer has to be one JSON object, but is {}", kind(&other))),
        Err(error) => Err(format!(
            "the answer is not valid JSON ({error}); it has to be one JSON object and nothing else, but begins with `{}`",
            bounded(text, 80)
        )),
    }
}

fn unwrapped(content: &str) -> &str {
    let mut text = content.trim_start_matches('\u{feff}').trim();
    if let Some((_, after)) = text.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>")) {
        text = after.trim();
    }
    let Some(inner) = text.strip_prefix("```") else { return text };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    // The fence's first line may name a language.
    inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim()
}

/// What a value is, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
