//! The prompt of a model call, as it is kept with its step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The messages of a model call as they were sent, with secrets masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeptPrompt {
    /// The messages, in their order.
    pub messages: Vec<KeptMessage>,
    /// The bytes of all texts of the messages, before they were cut.
    pub bytes: u64,
    /// True if the prompt was too large: its end is missing. A text that was cut ends with `… [<n> of <m> bytes]`.
    pub cut: bool,
}

/// One message of a prompt. It may have further fields that only its model server knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeptMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// URLs of the images, for a model with vision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// The tool calls of an assistant's message, in the form of the OpenAI protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
    /// The tool call whose result a message of the role `tool` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Fields that only the model server knows.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
