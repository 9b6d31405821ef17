//! The types of nodes of a graph.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum NodeType {
    /// Asks a model.
    Llm,
    /// Calls an HTTP API.
    Http,
    /// Runs a script in the sandbox.
    Python,
    /// Queries a database through a connector.
    Database,
    /// Chooses between the branches `true` and `false`.
    Condition,
    /// Repeats a body of nodes.
    Loop,
    /// The beginning of a plan.
    Start,
    /// The end of a plan.
    End,
    /// Runs an agent or a workflow.
    Runnable,
    /// Asks a person.
    Ask,
    /// Waits for a time.
    Wait,
}

impl NodeType {
    /// All types.
    pub const ALL: [Self; 11] = [
        Self::Llm,
        Self::Http,
        Self::Python,
        Self::Database,
        Self::Condition,
        Self::Loop,
        Self::Start,
        Self::End,
        Self::Runnable,
        Self::Ask,
        Self::Wait,
    ];

    /// The types of `create_node`.
    pub const SINGLE: [Self; 6] = [Self::Llm, Self::Http, Self::Python, Self::Database, Self::Condition, Self::Loop];

    /// The types that the setting `decisions.restrict_node_types` leaves.
    pub const RESTRICTED: [Self; 4] = [Self::Llm, Self::Http, Self::Python, Self::Database];

    /// The name in all formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Llm => "LLM",
            Self::Http => "HTTP",
            Self::Python => "PYTHON",
            Self::Database => "DATABASE",
            Self::Condition => "CONDITION",
            Self::Loop => "LOOP",
            Self::Start => "START",
            Self::End => "END",
            Self::Runnable => "RUNNABLE",
            Self::Ask => "ASK",
            Self::Wait => "WAIT",
        }
    }

    /// The type with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// True for START and END, which do nothing and may be isolated.
    pub const fn is_structural(self) -> bool {
        matches!(self, Self::Start | Self::End)
    }

    /// True for the types that only workflow files may have.
    pub const fn is_of_files(self) -> bool {
        matches!(self, Self::Runnable | Self::Ask | Self::Wait)
    }
}

impl std::fmt::Display for NodeType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upper_case() {
        for kind in NodeType::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(NodeType::parse(kind.as_str()), Some(kind));
        }
    }
}
