//! Reads an answer that must be a JSON structure. Each error is a text that is sent back to the model.

use super::thoughts;
use base::http_client::bounded;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use types::depth;
use types::json_kind::json_kind;

/// Parses the one JSON object of an answer. Ignores a byte order mark, the thoughts of a reasoning model and a code
/// fence around the object. Any other text around it is an error.
pub(crate) fn object(content: &str) -> Result<Map<String, Value>, String> {
    let content = thoughts::before_structure(content);
    let text = unwrapped(&content);
    match serde_json::from_str(text) {
        Ok(answer) if !depth::is_legal(&answer) => {
            Err(format!("the answer is nested more than {} levels deep; flatten it", depth::MAX_DEPTH))
        }
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("the answer has to be one JSON object, but is {}", json_kind(&other))),
        Err(error) if error.is_eof() && !text.is_empty() => Err(format!(
            "the answer was cut off before its JSON object was complete; write a shorter one. It begins with `{}`",
            bounded(text, 80)
        )),
        Err(error) => Err(format!(
            "the answer is not valid JSON ({error}); it has to be one JSON object and nothing else, but begins with `{}`",
            bounded(text, 80)
        )),
    }
}

/// Whether a text is a JSON object or list, possibly within a code fence.
pub(crate) fn is_json(content: &str) -> bool {
    let text = unwrapped(content);
    text.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn unwrapped(content: &str) -> &str {
    let text = content.trim_start_matches('\u{feff}').trim();
    let Some(inner) = text.strip_prefix("```") else { return text };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    // The fence's first line may name a language.
    inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim()
}
