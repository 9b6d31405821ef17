//! The parts of a prompt: messages, the tools that a model may call, and its tool calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The role of a message in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptRole {
    /// Instructions of the engine.
    System,
    /// The user, or the input of a stage.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl PromptRole {
    /// True for the roles whose text may come from anywhere: a user, or an API that a tool has called.
    pub(crate) fn is_foreign(self) -> bool {
        matches!(self, Self::User | Self::Tool)
    }
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    /// The role of the message.
    pub role: PromptRole,
    /// The text.
    pub content: String,
    /// URLs of images, for a model with vision. `content` lists them as well.
    #[serde(skip)]
    pub images: Vec<String>,
    /// The tool calls of an assistant message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ModelToolCall>,
    /// Id of the tool call whose result a tool message carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Server-specific fields, for example `reasoning_content`. They are sent back to the server unchanged.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PromptMessage {
    /// A message with only a text.
    pub fn new(role: PromptRole, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            images: Vec::new(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            extra: Map::new(),
        }
    }

    /// The same message with these server-specific fields.
    #[must_use]
    pub fn with_extra(self, extra: Map<String, Value>) -> Self {
        Self { extra, ..self }
    }

    /// A message of the model with its tool calls.
    pub fn assistant(content: impl Into<String>, tool_calls: Vec<ModelToolCall>) -> Self {
        Self { tool_calls, ..Self::new(PromptRole::Assistant, content) }
    }

    /// The result of the tool call with this id.
    pub fn tool(tool_call_id: impl Into<String>, result: impl Into<String>) -> Self {
        Self { tool_call_id: Some(tool_call_id.into()), ..Self::new(PromptRole::Tool, result) }
    }
}

/// A tool as it is described to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Id of the tool.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of its parameters.
    pub parameters: Arc<Value>,
}

/// A tool call that a model asks for. In JSON it has the form of the OpenAI protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WireToolCall", into = "WireToolCall")]
pub struct ModelToolCall {
    /// Id of the call, unique within one answer. The result is sent back with it.
    pub id: String,
    /// Id of the tool.
    pub name: String,
    /// The arguments as the model has written them. They should be JSON, but may be invalid.
    pub arguments: String,
    /// Server-specific fields, for example `extra_content` with the signature of a thought. They are sent back
    /// unchanged.
    pub extra: Map<String, Value>,
}

impl ModelToolCall {
    /// A call without server-specific fields.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into(), extra: Map::new() }
    }

    /// The call without its server-specific fields, for readers.
    #[must_use]
    pub(crate) fn without_extra(&self) -> Self {
        Self::new(self.id.clone(), self.name.clone(), self.arguments.clone())
    }
}

#[derive(Serialize, Deserialize)]
struct WireToolCall {
    id: String,
    #[serde(rename = "type", default)]
    kind: Kind,
    function: Function,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Function,
}

#[derive(Serialize, Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

impl From<WireToolCall> for ModelToolCall {
    fn from(WireToolCall { id, function: Function { name, arguments }, extra, .. }: WireToolCall) -> Self {
        Self { id, name, arguments, extra }
    }
}

impl From<ModelToolCall> for WireToolCall {
    fn from(ModelToolCall { id, name, arguments, extra }: ModelToolCall) -> Self {
        Self { id, kind: Kind::Function, function: Function { name, arguments }, extra }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_have_the_form_of_the_protocol_and_are_read_back() {
        let call = ModelToolCall::new("c1", "eta", "{\"order\":\"A1\"}");
        let called =
            json!({"id": "c1", "type": "function", "function": {"name": "eta", "arguments": "{\"order\":\"A1\"}"}});
        let map = |value: Value| value.as_object().cloned().unwrap();
        let signed = ModelToolCall { extra: map(json!({"extra_content": {"google": {"x": 1}}})), ..call.clone() };
        let mut called_signed = called.clone();
        called_signed["extra_content"] = json!({"google": {"x": 1}});
        for (message, written) in [
            (PromptMessage::new(PromptRole::User, "你好"), json!({"role": "user", "content": "你好"})),
            (
                PromptMessage::assistant("", vec![call]),
                json!({"role": "assistant", "content": "", "tool_calls": [called]}),
            ),
            (
                PromptMessage::assistant("", vec![signed]).with_extra(map(json!({"reasoning_content": "想"}))),
                json!({"role": "assistant", "content": "", "tool_calls": [called_signed], "reasoning_content": "想"}),
            ),
            (
                PromptMessage::tool("c1", "{\"ok\":true}"),
                json!({"role": "tool", "content": "{\"ok\":true}", "tool_call_id": "c1"}),
            ),
        ] {
            assert_eq!(json!(message), written);
            assert_eq!(serde_json::from_value::<PromptMessage>(written).unwrap(), message);
        }
    }
}
