//! What a prompt is made of: messages, the tools that a model may call, and its calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Who speaks in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptRole {
    /// The engine.
    System,
    /// The user, or the input of a stage.
    User,
    /// The model.
    Assistant,
    /// A tool, with its result.
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
    /// Who speaks.
    pub role: PromptRole,
    /// The words.
    pub content: String,
    /// Addresses of pictures, for a model that sees; `content` names them as well.
    #[serde(skip)]
    pub images: Vec<String>,
    /// What the model wants called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool's message is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Fields of the model's own, such as `reasoning_content`. They go back to the server as they came.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl PromptMessage {
    /// Words, and no more.
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

    /// The same with these fields of the model's own.
    #[must_use]
    pub fn with_extra(self, extra: Map<String, Value>) -> Self {
        Self { extra, ..self }
    }

    /// What the model has said, and what it wants called.
    pub fn assistant(content: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, ..Self::new(PromptRole::Assistant, content) }
    }

    /// What came of the call of that id.
    pub fn tool(tool_call_id: impl Into<String>, result: impl Into<String>) -> Self {
        Self { tool_call_id: Some(tool_call_id.into()), ..Self::new(PromptRole::Tool, result) }
    }
}

/// A tool as it is offered to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The tool's id.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its parameters.
    pub parameters: Arc<Value>,
}

/// A call that a model wants made. As JSON it has the form of the OpenAI protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct ToolCall {
    /// Tells the calls of one answer apart; the result is sent back under it.
    pub id: String,
    /// The tool's id.
    pub name: String,
    /// The parameters as the model has written them: JSON, if it keeps to it.
    pub arguments: String,
    /// Further fields, such as `extra_content` with the signature of a thought. They go back to the server as they came.
    pub extra: Map<String, Value>,
}

impl ToolCall {
    /// A call without further fields.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into(), extra: Map::new() }
    }

    /// The call as readers see it, without the fields that are for the model's server only.
    #[must_use]
    pub fn without_extra(&self) -> Self {
        Self::new(self.id.clone(), self.name.clone(), self.arguments.clone())
    }
}

#[derive(Serialize, Deserialize)]
struct Written {
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

impl From<Written> for ToolCall {
    fn from(Written { id, function: Function { name, arguments }, extra, .. }: Written) -> Self {
        Self { id, name, arguments, extra }
    }
}

impl From<ToolCall> for Written {
    fn from(ToolCall { id, name, arguments, extra }: ToolCall) -> Self {
        Self { id, kind: Kind::Function, function: Function { name, arguments }, extra }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_have_the_form_of_the_protocol_and_are_read_back() {
        let call = ToolCall::new("c1", "eta", "{\"order\":\"A1\"}");
        let called =
            json!({"id": "c1", "type": "function", "function": {"name": "eta", "arguments": "{\"order\":\"A1\"}"}});
        let map = |value: Value| value.as_object().cloned().unwrap();
        let signed = ToolCall { extra: map(json!({"extra_content": {"google": {"x": 1}}})), ..call.clone() };
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
