//! An action: one thing that a decision has executed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// Operations of the engine that a SYSTEM action may name (E-29).
pub const SYSTEM_OPERATIONS: &[&str] = &["close_conversation", "handoff", "update_profile"];

/// One thing to be executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[schemars(
    deny_unknown_fields,
    extend("if" = json!({ "properties": { "type": { "const": "SYSTEM" } } })),
    extend("then" = json!({ "properties": { "target": { "enum": SYSTEM_OPERATIONS } } }))
)]
pub struct Action {
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: ActionKind,
    /// Of this file: a skill's, tool's or flow's id. For SYSTEM: close_conversation, handoff or update_profile.
    pub target: String,
    /// Its input.
    #[schema(value_type = Object)]
    #[serde(default)]
    pub params: Map<String, Value>,
}

/// The four kinds of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ActionKind {
    /// An intent's API.
    Skill,
    /// A tool.
    Tool,
    /// A fixed-rule function that takes over.
    Flow,
    /// A silent operation of the engine.
    System,
}

impl ActionKind {
    /// The upper-case name used on every wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skill => "SKILL",
            Self::Tool => "TOOL",
            Self::Flow => "FLOW",
            Self::System => "SYSTEM",
        }
    }
}
