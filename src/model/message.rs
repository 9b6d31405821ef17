//! What a prompt is made of: messages, the tools that a model may call, and its calls.

use serde::{Deserialize, Serialize};
use serde_json::Value;
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

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    /// Who speaks.
    pub role: PromptRole,
    /// The words.
    pub content: String,
    /// What the model wants called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool's message is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl PromptMessage {
    /// Words, and no more.
    pub fn new(role: PromptRole, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), tool_calls: Vec::new(), tool_call_id: None }
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
}

#[derive(Serialize, Deserialize)]
struct Written {
    id: String,
    #[serde(rename = "type", default)]
    kind: Kind,
    function: Function,
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
    fn from(Written { id, function: Function { name, arguments }, .. }: Written) -> Self {
        Self { id, name, arguments }
    }
}

impl From<ToolCall> for Written {
    fn from(ToolCall { id, name, arguments }: ToolCall) -> Self {
        Self { id, kind: Kind::Function, function: Function { name, arguments } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_have_the_form_of_the_protocol_and_are_read_back() {
        let call = ToolCall { id: "c1".into(), name: "eta".into(), arguments: "{\"order\":\"A1\"}".into() };
        let called =
            json!({"id": "c1", "type": "function", "function": {"name": "eta", "arguments": "{\"order\":\"A1\"}"}});
        for (message, written) in [
            (PromptMessage::new(PromptRole::User, "你好"), json!({"role": "user", "content": "你好"})),
            (
                PromptMessage::assistant("", vec![call]),
                json!({"role": "assistant", "content": "", "tool_calls": [called]}),
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
