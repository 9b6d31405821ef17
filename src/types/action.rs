//! Actions: the things that a decision asks the engine to execute.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Operations of the engine that a SYSTEM action may name as its target.
pub const SYSTEM_OPERATIONS: &[&str] = &["close_conversation", "handoff", "update_profile"];

/// One thing for the engine to execute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Action {
    /// The type of action: SKILL, TOOL, FLOW or SYSTEM.
    #[serde(rename = "type")]
    pub kind: ActionKind,
    /// The id of a skill, tool or flow of this file. For SYSTEM: close_conversation, handoff or update_profile.
    pub target: String,
    /// The input, as an object.
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// The four types of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ActionKind {
    /// Calls the API or function behind a user's intent.
    Skill,
    /// Calls an API, a built-in function or a Rust function.
    Tool,
    /// Hands the turn over to a workflow or a Rust function.
    Flow,
    /// Runs an operation of the engine itself. It sends no text of its own.
    System,
}

impl ActionKind {
    /// The upper-case name in JSON, on the queue and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skill => "SKILL",
            Self::Tool => "TOOL",
            Self::Flow => "FLOW",
            Self::System => "SYSTEM",
        }
    }
}
