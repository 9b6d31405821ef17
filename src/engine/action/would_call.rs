//! Descriptions of the calls that a rehearsal does not make.

use decisions::reference::resolve::as_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::excerpt::cut;

/// The largest body that is shown whole, in bytes.
const MAX_BODY: usize = 16 * 1024;

/// A call that would have been made. Secrets are masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WouldCall {
    /// A request to an API.
    Request {
        /// The method.
        method: String,
        /// The address with its query.
        url: String,
        /// The body; absent if the request has no body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Value>,
    },
    /// A function or flow in Rust.
    Function {
        /// Its id.
        function: String,
        /// The params of the call.
        params: Value,
    },
    /// A node of a workflow that calls no API, such as a script or a statement of a database.
    Node {
        /// The type of the node.
        node: String,
        /// Its settings.
        config: Value,
    },
    /// The call would have failed before anything was sent.
    Refused {
        /// Why.
        problem: String,
    },
}

impl WouldCall {
    pub(crate) fn request(method: &str, url: &str, body: Option<&[u8]>) -> Self {
        let body = body.map(|body| {
            let text = String::from_utf8_lossy(body);
            match serde_json::from_slice(body) {
                Ok(value) if body.len() <= MAX_BODY => value,
                Ok(_) | Err(_) => Value::String(cut(&text, MAX_BODY).into_owned()),
            }
        });
        Self::Request { method: method.to_owned(), url: cut(url, MAX_BODY).into_owned(), body }
    }

    pub(crate) fn function(id: &str, params: &Map<String, Value>) -> Self {
        Self::Function { function: id.to_owned(), params: bounded(Value::Object(params.clone())) }
    }

    pub(crate) fn node(kind: &str, config: Value) -> Self {
        Self::Node { node: kind.to_owned(), config: bounded(config) }
    }
}

/// Returns the value, or an excerpt of its text.
fn bounded(value: Value) -> Value {
    let text = as_text(&value);
    if text.len() <= MAX_BODY { value } else { Value::String(cut(&text, MAX_BODY).into_owned()) }
}
